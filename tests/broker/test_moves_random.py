"""Clients that move at random between brokers on a random tree, which are cut, crashed and slow.

One seed is one interleaving: links, disks and clients go on in a random order. At the end each client has had every
event that it must have, once and in the order of its publisher; every session is at one broker; nothing is left over.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from broker.moving import Mover, in_small_parts, network_of
from broker.network import Network, Node
from broker.test_links_random import SCHEMA
from weft.broker.limits import ClientLimits
from weft.broker.moves.states import MoveState
from weft.protocol.messages import Advertise, Complete, Publish, Published, Refused
from weft.routing import MODELS

SEEDS = int(os.environ.get("MOVE_SEEDS", "12"))
LIMITS = ClientLimits(slice=2, link_frames=3, link_events=4, turn=5, tail=2_000, window_events=5, ack_delay=10_000)
SECOND = 1_000_000


class RandomMover(Mover):
    """A client whose messages arrive when its turn comes, and that publishes again what is not confirmed."""

    def __init__(self, network: Network, name: str, home: str, wants: int | None, promises: bool) -> None:
        self.made: list[dict[str, int]] = []
        self.confirmed = 0
        self.sent = 0  # on this connection
        self.wants, self.promises = wants, promises
        self.complete = False
        self.asked = False
        super().__init__(network, name, home)

    @property
    def is_there(self) -> bool:
        return bool(self.connection) and self.connection in self.network[self.home].alive

    def act(self) -> None:
        """Look what has come, answer, and send what is to be sent."""
        before = self.connection
        self.look()
        if self.connection != before and self.connection:
            self.sent = self.confirmed = max(self.confirmed, self.welcome.pub_seq)
            self.asked = False
        if not self.is_there:
            return
        messages = self.network[self.home].messages(self.connection)
        for message in messages:
            if isinstance(message, Published):
                self.confirmed = max(self.confirmed, message.upto)
            if isinstance(message, Complete):
                self.complete = True
        if any(
            isinstance(message, Refused) for message in messages
        ):  # by a full log: it comes again, and publishes again
            self.network[self.home].cut(self.connection)
            return
        if not self.complete and not self.asked:
            self.asked = True
            there = self.welcome.subscriptions
            if self.promises:
                self.say(Advertise(1, "TRUE"))
            if self.wants is not None and 1 not in there:
                self.subscribe(1, f"x < {self.wants}")
            elif self.wants is not None:
                self.complete = True
        for at in range(self.sent, len(self.made)):
            self.say(Publish.of(at + 1, self.made[at], b"%s %d" % (self.name.encode(), at + 1)))
            self.sent = at + 1


class LossyNode(Node):
    """A broker that knows which of its connections are there."""

    def start(self, log: Any = None) -> None:
        self.alive: set[str] = set()
        super().start(log)

    def connect(self, *names: str, **options: Any) -> None:
        self.alive |= {*names}
        super().connect(*names, **options)

    def cut(self, name: str) -> None:
        self.alive.discard(name)
        super().cut(name)

    def close(self, connection: Any) -> None:
        self.alive.discard(connection)
        super().close(connection)


class World:
    def __init__(self, seed: int, model: str, advertised: bool, faults: bool) -> None:
        self.rng = rng = Random(seed)
        names = [chr(97 + n) for n in range(rng.randint(2, 5))]
        options = {"model": model, "schema": SCHEMA, "advertised": advertised, "limits": LIMITS, "checked": False}
        self.network = network_of(*names, make_broker=LossyNode, chained=False, **options)
        self.edges = [(names[rng.choice((n - 1, rng.randrange(n)))], names[n]) for n in range(1, len(names))]
        for edge in self.edges:
            self.network.link(*edge)
        self.network.settle()
        self.faults, self.names = faults, names
        self.count: Counter[str] = Counter()
        self.due: dict[str, list[bytes]] = {}
        self.movers = [
            RandomMover(self.network, f"c{n}", rng.choice(names), rng.choice((None, 3, 5, 8, 8)), advertised)
            for n in range(rng.randint(2, 4))
        ]
        for _ in range(30):
            for mover in self.movers:
                mover.act()
            self.network.wait(100_000)
        assert all(mover.complete or mover.wants is None for mover in self.movers)
        for node in self.network.brokers.values():
            node.at_once = False
        self.pace = {name: rng.choice((1.0, 0.3, 0.05)) for name in names}
        self.speed = {edge: rng.choice((1.0, 1.0, 0.3, 0.05)) for edge in self.edges}

    # -- steps ------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Let the next thing on a random wire arrive."""
        network = self.network
        ends = list(dict.fromkeys(end for end, _ in network.in_flight))
        if ends:
            end = self.rng.choice(ends)
            at = next(at for at, each in enumerate(network.in_flight) if each[0] == end)
            data = network.in_flight[at][1]
            del network.in_flight[at]
            network.arrive(end, data)

    def step(self) -> None:
        rng, network = self.rng, self.network
        what = rng.random()
        name = rng.choice(self.names)
        node = network[name]
        if what < 0.5:
            self.arrive()
        elif what < 0.65:
            if node.is_due:
                node.tick()
        elif what < 0.85:
            if node.driver.waiting and rng.random() < self.pace[name]:
                network.commit(name)
        elif what < 0.9:
            for each in network.brokers.values():
                each.pass_time(rng.choice((100, 1_000, 20_000)))
        else:
            self.act(rng.choice(self.movers))

    def act(self, mover: RandomMover) -> None:
        mover.act()
        if mover.pending is not None and mover.pending[0] not in self.network[mover.pending[1]].alive:
            mover.pending = None
        if mover.pending is None and not mover.is_there and self.rng.random() < 0.5:
            mover.connection = ""
            mover.greet(self.rng.choice([mover.home, *self.names]))

    def operate(self) -> None:
        rng, network = self.rng, self.network
        what = rng.choices(
            ("publish", "move", "crash", "cut", "refuse"),
            (10, 3, *((1, 1, 0.5) if self.faults else (0, 0, 0))),
        )[0]
        self.count[what] += 1
        mover = rng.choice(self.movers)
        if what == "publish":
            for _ in range(rng.choice((1, 1, 3))):
                mover.made.append({"x": rng.randrange(8), "y": 0})
        elif what == "move":
            if rng.random() < 0.5 and mover.is_there:
                mover.network[mover.home].cut(mover.connection)
                mover.connection = ""
            if mover.pending is None or rng.random() < 0.3:
                mover.greet(rng.choice(self.names))
        elif what == "crash":
            busy = [
                name
                for name in self.names
                if (moves := network[name].core._moves).asking
                or moves.departures.left
                or moves.arrivals.arriving
                or moves.arrivals.finishing
            ]
            name = rng.choice(busy if busy and rng.random() < 0.7 else self.names)
            for session in [*network[name].core._moves.arrivals.arriving.values()]:
                self.count[f"crash while {session.state.value}"] += 1
            self.count["crash after the cut"] += bool(network[name].core._moves.departures.left)
            network.crash(name)
        elif what == "cut":
            network.cut(*rng.choice(self.edges))
        elif what == "refuse":
            node = network[rng.choice(self.names)]
            if node.driver.waiting:
                node.reject()

    def mend(self) -> None:
        for one, other in self.edges:
            linked = any(
                (near.broker, far.broker) in ((one, other), (other, one)) for near, far in self.network.wires.items()
            )
            if not linked:
                self.network.dial(one, other)

    def run(self, operations: int = 40) -> None:
        for _ in range(operations):
            for _ in range(self.rng.randrange(40)):
                self.step()
            self.operate()
            if self.rng.random() < 0.3:
                self.mend()
        for node in self.network.brokers.values():
            node.at_once = True
            node.follow_up()
        quiet = 0
        for _ in range(200):
            self.mend()
            had = sum(len(mover.done) for mover in self.movers)  # also what it has had before
            for mover in self.movers:
                self.act(mover)
            self.network.wait(200_000)
            quiet = quiet + 1 if self.is_quiet() and had == sum(len(mover.done) for mover in self.movers) else 0
            if quiet == 3:
                break
        self.judge()

    def is_quiet(self) -> bool:
        for node in self.network.brokers.values():
            moves = node.core._moves
            if moves.asking or moves.departures.left or moves.arrivals.arriving or moves.arrivals.finishing:
                return False
        return all(each.is_there and each.pending is None and each.confirmed == len(each.made) for each in self.movers)

    def judge(self) -> None:
        assert self.is_quiet(), self.describe()
        published = {
            b"%s %d" % (mover.name.encode(), at + 1): event
            for mover in self.movers
            for at, event in enumerate(mover.made)
        }
        for mover in self.movers:
            homes = [name for name in self.names if self.network[name].core._moves.state(mover.id) is MoveState.HOME]
            assert homes == [mover.home], f"{mover.name} is at {homes}, and its client at {mover.home}"
            wanted = (
                [] if mover.wants is None else [uid for uid, event in published.items() if event["x"] < mover.wants]
            )
            times = Counter(mover.shown)
            assert not [uid for uid in wanted if not times[uid]], f"{mover.name} lost some"
            assert not [uid for uid, number in times.items() if number > 1], f"{mover.name} had some twice"
            assert {*times} <= {*wanted}
            for other in self.movers:
                mine = [int(uid.split()[1]) for uid in mover.shown if uid.startswith(other.name.encode())]
                assert mine == sorted(mine), f"{mover.name} had events of {other.name} out of order"
        for name, node in self.network.brokers.items():
            node.core.check()
            last: dict[int, int] = {}
            for group in node.log.read(1, 1 << 40):
                for publisher, _, sequence in group.events.origins.tolist():
                    if publisher > 0:
                        assert sequence > last.get(publisher, 0), f"the log of {name} is out of order"
                        last[publisher] = sequence
            state = node.log.restore()
            assert {sub.session for sub in state.subs.values()} <= {*state.sessions}, "rows are left over"
        self.network.check()

    def describe(self) -> str:
        """What every broker and client is waiting for."""
        found = []
        for name, node in self.network.brokers.items():
            moves = node.core._moves
            arrivals = [*moves.arrivals.arriving.values(), *moves.arrivals.finishing.values()]
            asking = [(each.name, each.epoch, each.brokers) for each in moves.asking.values()]
            arriving = [(each.session.name, each.epoch, each.state.value, each.peer, each.phase) for each in arrivals]
            found.append(f"{name}: asks {asking}, left {[*moves.departures.left]}, arriving {arriving}")
        for each in self.movers:
            where = f"{each.home}, {each.connection} {each.is_there}, pending {each.pending}"
            found += [f"{each.name}: {where}, {each.confirmed} of {len(each.made)}"]
        return "\n".join(found)


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_twice_or_out_of_order(seed: int, faults: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    if seed % 2:
        in_small_parts(monkeypatch)
    World(seed, rng.choice([*MODELS]), rng.random() < 0.4, faults).run()
