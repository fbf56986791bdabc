"""A simulated publisher. Law: what it published is sent again until it is confirmed, in its order."""

from __future__ import annotations

import msgspec

from weft.broker.messages import NewEpoch, Publish, Refused
from weft.language.meaning import matches
from weft.sim.faults.client_state import ClientState, ClientWorld, Unconfirmed
from weft.sim.faults.connection import ClientConnection
from weft.sim.faults.violation import require

_AGAIN = ("full", "rate")  # refusals after which an event is published again


class SimulatedPublisher:
    """The events of one client that are not yet confirmed, and its epoch."""

    def __init__(self, world: ClientWorld, state: ClientState, connection: ClientConnection) -> None:
        self._world, self._state, self._connection = world, state, connection
        self._ended_from = 0  # the first refused event of the epoch
        self._skipped = 0  # the first event after which a number was left out
        self.odd: set[str] = set()  # events that cannot be accepted

    def publish(self, uid: str, attributes: dict[str, object], ttl: int = 0) -> None:
        """Publish a durable event; it is sent until it is confirmed."""
        state = self._state
        state.sequence += 1
        state.unconfirmed[state.sequence] = Unconfirmed(uid, attributes, ttl, self._world.book.now)
        if not self._ended_from:
            self._send(state.sequence)

    def publish_once(self, uid: str, attributes: dict[str, object]) -> None:
        """Publish an event that is not durable, if connected."""
        self._connection.tell(Publish.of(0, attributes, uid.encode()))

    def _send(self, sequence: int) -> None:
        event = self._state.unconfirmed[sequence]
        self._connection.tell(Publish.of(sequence, event.attributes, event.uid.encode(), ttl=event.ttl))

    def confirmed(self, upto: int) -> None:
        """Events up to a sequence are stored."""
        state, world = self._state, self._world
        for sequence in [s for s in state.unconfirmed if s <= upto]:
            uid = state.unconfirmed.pop(sequence).uid
            require(world.oracle.offset_of(uid) is not None, f"{world.name}: {uid} is confirmed, not stored")
        self._renew()

    def refused(self, message: Refused) -> None:
        """An event was refused: its epoch is over."""
        if not message.sequence or message.pub_epoch != self._state.pub_epoch:
            return
        self._judge(message)
        if message.code == "sequence":
            require(self._skipped > 0, f"{self._world.name}: {message.reason}")
            message = msgspec.structs.replace(message, sequence=self._skipped)
        if not self._ended_from or message.sequence < self._ended_from:  # one before it may not have been stored
            self._ended_from = message.sequence
        self._world.soon(10_000, self._renew)

    def _judge(self, message: Refused) -> None:
        """A refusal that repeats itself is right, or a violation; the event is not published again."""
        world, state = self._world, self._state
        event = state.unconfirmed.get(message.sequence)
        if event is None or message.code in _AGAIN or message.code == "sequence":
            return
        what = f"{world.name}: {event.uid} was refused: {message.code}"
        if message.code == "access":
            require(world.book.forbids(world.principal, event.attributes, event.rules), f"{what}; the rules allow it")
        elif message.code == "advertisement":
            promised = [
                advert
                for advert in state.adverts.values()
                if advert.in_force and matches(advert.filter, event.attributes)  # type: ignore[arg-type]
            ]
            require(not promised, f"{what}; it was advertised")
        else:
            require(message.code == "event" and event.uid in self.odd, what)
        del state.unconfirmed[message.sequence]

    def _renew(self) -> None:
        """Begin a new epoch once everything before the refused event is confirmed."""
        state = self._state
        welcomed = self._connection.welcomed
        if self._ended_from and welcomed and all(s >= self._ended_from for s in state.unconfirmed):
            self._ended_from = self._skipped = 0
            state.pub_epoch += 1
            waiting = [state.unconfirmed[s] for s in sorted(state.unconfirmed)]
            state.unconfirmed = dict(enumerate(waiting, 1))
            state.sequence = len(waiting)
            self._world.trace.count("op: new publisher epoch")
            self._connection.tell(NewEpoch(state.pub_epoch))
            for sequence in state.unconfirmed:
                self._send(sequence)

    def welcome(self, pub_epoch: int, pub_seq: int) -> None:
        """A connection begins; the broker says how far it is."""
        same, name = pub_epoch == self._state.pub_epoch, self._world.name
        require(same, f"{name}: publisher epoch {pub_epoch}, not {self._state.pub_epoch}")
        self._skipped = 0
        sequences = range(pub_seq + 1, self._state.sequence + 1)  # without those that are not published again
        self._ended_from = next((each for each in sequences if each not in self._state.unconfirmed), 0)
        if self._world.rng.random() < 0.7:  # otherwise it sends again what is stored, and the broker must notice
            self.confirmed(pub_seq)

    def send_again(self) -> None:
        """Everything that is not confirmed."""
        for sequence in sorted(self._state.unconfirmed):
            if not self._ended_from or sequence < self._ended_from:
                self._send(sequence)
        self._renew()

    def skip(self, uid: str) -> None:
        """Publish an event under a number that is too high: it must be refused, with all that follow."""
        if self._connection.welcomed and not self._ended_from and not self._skipped:
            self._skipped = self._state.sequence + 1
            self._connection.tell(Publish.of(self._skipped + 1, {"x": 1}, uid.encode()))

    def publish_oddly(self, uid: str) -> None:
        """Publish an event that no broker accepts."""
        self.odd.add(uid)
        self.publish(uid, {"x": 1 << 63})

    def forget(self) -> None:
        """A session without a name has ended: whether what it published is stored can no longer be known."""
        self._state.unconfirmed.clear()
        self._state.pub_epoch, self._state.sequence, self._ended_from = 1, 0, 0

    def begin_anew(self) -> None:
        """The session is a new one: what was published in the old one and not confirmed may be stored or not."""
        self._state.unconfirmed.clear()
        self._state.sequence, self._ended_from = 0, 0
