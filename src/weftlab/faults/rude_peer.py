"""A peer that sends what the client library never sends. The broker must refuse it, or close the connection.

It is not a client: each conversation has a connection and mostly a session of its own, sends a few raw messages, and is
over as soon as it is answered, or cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.broker.effects import ConnectionId
from weft.protocol import messages as protocol
from weft.protocol.codec import broker_messages, encode
from weft.protocol.messages import Accepted, ClientMessage, Failed, Goodbye, Hello, Publish, Subscribe, Welcome
from weftlab.faults.trace import Actor, shown
from weftlab.faults.views import ClientViews
from weftlab.faults.violation import require

if TYPE_CHECKING:
    from weftlab.faults.client import SimClient

_GARBAGE = b"\0\0\0\3\x92\x63\x01"


class RudeRequest(NamedTuple):
    """A request that must fail by a code, perhaps after another one that is granted."""

    message: ClientMessage
    about: str
    number: int
    code: str
    before: Subscribe | None = None


class RudePeer:
    """The conversations of one peer. `opened` are those that wait for an answer."""

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.opened: dict[int, str] = {}
        self.numbers = count(1)
        self._repeated: list[tuple[str, dict[str, object]]] = []
        # codes by which anything may be refused, before it is looked at
        self.first_refusals = {"leaving", "access"} if client.terms.guarded else {"leaving"}
        if client.terms.narrow.keys() & {"subscriptions", "queues", "adverts"}:
            self.first_refusals.add("limit")

    def request(self, request: RudeRequest) -> None:
        """Make a request that must fail. A limit, the rules, or the end of the session may forbid it first."""
        _Conversation(self, "" if self.client.anonymous and request.before is None else None).begin(request)

    def lie(self, what: str) -> None:
        """Send a hello that no broker accepts, in the name of the client."""
        lies: dict[str, dict[str, object]] = {
            "version": {"versions": (protocol.NEWEST + 1, protocol.NEWEST + 7)},
            "schema": {"fingerprint": "of nothing"},
            "name": {"session": "n" * (self.client.limits.name + 1)},
            "credentials": {"credentials": b"of nobody"},
            "epoch": {"epoch": 1},
        }
        lie = _Conversation(self, self.client.name, lie=what)
        lie.hello = msgspec.structs.replace(lie.hello, **lies[what])
        lie.begin()

    def misbehave(self, how: str) -> None:
        """Break the protocol."""
        talk = _Conversation(self)
        raw = {
            "garbage": _GARBAGE,
            "hello again": encode([talk.hello]),
            "old publisher epoch": encode([protocol.NewEpoch(0)]),
        }
        talk.raw, talk.is_silent = raw.get(how, b""), how == "stranger"
        skipped = RudeRequest(Publish.of(2, {"x": 1}, b"skipped"), "publish", 2, "sequence")
        talk.begin(skipped if how == "skipped number" else None)

    def publish_again(self, uid: str, event: dict[str, object]) -> None:
        """Publish an event, and again all that were published so before: the broker must not store them again."""
        self._repeated.append((uid, event))
        _Conversation(self, f"{self.client.name}-repeats", repeats=True).begin()

    def repeated(self, *, resumed: bool) -> bytes:
        """All events that were published so; only the last one, if the broker has forgotten the session."""
        if not resumed:
            del self._repeated[:-1]
        events = enumerate(self._repeated, 1)
        return encode([Publish.of(sequence, event, uid.encode()) for sequence, (uid, event) in events])


class _Conversation(Actor):
    """One connection of a rude peer, with a session of its own if none is given."""

    raw = b""  # what it sends once it is welcome
    is_silent = False  # it does not even say hello

    def __init__(self, peer: RudePeer, session: str | None = None, *, lie: str = "", repeats: bool = False) -> None:
        client, self._number = peer.client, next(peer.numbers)
        super().__init__(f"rude{self._number}", client.engine, client.rng, client.trace)
        self._peer, self._client, self._lie, self._repeats = peer, client, lie, repeats
        self._connection = ConnectionId(f"{client.name}-rude-{self._number}")
        session = self._connection if session is None else session
        self.hello = Hello(session=session, credentials=client.principal.encode(), expires=1)  # soon forgotten

    def begin(self, request: RudeRequest | None = None) -> None:
        """Connect and say hello, unless the broker is down."""
        client, connection, reader = self._client, self._connection, broker_messages()
        if client.broker.core is None:
            return
        self._request, self._before = request, None if request is None else request.before

        def receive(data: bytes) -> None:
            for message in reader.feed(data):
                self._received(message)

        client.oracle.clients[connection] = ClientViews(client.principal)
        if self.raw == _GARBAGE:
            client.broker.rude.add(connection)
        self._there, _ = client.broker.open(connection, self, receive, self._over)
        if request is not None:
            self._peer.opened[self._number] = request.about
        if not self.is_silent:
            self._send([self.hello])

    def _send(self, messages: Sequence[ClientMessage]) -> None:
        for message in messages:
            self.say(f"-> {shown(message)}")
        self._there.send(encode(messages))

    def _over(self) -> None:
        self._peer.opened.pop(self._number, None)

    def _leave(self) -> None:
        before = None if self._request is None else self._request.before
        self._send([*([] if before is None else [protocol.Unsubscribe(before.number)]), Goodbye(forget=True)])
        self._request = None
        self._over()

    def _received(self, message: protocol.BrokerMessage) -> None:
        self.say(f"<- {shown(message)}")
        match message:
            case Welcome():
                self._welcomed(message)
                return
            case Accepted() if self._before is not None:
                self._before = None
                self._go_on()
                return
            case Failed() if self._before is not None:  # what was to be there is not
                self._leave()
                return
            case Failed(about, number, code):
                pass
            case protocol.Refused(_, number, code):
                about = "publish"
            case Accepted(about, number):
                code = "accepted"
            case _:
                return
        request = self._request
        if request is not None and (about, number) == (request.about, request.number):
            codes = {request.code, *self._peer.first_refusals}
            require(code in codes, f"{self._client.name}: {about} {number} failed by {code}, not {sorted(codes)}")
            self._leave()

    def _welcomed(self, message: Welcome) -> None:
        gone = self._lie == "epoch" and not message.resumed  # the epoch of a session that is gone says nothing
        require(not self._lie or gone, f"{self._client.name}: welcomed with a wrong {self._lie}")
        if self._lie:
            self._leave()
        elif self._repeats:
            self._there.send(self._peer.repeated(resumed=message.resumed))
            self._send([Goodbye()])
        elif self.raw:
            self.say("-> garbage")
            self._there.send(self.raw)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._request is not None:
            self._send([self._before or self._request.message])
