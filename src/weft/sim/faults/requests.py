"""What a simulated client asks of its broker. Law: a request is made again until it is answered.

A request whose answer was lost may have been done: until it is known, the filter before and the one after may both be
in force.
"""

from __future__ import annotations

from weft.broker.messages import (
    Accepted,
    Advertise,
    ClientMessage,
    Failed,
    QueueNumber,
    Replace,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from weft.language.text import parse
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.views import AdvertView, QueueView, SubView, Version
from weft.sim.faults.violation import require

_AGAIN = 20_000  # microseconds before a request that failed is made again, at most


class Requests:
    """The subscriptions and advertisements of one client, asked for and answered."""

    def __init__(self, world: ClientWorld, state: ClientState, connection: ClientConnection) -> None:
        self.shares: dict[str, QueueView] = {}  # queues shared with other clients, by name
        self._world, self._state, self._connection = world, state, connection
        self._asked_again: list[ClientMessage] = []
        self._retried: list[ClientMessage] = []  # requests that failed, and are to be made again
        self._shares: list[Subscribe] = []  # a consumer of a shared queue subscribes anew on each connection

    # -- asking ----------------------------------------------------------------------------------------

    def subscribe(self, message: Subscribe) -> None:
        """Subscribe; asked until answered."""
        since = message.since
        low = self._world.oracle.next if since is None else since
        if message.share:  # the queue may have been there before
            low = 0
            self._shares.append(message)
        durable = message.durable is not False  # sessions with a name: durable unless they say otherwise
        view = SubView(message.number, message.queue, durable, [Version(parse(message.filter), low)])
        self._state.subs[message.number] = view
        if durable:
            self._adopt(message)
            self._state.queues[message.queue].subs.append(view)
        self._ask(message)

    def _adopt(self, message: Subscribe) -> None:
        if message.queue not in self._state.queues:
            view = self.shares.get(message.share) if message.share else self._world.oracle.view()
            assert view is not None
            self._state.queues[message.queue] = view
            view.ordered = self._state.ordered[message.queue] = message.ordered and not message.share

    def replace(self, number: SubNumber, text: str) -> None:
        """Give a subscription another filter."""
        sub = self._state.subs.get(number)
        if sub is not None and not sub.ended and not self._is_asked(number):
            sub.versions.append(Version(parse(text), self._world.oracle.next))
            self._ask(Replace(number, text))

    def unsubscribe(self, number: SubNumber) -> None:
        """End a subscription."""
        sub = self._state.subs.get(number)
        if sub is not None and not sub.ended and not self._is_asked(number):
            sub.versions.append(Version(None, self._world.oracle.next))
            self._end_queue(sub.queue)
            self._ask(Unsubscribe(number))

    def _end_queue(self, queue: QueueNumber) -> None:
        """A queue without subscriptions ends; one with its number may begin later."""
        view = self._state.queues.get(queue)
        if view is not None:
            view.held.clear()  # what failed may have been this subscription's alone
        if view is not None and all(sub.ended for sub in self._state.subs.values() if sub.queue == queue):
            self._state.open.pop(queue, None)
            view.drop(set(self._world.oracle.history))

    def advertise(self, number: int, text: str = "TRUE") -> None:
        """Promise to publish only what a filter matches."""
        self._state.adverts[number] = AdvertView(parse(text))
        self._ask(Advertise(number, text))

    def unadvertise(self, number: int) -> None:
        """Take the promise back, unless an event that depends on it may be on its way."""
        advert = self._state.adverts.get(number)
        if advert is None or not advert.in_force or self._state.unconfirmed:
            return
        advert.until = self._world.oracle.assigned
        self._ask(Unadvertise(number))

    @property
    def is_retrying(self) -> bool:
        """Whether a request that failed is to be made again."""
        return bool(self._retried)

    def _is_asked(self, number: int) -> bool:
        return any(getattr(message, "number", None) == number for message in (*self._state.asked, *self._retried))

    def _ask(self, message: ClientMessage) -> None:
        self._state.asked.append(message)
        self._connection.tell(message)

    # -- answers ---------------------------------------------------------------------------------------

    def _answered(self, about: str, number: int) -> ClientMessage | None:
        for message in self._state.asked:
            if type(message).__name__.lower() == about and message.number == number:  # type: ignore[union-attr]
                self._state.asked.remove(message)
                return message
        return None

    def accepted(self, message: Accepted) -> None:
        """A request is done: from now on it is known where a filter came into force."""
        asked = self._answered(message.about, message.number)
        if isinstance(asked, Advertise):
            self._state.adverts[asked.number].accepted = True
        if asked is None or message.about in ("advertise", "unadvertise"):
            return
        sub = self._state.subs[SubNumber(message.number)]
        if message.about == "unsubscribe":
            self._end_queue(sub.queue)
        version = sub.versions[{"subscribe": 0, "replace": -1, "unsubscribe": -1}[message.about]]
        if isinstance(asked, Subscribe) and asked.since is not None:
            version.high = max(asked.since, self._oldest())
            self._state.queues[sub.queue].begins = self._oldest()
            return
        if isinstance(asked, Subscribe) and asked.share:
            version.high = min(version.high, message.offset)
            return
        if asked in self._asked_again:  # it may have been done the first time, and the answer was lost
            self._asked_again.remove(asked)
            version.high = message.offset
            return
        early, name = message.offset < version.low, self._world.name
        require(not early, f"{name}: {message.about} holds from {message.offset}, before it was requested")
        version.low = version.high = message.offset

    def _oldest(self) -> int:
        """The oldest event in the broker's log."""
        broker = self._world.broker
        return broker.log.restore().first if broker.core is not None else self._world.oracle.next

    def failed(self, message: Failed) -> None:
        """A request changed nothing; if the log was full, it is made again later."""
        self._world.trace.count(f"failed: {message.about} {message.code}")
        asked = self._answered(message.about, message.number)
        if isinstance(asked, Advertise) and message.code == "exists":  # it was done, and the answer was lost
            self._state.adverts[asked.number].accepted = True
        elif asked is not None and message.code not in ("table", "exists", "unknown"):
            self._retried.append(asked)
            self._world.soon(_AGAIN, lambda: self._ask_again(asked))

    def _ask_again(self, asked: ClientMessage) -> None:
        if asked in self._retried:
            self._retried.remove(asked)
            self._ask(asked)

    # -- a new connection ------------------------------------------------------------------------------

    def welcome(self, message: Welcome) -> None:
        """Compare what the broker has with what was asked, and ask again for the rest."""
        state, oracle, name = self._state, self._world.oracle, self._world.name
        there = set(message.subscriptions)
        for asked in list(state.asked):
            if isinstance(asked, Subscribe) and asked.number in there:  # it was done, and the answer was lost
                state.asked.remove(asked)
                state.subs[asked.number].versions[0].high = oracle.next
                if asked.since is not None:
                    state.queues[asked.queue].begins = self._oldest()
            if isinstance(asked, Unsubscribe) and asked.number not in there:
                state.asked.remove(asked)
        lost = {number for number, sub in state.subs.items() if not sub.durable and number not in there}
        for waiting_list in (state.asked, self._retried):  # subscriptions that ended with the connection are made anew
            waiting_list[:] = [asked for asked in waiting_list if getattr(asked, "number", None) not in lost]
        state.asked += [share for share in self._shares if share not in state.asked]
        waiting = {getattr(asked, "number", None) for asked in state.asked}
        for number, sub in state.subs.items():
            if sub.durable and sub.accepted and not sub.ended and number not in waiting:
                require(number in there, f"{name}: subscription {number} was accepted, and is lost")
            if not sub.durable and not sub.ended and number not in there and number not in waiting:
                sub.versions[0] = Version(sub.versions[-1].filter, oracle.next)
                del sub.versions[1:]
                sub.answered, sub.completed = 0, -1
                state.asked.append(Subscribe(number, str(sub.versions[0].filter), sub.queue, durable=False))
        self._asked_again = list(state.asked)
        self._connection.tell(*state.asked)
