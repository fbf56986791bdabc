"""Random clients against one broker: what each durable subscription gets, against a list of what was stored."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import astuple

from broker.harness import Broker
from strategies import EXAMPLES
from weft.broker.admission import read_head
from weft.broker.effects import ConnectionId
from weft.broker.limits import ClientLimits
from weft.broker.queue import MemberOptions, Position, read_options
from weft.language.meaning import matches
from weft.language.text import parse
from weft.log.base import DeadRow, Group, MoveFloor, Offset, Put, Remove, SessionRow, SubRow
from weft.protocol.messages import (
    Ack,
    Deliver,
    Nack,
    NewEpoch,
    Publish,
    Published,
    QueueNumber,
    Range,
    Refused,
    Replace,
    SubNumber,
    Subscribe,
    Unsubscribe,
    Welcome,
)

SMALL = ClientLimits(window_events=4, turn=3, tail=4_000, backoff=100, max_backoff=400, failures=3)
QUEUES = 5  # 0, 1, 3 and 4 are ordered, 2 is not
SHARED = QueueNumber(9)
EVERYBODY = "*"  # whose the shared queue is
Key = tuple[str, int, int]  # session, queue, offset


class Client:
    """A client that publishes, subscribes and answers at random."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = 0
        self.connection: str | None = None
        self.sequence = 0
        self.epoch = 1
        self.sent: dict[tuple[int, int], bytes] = {}
        self.open: dict[int, dict[int, int]] = {}  # by queue: the attempt that this connection was sent


class World:
    """Three clients and a broker; the rows that are committed say what each subscription must get."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.broker = Broker(at_once=False, limits=SMALL)
        self.clients = [Client(f"s{n}") for n in range(3)]
        self.names: dict[int, str] = {0: EVERYBODY}
        self.begins: dict[int, int] = {}  # first events of queues, by seat
        self.seats: dict[int, tuple[str, int]] = {}
        self.lives: dict[tuple[str, int], list[tuple[int, str | None]]] = {}  # filters by first offset; None: ended
        self.stored: dict[int, tuple[tuple[int, int, int], dict[str, int]]] = {}  # by offset: origin, attributes
        self.acked: set[Key] = set()
        self.lasting: set[Key] = set()  # acknowledgements that are committed
        self.seen: dict[tuple[str, int, int, int], int] = {}  # session, queue, number, offset: last attempt
        self.dead: set[Key] = set()
        self.processed = 0
        self.next = 1

    def draw(self, high: int) -> int:
        return int(self.rng.integers(high))

    # -- what happens ---------------------------------------------------------------------------------

    def step(self) -> None:
        client = self.clients[self.draw(3)]
        roll, broker = self.draw(100), self.broker
        if client.connection is None:
            if roll < 60:
                self.connect(client)
        elif roll < 25:
            events = []
            for _ in range(1 + self.draw(4)):
                client.sequence += 1
                payload = f"{client.name} {client.epoch} {client.sequence}".encode()
                events.append(Publish.of(client.sequence, {"x": self.draw(8)}, payload))
            broker.say(client.connection, *events)
        elif roll < 33:
            number = SubNumber(self.draw(4))
            queue = QueueNumber(self.draw(QUEUES))
            since = Offset(self.draw(self.next)) if queue > 2 else None
            message = Subscribe(number, f"x >= {self.draw(8)}", queue, ordered=queue != 2, since=since)
            broker.say(client.connection, message)
        elif roll < 35:
            broker.say(client.connection, Subscribe(SubNumber(9), "x >= 2", SHARED, share="work"))
        elif roll < 40:
            broker.say(client.connection, Replace(SubNumber(self.draw(4)), f"x < {self.draw(9)}"))
        elif roll < 42:
            number = SubNumber(self.draw(4) if self.draw(8) else 9)
            if number == 9:
                client.open.pop(SHARED, None)  # a consumer that leaves has nothing any more
            broker.say(client.connection, Unsubscribe(number))
        elif roll < 65:
            self.answer(client)
        elif roll < 67:
            broker.cut(client.connection)
            client.connection = None
        elif roll < 68:
            self.connect(client)  # take-over
        elif roll < 70:
            broker.core.paused(ConnectionId(client.connection))
        elif roll < 73:
            broker.do(broker.core.resumed(ConnectionId(client.connection), broker.now))
        elif roll < 76:
            broker.wait(self.draw(300))
        elif roll < 77:
            self.crash() if self.draw(2) else self.trim()
        elif roll < 78 and broker.persists:
            self.read()
            broker.reject()
        elif broker.persists:
            self.commit()
        self.read()

    def connect(self, client: Client) -> None:
        client.connections += 1
        client.connection = f"{client.name}.{client.connections}"
        client.open = {}
        self.broker.hello(client.connection, client.name)

    def commit(self) -> None:
        number = 1 + self.draw(3)
        for each in self.broker.persists[:number]:
            self.note(each.group)
        self.broker.commit(number)
        self.broker.core.check()

    def trim(self) -> None:
        """Remove what no queue needs any more."""
        broker = self.broker
        broker.take(broker.core.store_floors(broker.now))
        while broker.persists:
            self.commit()
        broker.log.trim(broker.core.needed)
        before = broker.core.counts.get("gaps", 0)
        broker.do(broker.core.trimmed(broker.log.restore().first, broker.now))
        assert broker.core.counts.get("gaps", 0) == before, "trimmed what a queue needs"

    def note(self, group: Group) -> None:
        """What a group says; in this test each has events or requests, not both in turns."""
        first = self.next
        if group.events is not None:
            first = group.events.first
            self.next = first + len(group.events)
            for n, head in enumerate(group.events.heads):
                origin = tuple(group.events.origins[n].tolist())
                self.stored[first + n] = origin, read_head(head).attributes
        for change in group.changes:
            match change:
                case Put(row=SubRow() as row) if not row.filter:
                    key_ = self.names[row.session], row.number
                    self.acked = {key for key in self.acked if key[:2] != key_}  # another queue of the same number
                    self.lasting = {key for key in self.lasting if key[:2] != key_}
                    self.begins[row.seat] = row.floor
                    self.seen = {key: last for key, last in self.seen.items() if key[:2] != key_}
                    for client in self.clients:
                        if client.name == key_[0]:
                            client.open.pop(row.number, None)
                case Put(row=SessionRow() as row):
                    self.names[row.id] = row.name
                case Put(row=SubRow() as row) if row.filter:
                    key = self.seats[row.seat] = self.names[row.session], row.number
                    options = read_options(row)
                    assert isinstance(options, MemberOptions)
                    begin = self.begins.pop(options.queue, first)  # a replay begins before the subscription
                    self.lives.setdefault(key, []).append((begin, row.filter))
                case Put(row=DeadRow() as row):
                    name, queue = self.queue_seat(row.seat)
                    self.dead.add((name, queue, row.offset))
                case MoveFloor() if change.seat in self.broker.log.restore().subs:
                    self.lasting |= self.covered(self.queue_seat(change.seat), Position.decode(*astuple(change)[1:]))
                case Remove(table=table, key=(seat, *_)) if table is SubRow and seat in self.seats:
                    self.lives[self.seats[seat]].append((first, None))

    def covered(self, queue: tuple[str, int], position: Position) -> set[Key]:
        """The acknowledgements that a stored position has."""
        floor, above, _, _ = position
        mine = {key for key in self.acked if key[:2] == queue}
        return {key for key in mine if key[2] < floor or any(a <= key[2] < b for a, b in above)}

    def queue_seat(self, seat: int) -> tuple[str, int]:
        row = self.broker.log.restore().subs[seat]  # type: ignore[index]
        return self.names[row.session], row.number

    def answer(self, client: Client, always: bool = False) -> None:
        queues = [queue for queue, offsets in sorted(client.open.items()) if offsets]
        if not queues:
            return
        queue = queues[self.draw(len(queues))]
        offsets = sorted(client.open[queue])
        assert client.connection is not None
        if not always and self.draw(4) == 0:
            failed = offsets[self.draw(len(offsets))]
            free = queue in (2, SHARED)
            opened, late = client.open[queue], self.draw(4) == 0
            attempt = opened[failed] - late
            if not late:  # otherwise nothing happens
                client.open[queue] = {o: n for o, n in opened.items() if (o != failed if free else o < failed)}
            self.broker.say(client.connection, Nack(QueueNumber(queue), ((Offset(failed), attempt),), "no"))
            return
        if always or self.draw(2):
            floor = offsets[-1 if always else self.draw(len(offsets))] + 1
            done = [o for o in offsets if o < floor]
            ranges: tuple[Range, ...] = ()
        else:
            done = [offsets[self.draw(len(offsets))]]
            floor, ranges = 0, ((Offset(done[0]), Offset(done[0] + 1)),)
        for offset in done:
            del client.open[queue][offset]
        name = EVERYBODY if queue == SHARED else client.name
        keys = [(name, queue, offset) for offset in done]
        self.acked.update(keys)
        self.broker.say(client.connection, Ack(QueueNumber(queue), Offset(floor), ranges))

    def crash(self) -> None:
        self.read()
        for client in self.clients:
            client.connection, client.open = None, {}
        self.processed = 0
        self.broker.restart()
        self.acked = set(self.lasting)
        self.seen = dict.fromkeys(self.seen, 1)  # a restarted broker has forgotten how often

    # -- what is checked ------------------------------------------------------------------------------

    def read(self) -> None:
        while self.processed < len(self.broker.sent):
            to, message = self.broker.sent[self.processed]
            self.processed += 1
            client = next(each for each in self.clients if each.name == to.split(".")[0])
            self.hear(client, to, message)
        for client in self.clients:
            if client.connection in self.broker.closed:
                client.connection = None

    def hear(self, client: Client, to: str, message: object) -> None:
        match message:
            case Welcome() if client.connection == to:
                client.sequence, client.epoch = message.pub_seq, message.pub_epoch
                self.check_confirmed(client, message.pub_epoch, message.pub_seq)
            case Published():
                self.check_confirmed(client, message.pub_epoch, message.upto)
            case Refused() if client.connection == to:
                while self.broker.persists:
                    self.commit()
                client.epoch, client.sequence = message.pub_epoch + 1, 0
                self.broker.say(to, NewEpoch(client.epoch))
            case Deliver():
                self.check_delivery(client, message)
                if client.connection == to:
                    client.open.setdefault(message.queue, {})[message.offset] = message.attempt

    def check_confirmed(self, client: Client, epoch: int, upto: int) -> None:
        mine = {o[2] for o, _ in self.stored.values() if self.names[o[0]] == client.name and o[1] == epoch}
        assert mine == set(range(1, upto + 1)) or set(range(1, upto + 1)) <= mine

    def check_delivery(self, client: Client, message: Deliver) -> None:
        attributes = read_head(bytes(message.head)).attributes
        assert self.stored[message.offset][1] == attributes
        shared = message.queue == SHARED
        name = EVERYBODY if shared else client.name
        key = name, int(message.queue), int(message.offset)
        assert key not in self.acked, "an acknowledged event returned"
        holders = [each for each in self.clients if message.offset in each.open.get(message.queue, ())]
        assert not shared or not any(each.connection for each in holders), "two consumers have one event"
        for number in [SubNumber(0)] if shared else message.numbers:
            held = [text for first, text in self.lives[name, number] if first <= message.offset]
            assert held
            assert held[-1] is not None
            assert matches(parse(held[-1]), attributes), "delivered what does not match at its offset"
            seen = name, int(message.queue), int(number), int(message.offset)
            assert message.attempt > self.seen.get(seen, 0), "came again without a higher attempt"
            self.seen[seen] = message.attempt

    def drain(self) -> None:
        """All clients come back and acknowledge everything, until nothing is left."""
        for _ in range(300):
            for client in self.clients:
                if client.connection is None:
                    self.connect(client)
                self.broker.do(self.broker.core.resumed(ConnectionId(str(client.connection)), self.broker.now))
                self.answer(client, always=True)
                if EVERYBODY in (name for name, _ in self.lives):
                    self.broker.say(str(client.connection), Subscribe(SubNumber(9), "x >= 2", SHARED, share="work"))
            while self.broker.persists:
                self.commit()
            self.read()
            self.broker.wait(200)
            self.read()
        assert not any(offsets for client in self.clients for offsets in client.open.values())
        self.broker.take(self.broker.core.store_floors(self.broker.now))
        while self.broker.persists:
            self.commit()
        kept = {self.queue_seat(row.seat) for row in self.broker.log.restore().subs.values() if not row.filter}
        assert {key for key in self.acked if key[:2] in kept} <= self.lasting, "an acknowledgement was not stored"
        self.check_complete()

    def check_complete(self) -> None:
        """Every stored event reached every subscription that wanted it and still is there."""
        for (name, number), lives in self.lives.items():
            ends = [place for place, (_, text) in enumerate(lives) if text is None]
            current = lives[ends[-1] + 1 :] if ends else lives
            for offset, (_, attributes) in self.stored.items():
                held = [text for first, text in current if first <= offset]
                if held and held[-1] is not None and matches(parse(held[-1]), attributes):
                    assert any((name, queue, number, offset) in self.seen for queue in range(10)), "lost"
        orders: dict[tuple[int, int], int] = {}
        for offset, ((session, epoch, sequence), _) in sorted(self.stored.items()):
            assert sequence == orders.get((session, epoch), 0) + 1, f"stored out of order at {offset}"
            orders[session, epoch] = sequence
        assert not self.broker.core.check()


@pytest.mark.parametrize("seed", range(4 * EXAMPLES))
def test_random_clients_lose_nothing(seed: int) -> None:
    world = World(seed)
    for _ in range(250):
        world.step()
    world.drain()
