"""Every cell of the table of moves: each message in each state, sent twice."""

from __future__ import annotations

from typing import Any

import pytest

from broker.moving import Mover, network_of, settle
from broker.network import Network, Node
from weft.broker.moves.states import REACTIONS, MoveState, Reaction
from weft.log.base import Offset, SessionId
from weft.log.memory import MemoryLog
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Bye, Gap
from weft.protocol.move_messages import (
    AnyMove,
    MoveChunk,
    MoveClaim,
    MoveDone,
    MovedQueue,
    MovedSession,
    MovedSubscription,
    MoveElsewhere,
    MoveEnd,
    MoveFinish,
    MoveFlush,
    MoveInvite,
    MovePull,
    MoveRefused,
    MoveRequest,
    MoveUnknown,
    decode_move,
    encode_move,
)

OF_A_MOVE = [MoveRequest, MovedSession, MoveFlush, MoveEnd, MovePull, MoveChunk, MoveFinish, MoveDone]


def name_of(each: Any) -> str:
    return str(getattr(each, "__name__", getattr(each, "value", each)))


class Stage:
    """A reader that moves from a to b, held in a state; c is a bystander. Messages of some kinds are kept back."""

    def __init__(self, *kept_back: type[AnyMove]) -> None:
        self.network = network_of("a", "m", "b", "c")
        self.reader, self.writer = Mover(self.network, "r", "a"), Mover(self.network, "p", "m")
        self.reader.subscribe(1, "TRUE")
        settle(self.network, self.reader, self.writer)
        self.writer.publish(x=1)
        self.network.settle()
        self.kept_back, self.held = kept_back, list[tuple[str, LinkRelay]]()
        self.posted: list[AnyMove] = []
        self.claimed = 0  # the epoch under which b claims the session, if it has gone on without a
        for name, node in self.network.brokers.items():
            self._intercept(name, node)

    def _intercept(self, name: str, node: Node) -> None:
        relay = node.core._links.relay

        def intercepted(message: LinkRelay, now: Any) -> bool:
            if message.kind is RelayKind.MOVE and message.source == name:
                self.posted.append(decode_move(message.body))
                if isinstance(self.posted[-1], self.kept_back):
                    self.held.append((message.destination, message))
                    return True
            return relay(message, now)

        node.core._links.relay = intercepted  # type: ignore[method-assign]

    def move(self) -> Stage:
        self.reader.move("b")
        self.writer.publish(x=2)
        self.network.settle()
        self.network.wait(10_000)
        return self

    def deliver(self, name: str, message: AnyMove, source: str, times: int = 2) -> None:
        node = self.network[name]
        for _ in range(times):
            relay = LinkRelay(name, source, encode_move(message), kind=RelayKind.MOVE)
            node.call(lambda now, relay=relay: self._receive(node, relay, now))  # type: ignore[misc]
        self.network.settle()

    @staticmethod
    def _receive(node: Node, relay: LinkRelay, now: Any) -> list[Any]:
        node.core._begin(now)
        node.core._moves.receive(relay, now)
        return node.core._finish(now)

    def deliver_held(self) -> None:
        """Let everything that was kept back arrive, each message twice."""
        self.kept_back = ()
        held, self.held = self.held, []
        for name, relay in held[:1]:
            self.deliver(name, decode_move(relay.body), relay.source)

    def state(self, name: str) -> MoveState:
        if self.network[name].core._moves.arrivals.claim(self.reader.id, self.claimed) is not None:
            return MoveState.CLAIMING
        return self.network[name].core._moves.state(self.reader.id)

    def rows(self, name: str) -> Any:
        self.network.settle()
        state = self.network[name].log.restore()
        return state.moves, state.sessions, {seat: (row.session, row.filter) for seat, row in state.subs.items()}

    def finish(self) -> None:
        """Let it come to an end: everything came once, in order, and nothing is left."""
        self.kept_back = ()
        for _ in range(6):
            settle(self.network, self.reader, self.writer, rounds=1)
            pending = self.reader.pending
            if pending is not None and any(
                isinstance(each, Bye) for each in self.network[pending[1]].messages(pending[0])
            ):
                self.reader.greet("b")
            elif pending is None and self.reader.home != "b":
                self.reader.move("b")
            elif pending is None and not self.network["b"].core._moves.arrivals.finishing:
                break
        self.writer.publish(x=3)
        settle(self.network, self.reader, self.writer, rounds=2)
        shown = sorted(self.reader.shown) if self.claimed else self.reader.shown  # what is claimed comes late
        assert shown == [b"p 1", b"p 2", b"p 3"][: len(shown)]
        assert len(self.reader.shown) == self.writer.published
        states = {name: self.state(name) for name in "ambc"}
        assert states == {"a": MoveState.NONE, "m": MoveState.NONE, "b": MoveState.HOME, "c": MoveState.NONE}
        for name in "ambc":
            core = self.network[name].core
            core.check()
            moves = core._moves
            assert not moves.asking
            assert not moves.departures.left
            assert not moves.arrivals.arriving
            assert not moves.arrivals.finishing


def staged(state: MoveState) -> tuple[Stage, str]:
    """A stage in which the session is in a state, and the broker where it is."""
    match state:
        case MoveState.NONE:
            return Stage(MovedSession).move(), "c"
        case MoveState.ASKING:
            return Stage(MovedSession).move(), "b"
        case MoveState.ARRIVING:
            return Stage(MoveFlush).move(), "b"
        case MoveState.FILLING:
            return Stage(MoveChunk).move(), "b"
        case MoveState.HOME:
            return Stage(MoveFlush).move(), "a"
        case MoveState.CLAIMING:
            stage = Stage(MoveFlush).move()
            claimed = stage.reader.epoch
            stage.kept_back = MoveFlush, MoveEnd
            stage.reader.greet("b", abandon=0)
            stage.network.wait(1_000)
            settle(stage.network, stage.reader, stage.writer, rounds=1)
            assert stage.network["b"].core._moves.arrivals.claim(stage.reader.id, claimed) is not None
            stage.claimed = claimed
            return stage, "b"
    raise AssertionError(state)


def forged(kind: type[AnyMove], session: SessionId, epoch: int) -> AnyMove:
    """A message that nobody has sent: nothing must follow from it but an answer."""
    described = ("r", "", "log of a", Offset(1), 0, 0)
    examples: dict[type[AnyMove], AnyMove] = {
        MoveInvite: MoveInvite(session, epoch, "r", ""),
        MoveRequest: MoveRequest(session, epoch, "r", ""),
        MovedSession: MovedSession(
            session, epoch, 0, 1, *described, (MovedQueue(1, True, 9, False),), (MovedSubscription(1, "TRUE", 1),)
        ),
        MoveFlush: MoveFlush(session, epoch, "log of a", Offset(1), 0),
        MoveEnd: MoveEnd(session, epoch, 1, 0, 0),
        MovePull: MovePull(session, epoch, 0, 0),
        MoveChunk: MoveChunk(session, epoch, 0, 0, 9, True),
        MoveFinish: MoveFinish(session, epoch),
        MoveDone: MoveDone(session, epoch),
        MoveElsewhere: MoveElsewhere(session, epoch, "c"),
        MoveRefused: MoveRefused(session, epoch, "epoch", "no", epoch),
        MoveUnknown: MoveUnknown(session, epoch),
        MoveClaim: MoveClaim(session, epoch),
    }
    return examples[kind]


@pytest.mark.parametrize(("kind", "state"), REACTIONS, ids=name_of)
def test_a_message_of_another_move_changes_nothing(kind: type[AnyMove], state: MoveState) -> None:
    """Of another epoch, and from a broker that has nothing to do with it; twice. The move goes on as if it were not."""
    stage, name = staged(state)
    assert stage.state(name) is state
    rows = stage.rows(name)
    message = forged(kind, stage.reader.id, 1)
    stage.deliver(name, message, "c" if name != "c" else "m")
    assert stage.state(name) is state
    if kind is MoveInvite and state is MoveState.NONE:
        assert {type(each) for each in stage.posted[-4:]} == {MoveRequest, MoveElsewhere}, "it was asked for"
    assert stage.rows(name) == rows
    stage.finish()


# what each cell does with a message of the move itself, where that is not what another test shows
IGNORED = [cell for cell, reaction in REACTIONS.items() if reaction in (Reaction.IGNORE, Reaction.WAIT)]


@pytest.mark.parametrize(("kind", "state"), IGNORED, ids=name_of)
def test_a_message_that_comes_too_late_or_twice_is_ignored(kind: type[AnyMove], state: MoveState) -> None:
    stage, name = staged(state)
    epoch = stage.claimed or stage.reader.epoch
    source = "b" if name == "a" else "a"
    rows, posted = stage.rows(name), len(stage.posted)
    stage.deliver(name, forged(kind, stage.reader.id, epoch), source)
    assert stage.state(name) is state
    assert stage.rows(name) == rows
    assert len(stage.posted) == posted, "nobody is answered"
    stage.finish()


@pytest.mark.parametrize("kind", OF_A_MOVE)
def test_each_message_of_a_move_may_come_late_and_twice(kind: type[AnyMove]) -> None:
    """The first one is kept back until the move waits for it, and then comes twice."""
    stage = Stage(kind).move()
    stage.network.wait(1_000_000)
    assert stage.held
    stage.deliver_held()
    stage.finish()


@pytest.mark.parametrize("kind", OF_A_MOVE)
@pytest.mark.parametrize("name", ["a", "m", "b"])
def test_a_crash_while_a_message_is_on_its_way_is_harmless(kind: type[AnyMove], name: str) -> None:
    stage = Stage(kind).move()
    network: Network = stage.network
    network.crash(name)
    stage._intercept(name, network[name])
    for one, other in (("a", "m"), ("m", "b"), ("b", "c")):
        if name in (one, other):
            network.dial(one, other)
    network.settle()
    for mover in (stage.reader, stage.writer):
        if mover.pending is not None and mover.pending[1] == name:
            mover.greet(name)
        elif mover.pending is None and mover.home == name:
            mover.connection = ""
            mover.greet(name)
            settle(network, mover)
    stage.finish()


def test_a_refusal_while_asking_closes_the_client_and_while_arriving_removes_the_copy() -> None:
    for state in (MoveState.ASKING, MoveState.ARRIVING):
        stage, _ = staged(state)
        assert stage.reader.pending is not None
        stage.deliver("b", MoveRefused(stage.reader.id, stage.reader.epoch, "changed", "it has changed"), "a")
        closed = [each for each in stage.network["b"].messages(stage.reader.pending[0]) if isinstance(each, Bye)]
        assert len(closed) == 1
        assert stage.state("b") is MoveState.NONE
        assert not stage.rows("b")[1]
        stage.finish()


def test_a_broker_is_asked_where_the_session_is_said_to_be() -> None:
    stage, _ = staged(MoveState.ASKING)
    stage.deliver("b", MoveElsewhere(stage.reader.id, stage.reader.epoch, "c"), "a")
    assert stage.network["b"].core._moves.asking[stage.reader.id].brokers[0] in ("a", "c")
    assert MoveElsewhere(stage.reader.id, stage.reader.epoch, "") in stage.posted, "c has answered"
    stage.finish()


def test_two_brokers_ask_and_the_later_one_gets_the_session() -> None:
    stage = Stage(MoveFlush).move()  # b has a copy
    assert stage.state("b") is MoveState.ARRIVING
    stage.kept_back = ()
    stage.reader.greet("c")
    settle(stage.network, stage.reader, stage.writer)
    assert stage.reader.home == "c"
    assert stage.state("c") is MoveState.HOME
    assert stage.state("b") is MoveState.NONE
    stage.reader.move("b")
    stage.finish()


def test_a_broker_whose_log_is_lost_says_so_and_the_client_learns_of_a_gap() -> None:
    stage = Stage(MoveFlush).move()
    network = stage.network
    for near, far in [(near, far) for near, far in network.wires.items() if near.broker == "a"]:
        network._forget(near, far)
        network[far.broker].cut(far.connection)
    network["a"].driver.stop()
    network["a"].start(MemoryLog("another log"))
    network["a"].attach("m")
    network.dial("m", "a")
    network.settle()
    stage._intercept("a", network["a"])
    stage.kept_back = ()
    settle(network, stage.reader, stage.writer)
    assert stage.state("b") is MoveState.HOME
    gaps = [each for each in network["b"].messages(stage.reader.connection) if isinstance(each, Gap)]
    assert len(gaps) == 1
    stage.writer.publish(x=3)
    settle(network, stage.reader, stage.writer)
    assert stage.reader.shown[-1] == b"p 3"


SPOKEN_WHEN_STORED = MovedSession, MoveFlush, MoveEnd, MovePull, MoveFinish, MoveDone


def test_nothing_is_said_before_what_it_says_is_stored() -> None:
    """The epoch before the description, the copy before the marker, the cut before the end."""
    stage = Stage()
    storing: dict[str, bool] = {}
    said: set[AnyMove] = set()
    for name, node in stage.network.brokers.items():
        commit, relay = node.commit, node.core._links.relay

        def committed(number: int = 1, name: str = name, commit: Any = commit) -> Any:
            storing[name] = True
            try:
                return commit(number)
            finally:
                storing[name] = False

        def checked(message: LinkRelay, now: Any, name: str = name, relay: Any = relay) -> bool:
            if message.kind is RelayKind.MOVE and message.source == name:
                found = decode_move(message.body)
                if isinstance(found, SPOKEN_WHEN_STORED) and found not in said:
                    said.add(found)
                    assert storing.get(name), f"{name} says {found} while nothing is being stored"
            return bool(relay(message, now))

        node.commit = committed  # type: ignore[method-assign]
        node.core._links.relay = checked  # type: ignore[method-assign]
    stage.move()
    stage.finish()
    assert {type(each) for each in said} == {*SPOKEN_WHEN_STORED}


def test_the_old_broker_withdraws_nothing_before_the_cut_is_stored() -> None:
    stage = Stage(MoveFlush)
    network, a = stage.network, stage.network["a"]
    stage.reader.move("b", make_before_break=True)
    network.settle()
    told = a.told("m")
    assert told
    a.at_once = False
    stage.kept_back = ()
    relay = stage.held[0][1]
    a.call(lambda now: stage._receive(a, relay, now))
    network.settle(but="a")
    session = a.core._sessions.by_id[stage.reader.id]
    assert session.cutting is not None
    assert a.told("m") == told, "a crash now must not lose what is on its way here"
    assert not [each for each in a.messages(stage.reader.connection) if isinstance(each, Bye)]
    network.crash("a")
    network["a"].at_once = True
    assert stage.state("a") is MoveState.HOME, "the cut is not stored"
    stage._intercept("a", network["a"])
    network.dial("a", "m")
    network.settle()
    stage.reader.connection = ""
    stage.finish()


def test_a_change_by_the_broker_itself_makes_the_marker_void() -> None:
    """Access that is revoked after the session was described: the copy is made again."""
    stage = Stage(MoveFlush).move()
    node = stage.network["a"]
    session = node.core._sessions.by_id[stage.reader.id]
    node.call(lambda now: _changed(node, session, now))
    stage.deliver_held()
    assert stage.state("a") is MoveState.HOME
    assert stage.state("b") is MoveState.NONE, "it was refused"
    stage.finish()


def _changed(node: Node, session: Any, now: Any) -> list[Any]:
    node.core._begin(now)
    node.core._moves.departures.changed(session)
    return node.core._finish(now)


@pytest.mark.parametrize("times", [1, 2])
def test_an_epoch_that_could_not_be_stored_may_be_asked_for_again(times: int) -> None:
    """The log is full when the old broker is asked, however often: the same epoch is answered later."""
    stage = Stage(MoveRequest).move()
    a = stage.network["a"]
    a.at_once = False
    [(_, relay), *_] = stage.held
    for _ in range(times):
        a.call(lambda now: stage._receive(a, relay, now))
    session = a.core._sessions.by_id[stage.reader.id]
    before = session.epoch
    assert session.asked is not None
    while a.driver.waiting:
        a.reject("the quota is used up")
    assert session.asked is None
    assert session.epoch < before
    a.at_once = True
    stage.deliver_held()
    stage.finish()
