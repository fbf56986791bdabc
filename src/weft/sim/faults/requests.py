"""What a simulated client asks of its broker. Law: a request is made again until it is answered.

A request whose answer was lost may have been done: until it is known, the filter before and the one after may both be
in force.
"""

from __future__ import annotations

from weft.broker.explanation import explanation_of
from weft.broker.messages import (
    Accepted,
    Advertise,
    ClientMessage,
    Explained,
    Failed,
    QueueNumber,
    Replace,
    Revoked,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Welcome,
)
from weft.language.meaning import matches
from weft.language.text import parse
from weft.log.base import Offset
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.consumer import SHARED
from weft.sim.faults.judgement import FINAL, Judgement
from weft.sim.faults.own_predicate import EVEN
from weft.sim.faults.views import AdvertView, FilterVersion, QueueView, SubView
from weft.sim.faults.violation import require

_LONG = 1 << 30  # a lag that no queue reaches
_AGAIN = 20_000  # microseconds before a request that failed is made again, at most


class SimulatedRequests:
    """The subscriptions and advertisements of one client, asked for and answered."""

    def __init__(self, world: ClientWorld, state: ClientState, connection: ClientConnection) -> None:
        self.shares: dict[str, QueueView] = {}  # queues shared with other clients, by name
        self._world, self._state, self._connection = world, state, connection
        self._asked_again: list[ClientMessage] = []
        self._retried: list[ClientMessage] = []  # requests that failed, and are to be made again
        self._rules: dict[tuple[str, int], int] = {}  # the access rules when a request was made
        self.judgement = Judgement(world, state)
        self._shares: list[Subscribe] = []  # a consumer of a shared queue subscribes anew on each connection

    # -- asking ----------------------------------------------------------------------------------------

    def subscribe(self, message: Subscribe) -> None:
        """Subscribe; asked until answered."""
        low = self._low(message)
        if message.share:  # the queue may have been there before
            low = 0
            self._shares.append(message)
        durable = message.durable is not False  # sessions with a name: durable unless they say otherwise
        view = SubView(message.number, message.queue, durable, [FilterVersion(parse(message.filter, EVEN), low)])
        self._state.subs[message.number] = view
        if durable:
            self._adopt(message)
            self._state.queues[message.queue].subs.append(view)
        self._ask(message)

    def _low(self, message: Subscribe) -> int:
        """The first event that a new subscription may get."""
        oracle = self._world.oracle
        first = message.since
        if message.since_time is not None:
            first = Offset(oracle.find(message.since_time) or oracle.next)
        return oracle.next if first is None else min(first, oracle.next)

    def _adopt(self, message: Subscribe) -> None:
        if message.queue not in self._state.queues:
            view = self.shares.get(message.share) if message.share else self._world.oracle.view()
            assert view is not None
            self._state.queues[message.queue] = view
            view.ordered = self._state.ordered[message.queue] = message.ordered and not message.share
            view.shared = bool(message.share)
            limits, view.principal = self._world.limits, self._world.principal
            view.lag = limits.lag if message.disconnect else min(message.lag or limits.lag, limits.lag)
            view.lag = view.lag if view.lag < _LONG else 0

    def replace(self, number: SubNumber, text: str) -> None:
        """Give a subscription another filter."""
        sub = self._state.subs.get(number)
        if sub is not None and not sub.ended and not self.is_asked(number):
            sub.versions.append(FilterVersion(parse(text, EVEN), self._world.oracle.next))
            self._ask(Replace(number, text))

    def unsubscribe(self, number: SubNumber) -> None:
        """End a subscription."""
        sub = self._state.subs.get(number)
        if sub is not None and not sub.ended and not self.is_asked(number):
            sub.versions.append(FilterVersion(None, self._world.oracle.next))
            if number == SHARED:  # with its last consumer a shared queue ends, also for those who are away
                self._shares.clear()
                for each in self._state.queues[sub.queue].subs:
                    each.doubtful = True
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
        self._state.adverts[number] = AdvertView(parse(text, EVEN))
        self._state.promises.append(parse(text, EVEN))
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

    def is_asked(self, number: int) -> bool:
        """Whether a request about a subscription is not answered yet."""
        return any(getattr(message, "number", None) == number for message in (*self._state.asked, *self._retried))

    def _ask(self, message: ClientMessage) -> None:
        self._state.asked.append(message)
        self._rules[_about(message)] = self._world.book.now
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
        tried = (message.about, message.number) in self._state.trials
        require(not tried, f"{self._world.name}: {message.about} {message.number} is accepted, and must not be")
        asked = self._answered(message.about, message.number)
        if asked is not None:
            self.judgement.accepted(asked, self._rules[_about(asked)])
        if isinstance(asked, Advertise):
            self._state.adverts[asked.number].accepted = True
        if isinstance(asked, Unadvertise):
            self._state.adverts[asked.number].gone = True
        if asked is None or message.about in ("advertise", "unadvertise"):
            return
        sub = self._state.subs[SubNumber(message.number)]
        if message.about == "unsubscribe":
            self._end_queue(sub.queue)
        version = sub.versions[{"subscribe": 0, "replace": -1, "unsubscribe": -1}[message.about]]
        if isinstance(asked, Subscribe) and (asked.since is not None or asked.since_time is not None):
            first = asked.since
            if asked.since_time is not None:
                first = Offset(self._world.oracle.find(asked.since_time) or message.offset)
            assert first is not None
            version.high = min(max(first, self._oldest()), message.offset)
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
        version.high = message.offset
        if sub.durable:  # others hold at once: events on their way that are not stored give their offsets to later ones
            version.low = message.offset

    def _oldest(self) -> int:
        """The oldest event in the broker's log."""
        broker = self._world.broker
        return broker.log.restore().first if broker.core is not None else self._world.oracle.next

    def failed(self, message: Failed) -> None:
        """A request changed nothing; if the log was full, it is made again later."""
        self._world.trace.count(f"failed: {message.about} {message.code}")
        codes = self._state.trials.pop((message.about, message.number), None)
        if codes is not None:
            right = message.code in codes
            require(right, f"{self._world.name}: {message.about} failed by {message.code}, not {sorted(codes)}")
            return
        asked = self._answered(message.about, message.number)
        if asked is not None and message.code in FINAL:
            self.judgement.failed(asked, message.code, self._rules[_about(asked)])
            self._give_up(asked)
            return
        if isinstance(asked, Advertise) and message.code == "exists":  # it was done, and the answer was lost
            self._state.adverts[asked.number].accepted = True
        elif asked is not None and message.code not in ("table", "exists", "unknown"):
            self._retried.append(asked)
            self._world.soon(_AGAIN, lambda: self._ask_again(asked))

    def explained(self, message: Explained) -> None:
        """Where an event would go: here, and to subscriptions that match it."""
        self._state.trials.pop(("explain", message.request), None)
        event = asked_about(message.request)
        (hop,) = explanation_of(bytes(message.body)).hops
        require(len(hop.subscriptions) <= hop.matched, f"{hop.matched} subscriptions match, and more are listed")
        for sub in hop.subscriptions:
            right = matches(parse(sub.filter, EVEN), event)  # type: ignore[arg-type]
            require(right, f"{self._world.name}: {sub.filter} is said to match {event}")

    def _give_up(self, asked: ClientMessage) -> None:
        """A request will never be granted."""
        state = self._state
        if isinstance(asked, Subscribe):
            sub = state.subs.pop(asked.number)
            if sub.durable and sub in state.queues[sub.queue].subs:  # a shared queue may have ended before
                state.queues[sub.queue].subs.remove(sub)
            self._shares = [share for share in self._shares if share.number != asked.number]
        elif isinstance(asked, Replace):
            state.subs[asked.number].versions.pop()
        elif isinstance(asked, Advertise):
            del state.adverts[asked.number]

    def revoked(self, message: Revoked) -> None:
        """The access rules do not allow a subscription any more."""
        sub = self._state.subs.get(message.number)
        if sub is not None and not sub.ended:
            self._end(sub)

    def _end(self, sub: SubView) -> None:
        """A subscription has ended without the client; what is asked about it will fail."""
        require(sub.doubtful, f"{self._world.name}: subscription {sub.number} ended, and the rules allow it")
        self._world.trace.count("revoked")
        self._shares = [share for share in self._shares if share.number != sub.number]
        sub.versions.append(FilterVersion(None, 0))
        self._end_queue(sub.queue)

    def doubt(self) -> None:
        """The access rules have changed: what they do not cover may end at any time."""
        world = self._world
        for sub in self._state.subs.values():
            texts = [str(version.filter) for version in sub.versions[sub.answered :] if version.filter is not None]
            if any(world.book.leaves_out(world.principal, text) for text in texts):
                sub.doubtful = True

    def begin_anew(self) -> None:
        """The session is a new one: nothing that was asked for is there, but what is shared with others."""
        state = self._state
        shared = {share.number for share in self._shares}
        for number in [number for number in state.subs if number not in shared]:
            del state.subs[number]
        for queue in [queue for queue in state.queues if SubNumber(queue) not in shared]:
            del state.queues[queue]
        state.adverts.clear()
        state.asked.clear()
        state.open.clear()
        self._retried.clear()

    def _ask_again(self, asked: ClientMessage) -> None:
        if asked in self._retried:
            self._retried.remove(asked)
            self._ask(asked)

    # -- a new connection ------------------------------------------------------------------------------

    def welcome(self, message: Welcome) -> None:
        """Compare what the broker has with what was asked, and ask again for the rest."""
        state, oracle, name = self._state, self._world.oracle, self._world.name
        there = set(message.subscriptions)
        unknown = there - state.subs.keys()
        require(not unknown, f"{name}: the broker has subscriptions {sorted(unknown)}, which nobody asked for")
        state.trials.clear()
        state.lossy.clear()
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
        coming = {asked.number for asked in state.asked if isinstance(asked, Subscribe)}
        for number, sub in state.subs.items():
            if sub.durable and sub.accepted and not sub.ended and number not in coming and number not in there:
                require(sub.doubtful, f"{name}: subscription {number} was accepted, and is lost")
                self._end(sub)
            if not sub.durable and not sub.ended and number not in there and number not in waiting:
                sub.versions[0] = FilterVersion(sub.versions[-1].filter, oracle.next)
                del sub.versions[1:]
                sub.answered, sub.completed = 0, -1
                state.asked.append(Subscribe(number, str(sub.versions[0].filter), sub.queue, durable=False))
        self._asked_again = list(state.asked)
        self._rules.update({_about(asked): self._world.book.now for asked in state.asked})
        self._connection.tell(*state.asked)


def _about(message: ClientMessage) -> tuple[str, int]:
    """What a request is about, as its answer says it."""
    return type(message).__name__.lower(), message.number  # type: ignore[union-attr]


def asked_about(number: int) -> dict[str, object]:
    """The event that a request for an explanation is about."""
    return {"x": number % 8, "y": "ab"[number // 8 % 2]}
