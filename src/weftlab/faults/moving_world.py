"""Brokers and clients that move between them under faults, from a plan; and the oracle, which follows events by name.

At the end, when everything is mended: each client has been shown every event that its subscription matches, once, in
the order of its publisher; each session is at one broker, where its client is; every log has each event once and in
order, copies apart; and nothing is left over of any move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from weft.broker.broker import Core
from weft.broker.limits import ClientLimits
from weft.broker.moves.states import MoveState
from weft.errors import LocalProtocolError
from weft.log.base import Offset, State
from weft.log.memory import MemoryLog
from weftlab.engine import Engine
from weftlab.faults.access_book import AccessBook
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.moving_client import MovingClient
from weftlab.faults.oracle import Oracle
from weftlab.faults.plan import DRASTIC, Plan, Step
from weftlab.faults.shape import EVEN
from weftlab.faults.steps import FILTERS, draw_event
from weftlab.faults.trace import RunTrace
from weftlab.faults.trunk import Trunk
from weftlab.faults.violation import require
from weftlab.faults.world import LINK_LIMITS, QUEUE_LIMITS, RunOutcome

_WARM_UP = 30_000_000  # simulated microseconds within which everything must be complete
_HEAL = 240_000_000  # within which every move must end
_DOWN = 30_000  # that a broker is down, at most
_APART = 200_000  # that a link is, at most
_LONG_DOWN = 1_500_000  # that a broker is down that is abandoned
_HOUR = 3_600_000_000


class MovingWorld:
    """Brokers, clients that move, and what happens to them."""

    def __init__(self, plan: Plan, **limits: int) -> None:
        self.plan, self.engine, self.trace = plan, Engine(), RunTrace()
        shape, rng = plan.shape, Random(plan.seed ^ 0x5EED)
        self._ids, self._uids = Random(plan.seed ^ 0x1D5), 0
        self.is_drastic = bool(plan.faults & {*DRASTIC})
        self._probed = 0  # the last event before those that everybody must get, whatever has happened
        self._restored, self._is_healing = 0, False
        drawn: dict[str, Any] = {name: rng.choice(choices) for name, choices in QUEUE_LIMITS.items()}
        drawn |= {name: rng.choice(choices) for name, choices in LINK_LIMITS.items()}
        drawn |= {"link_silence": 4 * drawn["heartbeat"], "changes": drawn["slice"], "lag": 1 << 40, **limits}
        self.limits = replace(ClientLimits(run=2, run_behind=2), **drawn)
        self.brokers = [self._broker(name, Random(rng.getrandbits(64))) for name in shape.names]
        stored, repeats = self.brokers[0].oracle.stored, set[str]()
        for broker in self.brokers:
            broker.sync_within = rng.choice((1_500, 1_500, 20_000))
            broker.oracle.repeats, broker.oracle.stored = repeats, stored  # a publisher goes on elsewhere
        ends = [(self.brokers[near], self.brokers[far], role) for near, far, role in shape.links]
        self.trunks = [Trunk(*each, self.engine, Random(rng.getrandbits(64)), self.trace) for each in ends]
        for broker in self.brokers:
            broker.start()
        by_name = {broker.name: broker for broker in self.brokers}
        self.clients = []
        for number in range(plan.clients):
            home = self.brokers[shape.homes[number % len(shape.homes)]]
            wanted = rng.choice((*FILTERS, "TRUE", "")) if number else "TRUE"
            place = f"client{number}", self.engine, Random(rng.getrandbits(64)), self.trace, home, by_name
            self.clients.append(MovingClient(*place, wanted, shape.advertised, self.is_drastic))
        self.events: dict[str, dict[str, object]] = {}

    def _broker(self, name: str, rng: Random) -> BrokerProcess:
        shape = self.plan.shape

        def make(log: MemoryLog, state: State) -> Core:
            return Core(
                log,
                state,
                shape.make_table(),
                draw=lambda: self._ids.getrandbits(63),
                schema=shape.schema,
                limits=self.limits,
                advertised=shape.advertised,
                name=name,
                predicates=EVEN,
            )

        return BrokerProcess(
            name, self.engine, rng, self.trace, Oracle(AccessBook()), MemoryLog(f"log-{self.plan.seed}-{name}"), make
        )

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Everything that was planned, then mending, then the final checks."""
        outcome = RunOutcome(self.plan, self.trace)
        with outcome.judged(self.engine):
            self._until(_WARM_UP, "the warm-up")
            begun = self.engine.now
            for step in self.plan.steps:
                self.engine.at(begun + 1 + step.time, lambda step=step: self._do(step))  # type: ignore[misc]
            self.engine.run(until=begun + max((step.time for step in self.plan.steps), default=0) + 2)
            self._heal()
            self._judge()
        for broker in self.brokers:
            broker.count_core()
        outcome.events, outcome.deliveries = len(self.events), sum(len(client.shown) for client in self.clients)
        return outcome

    def _until(self, micros: int, what: str) -> None:
        end, quiet = self.engine.now + micros, 0
        while self.engine.now < end and quiet < 3:
            self.engine.run(until=self.engine.now + 100_000)
            quiet = quiet + 1 if not any(self._open_ends()) else 0
        left = next(self._open_ends(), "")
        require(not left, f"after {what} something is not done: {left}")

    def _do(self, step: Step) -> None:
        client, rng = self.clients[step.client % len(self.clients)], Random(step.draw)
        broker = self.brokers[step.draw % len(self.brokers)]
        self.trace.count(f"step: {step.what}")
        self.trace.say(self.engine.now, "world", f"{client.name}: {step.what}")
        match step.what:
            case "publish":
                for _ in range(rng.choice((1, 1, 3))):
                    self._publish(client, rng)
            case "move":
                client.move(broker.name, rng.random() < 0.7)
            case "both move":
                for each in rng.sample(self.clients, 2):
                    each.move(rng.choice(self.brokers).name, patient=True)
            case "move on":
                client.move(broker.name, patient=True)
                again = rng.choice(self.brokers).name
                self.engine.after(1 + rng.randrange(40_000), lambda: client.move(again, patient=True))
            case "invite":
                self._invite(client, rng)
            case "change":
                client.change(rng.choice(FILTERS))
            case "trim":
                broker.trim()
            case "stop acknowledging":
                client.acking = False
                self.engine.after(1 + rng.randrange(300_000), lambda: setattr(client, "acking", True))
            case _:
                self._fault(step.what, client, broker, rng)
        for process in self.brokers:
            if process.core is not None:
                process.core.check()

    def _invite(self, client: MovingClient, rng: Random) -> None:
        """The network moves a client."""
        to = rng.choice(self.brokers).name
        for broker in self.brokers:
            if broker.core is not None:
                try:
                    broker.do(broker.core.invite, client.name, to, f"weft+tls://{to}:9338")
                except LocalProtocolError:
                    continue
                self.trace.count("op: invited")

    def _fault(self, what: str, client: MovingClient, broker: BrokerProcess, rng: Random) -> None:
        connection, trunk = client.process.connection, rng.choice(self.trunks)
        match what:
            case "crash":
                self._crash(broker, rng)
            case "crash in a move":
                busy = [each for each in self.brokers if each.core is not None and self._is_moving(each.core)]
                self._crash(rng.choice(busy or self.brokers), rng)
            case "commit refused":
                broker.log.fail_commits(rng.randint(1, 3))
            case "sync failed":
                broker.log.fail_syncs()
            case "quota":
                broker.log.quota = broker.log.size() + rng.randrange(2_000)
                self.engine.after(200_000, lambda: setattr(broker.log, "quota", None))
            case "clock jump":
                broker.skew += rng.choice((-_HOUR, -5_000, 5_000, _HOUR))
            case "cut":
                connection.cut()
            case "half open":
                connection.cut(half_open=True)
            case "slow reader":
                connection.pause()
                self.engine.after(1 + rng.randrange(300_000), connection.resume)
            case "abandon":
                self._abandon(client, rng)
            case "detach on the path":
                if trunk.attached:
                    trunk.detach()
                    self.engine.after(1 + rng.randrange(_APART), lambda: self._attach(trunk))
            case "restore backup":
                if broker.core is not None and not broker.is_committing:
                    self._restored += 1
                    copy = broker.log.backup(f"{broker.log.log_id}.{self._restored}")
                    self.engine.after(1 + rng.randrange(4 * _APART), lambda: self._restore(broker, copy))
            case "log lost":
                self._lose_log(rng)
            case "link cut":
                trunk.cut()
            case "link half open":
                trunk.cut(half_open=True)
            case "partition":
                trunk.separated += 1
                trunk.cut(half_open=rng.random() < 0.5)
                self.engine.after(1 + rng.randrange(_APART), lambda: setattr(trunk, "separated", 0))

    def _abandon(self, client: MovingClient, rng: Random) -> None:
        """The broker of a client dies for a while, and the client goes on without it at another one."""
        others = [each for each in self.brokers if each is not client.broker]
        if client.broker.core is not None and others:
            client.broker.crash(why="it is abandoned")
            self.engine.after(1 + rng.randrange(_LONG_DOWN), client.broker.start)
        client.move(rng.choice(others).name, patient=True, abandon=rng.choice((0, 50_000, 200_000)))

    def _restore(self, broker: BrokerProcess, copy: MemoryLog) -> None:
        """A broker that has nobody's session now goes on with an older log, in which it may have had some."""
        moving = any(each.core is None or self._is_moving(each.core) for each in self.brokers)
        if (
            self._is_healing
            or moving
            or broker.core is None
            or broker.core._sessions.by_name
            or any(self._is_at(broker))
        ):
            return
        self.trace.count("op: backup restored")
        broker.oracle.repeats.update(self.events)
        broker.rewind(copy)

    def _lose_log(self, rng: Random) -> None:
        """A broker to which a session is moving, if there is one, loses its disk."""
        running = [each for each in self.brokers if each.core is not None and not each.is_committing]
        busy = [each for each in running if each.core is not None and each.core._moves.arrivals.arriving]
        if not running or self._is_healing:
            return
        broker = rng.choice(busy or running)
        self.trace.count("op: log lost in a move" if busy else "op: log lost")
        self._restored += 1
        broker.oracle.repeats.update(self.events)
        broker.rewind(MemoryLog(f"log-{self.plan.seed}-{broker.name}.{self._restored}"))

    def _attach(self, trunk: Trunk) -> None:
        """Two brokers are neighbours again, once both know that they were not."""
        if trunk.is_detached:
            trunk.attach()
        elif not trunk.attached:
            self.engine.after(20_000, lambda: self._attach(trunk))

    def _is_at(self, broker: BrokerProcess) -> Iterator[bool]:
        for client in self.clients:
            yield client.broker is broker

    def _visit(self) -> None:
        """Clients come by where a restored broker believes that it has their sessions."""
        for client in self.clients:
            welcome = client.process.session.welcome
            for broker in self.brokers:
                if broker is client.broker or welcome is None:
                    continue
                if self._state(broker, welcome.session) is MoveState.HOME:
                    self.trace.count("op: visit")
                    client.move(broker.name, patient=True)
                    self._until(_HEAL, "a visit")

    def _probe(self) -> None:
        """Each client publishes once more: this everybody gets."""
        self._probed = self._uids
        for client in self.clients:
            self._publish(client, Random(self._uids))
        self._until(_HEAL, "the last events")

    def _publish(self, client: MovingClient, rng: Random) -> None:
        self._uids += 1
        uid, attributes = f"{client.name}:{self._uids}", draw_event(rng)
        self.events[uid] = attributes
        if self.is_drastic:  # a publisher that goes on without its broker sends again what was not confirmed
            self.brokers[0].oracle.repeats.add(uid)
        client.publish(uid, attributes)

    def _crash(self, broker: BrokerProcess, rng: Random) -> None:
        if broker.core is not None:
            moves = broker.core._moves
            for arrival in moves.arrivals.arriving.values():
                self.trace.count(f"crash of b: {arrival.state.value}")
            self.trace.count("crash of b: asking", bool(moves.asking))
            self.trace.count("crash of a after the cut", bool(moves.departures.left))
        broker.crash(why="killed")
        self.engine.after(1 + rng.randrange(_DOWN), broker.start)

    @staticmethod
    def _is_moving(core: Core) -> bool:
        moves = core._moves
        left = [each for each in moves.departures.left.values() if not each.body.lost]  # its client has begun anew
        return bool(moves.asking or left or moves.arrivals.arriving or moves.arrivals.finishing)

    # -- the end ---------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No more faults: every move must end."""
        self._is_healing = True
        self.trace.say(self.engine.now, "world", "faults end")
        for broker in self.brokers:
            broker.log.quota = None
            broker.log.fail_commits(-broker.log._refused_commits)
            broker.start()
        for trunk in self.trunks:
            trunk.separated = 0
            self._attach(trunk)
            trunk.resume()
        for client in self.clients:
            client.mend()
        if self.is_drastic:
            self._probed = self._uids  # nothing before is promised
        self._until(_HEAL, "healing")
        if self.is_drastic:
            self._visit()
            self._probe()

    def _open_ends(self) -> Iterator[str]:
        for broker in self.brokers:
            if broker.core is None:
                yield f"{broker.name} is down"
            elif self._is_moving(broker.core):
                yield f"{broker.name} has not finished a move"
        for client in self.clients:
            yield from client.unfinished()
            lacking = self._due(client) - {*client.shown}
            if lacking:
                yield f"{client.name} lacks {len(lacking)} events, among them {min(lacking)}"
        for trunk in self.trunks:
            if not trunk.attached:
                yield f"{trunk.near.name} and {trunk.far.name} are not neighbours yet"
                continue
            for one, other in ((trunk.near, trunk.far), (trunk.far, trunk.near)):
                if one.core is not None and (behind := one.behind(other.name)):
                    yield behind

    def _due(self, client: MovingClient) -> set[str]:
        if not hasattr(self, "events"):
            return set()
        uids = self.events.items()
        return {uid for uid, event in uids if int(uid.split(":")[1]) > self._probed and client.wants(event)}

    def _judge(self) -> None:
        order = {uid: at for client in self.clients for at, uid in enumerate(client.stored)}
        for client in self.clients:
            unwanted = [uid for uid in client.shown if not client.wants(self.events[uid])]
            require(not unwanted, f"{client.name} was shown {unwanted}, which it does not want")
            last: dict[str, int] = {}
            for uid in client.shown if not self.is_drastic else ():
                publisher = uid.split(":")[0]
                right = order[uid] >= last.get(publisher, 0)
                require(right, f"{client.name} was shown {uid} out of order")
                last[publisher] = order[uid]
            welcome = client.process.session.welcome
            assert welcome is not None
            homes = [each.name for each in self.brokers if self._state(each, welcome.session) is MoveState.HOME]
            require(homes == [client.broker.name], f"{client.name} is at {client.broker.name}, its session at {homes}")
        for broker in self.brokers:
            assert broker.core is not None
            broker.core.check()
            stored = Counter(
                bytes(payload)
                for group in broker.log.read(Offset(1), 1 << 62)
                for payload, origin in zip(group.events.payloads, group.events.origins.tolist(), strict=True)
                if origin[0] > 0
            )
            twice = [uid for uid, times in stored.items() if times > 1 and not self.is_drastic]
            require(not twice, f"{broker.name} has stored {twice} twice")
            state = broker.log.restore()
            lost = {key for key, each in broker.core._moves.departures.left.items() if each.body.lost}
            left = {sub.session for sub in state.subs.values()} - {*state.sessions} - {session for session, _ in lost}
            require(not left, f"{broker.name} has rows of sessions {left} that are not there")
            require(
                not [
                    row for row in state.moves.values() if row.side in (1, 2) and (row.session, row.epoch) not in lost
                ],
                f"{broker.name} has rows of moves",
            )

    @staticmethod
    def _state(broker: BrokerProcess, session: Any) -> MoveState:
        assert broker.core is not None
        return broker.core._moves.state(session)
