"""Where and when a session connects, as a table of sentences: no loop, no sleep, no socket."""

from __future__ import annotations

from random import Random

import pytest

from weft.client.effects import Closed, Dial, HangUp, Lost, Over, Ready, WakeAt
from weft.client.events import outgoing
from weft.client.session import TRANSITIONS, ClientSession, ConnectionPolicy, SessionState
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.errors import ClientClosedError, ConnectError, RemoteProtocolError, RequestError, SessionTakenError
from weft.protocol.addresses import Address
from weft.protocol.messages import Bye, Goodbye, Hello, Ping, Pong, Published, SubNumber, Welcome

SECOND = 1_000_000
A, B, C = (Address("weft", host) for host in "abc")
REFUSED = ConnectError("no broker")


def session(*addresses: Address, name: str = "", draw=lambda: 1.0, **policy) -> ClientSession:
    return ClientSession(name, ConnectionPolicy(addresses or (A,), **policy), draw=draw)


def welcome(idle: int = 0) -> Welcome:
    return Welcome(2, 1, 1, 1, 0, True, (), "log", 1, "", 1 << 20, idle)


def ready(*addresses: Address, now: int = 0, idle: int = 0, **options) -> ClientSession:
    """A session that is welcome on its first connection."""
    made = session(*addresses, **options)
    made.start(now)
    made.opened(1, now)
    made.take()
    made.received(1, [welcome(idle)], now)
    assert made.state is SessionState.READY
    return made


def again(made: ClientSession, now: int) -> None:
    """The connection that it dials is welcome."""
    made.opened(made.connection, now)
    made.take()
    made.received(made.connection, [welcome()], now)


def dials(effects) -> list[Address]:
    return [each.address for each in effects if isinstance(each, Dial)]


def timer(effects) -> int:
    return [each.at for each in effects if isinstance(each, WakeAt)][-1]


def why(effects) -> str:
    (over,) = [each for each in effects if isinstance(each, Over)]
    assert effects[-1] is over, "it is the last effect"
    return str(over.error)


# -- the first connection ----------------------------------------------------------------------------------------


def test_it_dials_says_hello_and_is_ready_when_it_is_welcome():
    made = session(name="alerts")
    assert made.start(0) == [Dial(1, A), WakeAt(10 * SECOND)]
    assert made.take() == []
    assert made.opened(1, 5) == []  # the timer that is set comes first
    assert made.state is SessionState.GREETING
    assert [type(each) for each in made.take()] == [Hello]
    effects = made.received(1, [welcome()], 7)
    assert [type(each) for each in effects if not isinstance(each, WakeAt)] == [Ready]
    made.check()


def test_addresses_are_tried_in_turn_once_and_the_last_failure_is_told():
    made = session(A, B)
    assert dials(made.start(0)) == [A]
    assert dials(made.dial_failed(1, REFUSED, 1)) == [B]
    assert why(made.dial_failed(2, ConnectError("nobody there"), 2)) == "nobody there"
    assert made.state is SessionState.OVER


def test_a_connection_that_does_not_open_in_time_is_given_up():
    made = session(A, B, timeout=3)
    made.start(0)
    assert made.tick(3 * SECOND - 1)[:-1] == []
    assert made.tick(3 * SECOND)[:2] == [HangUp(1), Dial(2, B)]
    assert why(made.tick(6 * SECOND)) == f"{B} does not answer within 3 s"


def test_a_broker_that_does_not_answer_the_hello_is_given_up():
    made = session(timeout=3)
    made.start(0)
    made.opened(1, SECOND)
    effects = made.tick(4 * SECOND)
    assert effects[0] == HangUp(1)
    assert "does not answer within 3 s" in why(effects)


def test_a_broker_that_closes_the_connection_without_welcome_is_quoted():
    made = session()
    made.start(0)
    made.opened(1, 0)
    made.received(1, [Bye("full", "too many clients")], 1)
    assert why(made.closed(1, 2)) == f"{A} closed the connection: too many clients"


@pytest.mark.parametrize(
    ("bye", "error", "reason"),
    [
        (Bye("refused", "no token"), ConnectError, "refuses this client: no token"),
        (Bye("taken over", ""), SessionTakenError, "'alerts'"),
        (Bye("forgotten", ""), ClientClosedError, "was removed"),
    ],
)
def test_what_the_broker_ends_for_good_is_not_tried_again(bye, error, reason):
    made = session(A, B, name="alerts")
    made.start(0)
    made.opened(1, 0)
    assert made.received(1, [bye], 1)[0] == Closed(bye.code, bye.reason, True)
    effects = made.closed(1, 2)
    assert not dials(effects)
    assert reason in why(effects)
    assert type(made.error) is error
    assert getattr(made.error, "code", "") == ("refused" if error is ConnectError else "")


def test_bytes_that_are_not_the_protocol_end_the_session():
    made = session(A, B)
    made.start(0)
    made.opened(1, 0)
    effects = made.broken(1, RemoteProtocolError("a frame of 2 GB"), 1)
    assert effects[0] == HangUp(1)
    assert "does not speak Weft's protocol: a frame of 2 GB" in why(effects)


def test_a_token_function_that_fails_ends_the_session():
    def credentials() -> bytes:
        raise OSError("no such file")

    made = session(credentials=credentials)
    made.start(0)
    effects = made.opened(1, 1)
    assert effects[0] == HangUp(1)
    assert "token= failed: OSError: no such file" in why(effects)


# -- coming back -------------------------------------------------------------------------------------------------


def test_after_a_loss_it_comes_back_at_once_and_then_with_growing_pauses():
    made = ready(A, draw=lambda: 1.0)
    effects = made.closed(1, SECOND)
    assert effects[:2] == [Lost(), Dial(2, A)]
    now, pauses = SECOND, []
    for _ in range(9):
        effects = made.dial_failed(made.connection, REFUSED, now)
        assert made.state is SessionState.PAUSED
        made.check()
        pauses.append(timer(effects) - now)
        now = timer(effects)
        assert dials(made.tick(now)) == [A]
    assert pauses == [50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000, 5_000_000, 5_000_000]


def test_pauses_are_shortened_at_random_to_half_at_least():
    made = ready(draw=lambda: 0.0)
    made.closed(1, 0)
    assert timer(made.dial_failed(2, REFUSED, 0)) == 25_000


def test_all_addresses_are_tried_before_a_pause():
    made = ready(A, B, C)
    assert dials(made.closed(1, 0)) == [A]
    assert dials(made.dial_failed(2, REFUSED, 1)) == [B]
    assert dials(made.dial_failed(3, REFUSED, 2)) == [C]
    assert made.dial_failed(4, REFUSED, 3)[0] == WakeAt(50_003)


def test_connections_that_bring_nothing_make_the_pauses_grow_and_useful_ones_end_them():
    made = ready()
    now = 0
    for wanted in (0, 50_000, 100_000):  # welcome, and lost at once
        effects = made.closed(made.connection, now)
        if wanted:
            assert timer(effects) == now + wanted
            now += wanted
            made.tick(now)
        again(made, now)
    made.publisher.add([outgoing({"x": 1})])
    made.take()
    made.received(made.connection, [Published(1, 1)], now)
    assert dials(made.closed(made.connection, now)) == [A]


def test_it_gives_up_after_the_time_that_the_application_allows():
    made = ready(retry_for=1.0)
    made.closed(1, 0)
    made.dial_failed(2, REFUSED, SECOND)
    made.tick(2 * SECOND)
    assert why(made.dial_failed(3, REFUSED, 2 * SECOND)) == "no broker"


def test_calls_about_an_older_connection_are_ignored():
    made = ready()
    made.closed(1, 0)
    assert made.connection == 2
    for effects in (
        made.opened(1, 1),
        made.received(1, [welcome()], 1),
        made.closed(1, 1),
        made.dial_failed(1, REFUSED, 1),
        made.broken(1, RemoteProtocolError(""), 1),
    ):
        assert effects == []
    assert made.state is SessionState.DIALLING


# -- redirects ---------------------------------------------------------------------------------------------------


def moved(made: ClientSession, address: str, now: int = 0):
    made.opened(made.connection, now)
    made.take()
    assert made.received(made.connection, [Bye("moved", address)], now) == []
    return made.closed(made.connection, now)


def test_a_redirect_is_followed_and_a_loss_there_returns_to_the_addresses():
    made = session(A, B)
    made.start(0)
    assert dials(moved(made, str(C))) == [C]
    again(made, 0)
    assert dials(made.closed(2, 1)) == [A]


def test_redirects_without_end_are_an_error():
    made = session()
    made.start(0)
    for _ in range(5):
        assert dials(moved(made, str(B))) == [B]
    assert "6 redirects in a row" in why(moved(made, str(B)))


def test_a_redirect_never_leads_from_an_encrypted_address_to_a_plain_one():
    made = session(Address("weft+tls", "a"))
    made.start(0)
    assert "which is not encrypted" in why(moved(made, "weft://b"))
    made = session(Address("weft+tls", "a"))
    made.start(0)
    assert dials(moved(made, "weft+tls://b")) == [Address("weft+tls", "b")]


def test_a_redirect_to_nowhere_is_an_error():
    made = session(A, B)
    made.start(0)
    assert "cannot be reached" in why(moved(made, "http://b"))
    made = session(A, B)
    made.start(0)
    moved(made, str(C))
    assert why(made.dial_failed(2, REFUSED, 1)) == "no broker"


# -- heartbeats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idle", "every"), [(0, 10 * SECOND), (6 * SECOND, 2 * SECOND), (60 * SECOND, 10 * SECOND)])
def test_heartbeats_are_as_frequent_as_the_client_or_the_broker_wants(idle, every):
    made = ready(idle=idle)
    now = 0
    for _ in range(3):
        now += every
        made.tick(now - 1)
        assert made.take() == []
        made.tick(now)
        assert made.take() == [Ping(0)]
        made.received(1, [Pong(0)], now)


def test_a_silent_broker_is_given_up_after_three_heartbeats():
    made = ready()
    for beat in range(1, 4):
        assert not dials(made.tick(beat * 10 * SECOND))
    assert made.tick(40 * SECOND)[:3] == [HangUp(1), Lost(), Dial(2, A)]


# -- the end -----------------------------------------------------------------------------------------------------


def test_closing_says_goodbye_when_everything_is_answered():
    made = ready(name="p")
    made.publisher.add([outgoing({"x": 1})])
    made.close(0, SECOND)
    assert [type(each).__name__ for each in made.take()] == ["Publish"]
    assert made.state is SessionState.CLOSING
    made.received(1, [Published(1, 1)], 1)
    assert made.take() == [Goodbye(False)]
    assert made.state is SessionState.LEAVING
    assert made.take() == []
    effects = made.closed(1, 2)
    assert [type(each) for each in effects] == [Lost, Over]
    assert why(effects) == "the client is closed"


def test_closing_takes_so_long_and_no_longer():
    made = ready()
    made.publisher.add([outgoing({"x": 1})])
    made.close(0, SECOND)
    assert made.tick(SECOND - 1)[:-1] == []
    effects = made.tick(SECOND)
    assert effects[0] == HangUp(1)
    assert made.state is SessionState.OVER
    assert len(made.abandon()) == 1


def test_a_session_that_is_to_be_forgotten_says_so_and_knows_when_it_is():
    made = ready(name="temporary")
    made.close(0, SECOND, forget=True)
    assert made.take() == [Goodbye(True)]
    made.received(1, [Bye("forgotten", "")], 1)
    made.closed(1, 1)
    assert made.is_forgotten


def test_a_session_that_the_broker_has_no_room_to_forget_ends_with_that_reason():
    made = ready(name="temporary")
    made.close(0, SECOND, forget=True)
    made.take()
    made.received(1, [Bye("full", "the disk is full")], 1)
    effects = made.closed(1, 1)
    assert why(effects) == "the disk is full"
    assert isinstance(made.error, RequestError)
    assert not made.is_forgotten


@pytest.mark.parametrize("step", range(4))
def test_closing_before_it_is_welcome_ends_it_at_once(step):
    made = session(A)
    calls = [lambda: made.start(0), lambda: made.opened(1, 0)]
    for call in calls[:step]:
        call()
    if step == 3:
        made = ready()
        made.closed(1, 0)
        made.dial_failed(2, REFUSED, 0)
        assert made.state is SessionState.PAUSED
    effects = made.close(1, SECOND)
    assert [each for each in effects if isinstance(each, HangUp)] == ([HangUp(1)] if step in (1, 2) else [])
    assert why(effects) == "the client is closed"
    assert made.close(2, SECOND) == made.start(2) == made.tick(2) == []


def test_a_connection_that_is_lost_while_closing_is_not_tried_again():
    made = ready()
    made.publisher.add([outgoing({"x": 1})])
    made.close(0, SECOND)
    effects = made.closed(1, 1)
    assert not dials(effects)
    assert why(effects) == "the client is closed"


def test_a_session_waits_for_an_older_one_of_its_name():
    older, newer = ready(name="alerts"), session(name="alerts")
    assert newer.start(0, after=older) == []
    assert newer.state is SessionState.NEW
    older.close(0, SECOND)
    older.take()
    (over,) = [each for each in older.closed(1, 1) if isinstance(each, Over)]
    assert over.successors == (newer,)
    assert dials(newer.start(1, after=older)) == [A]


def test_a_failure_ends_the_session_and_is_named():
    made = ready()
    effects = made.fail(ZeroDivisionError("by zero"))
    assert [type(each) for each in effects] == [HangUp, Lost, Over]
    assert why(effects) == "the client failed: ZeroDivisionError: by zero"
    assert made.fail(ZeroDivisionError()) == made.stop() == []


# -- the table of states -----------------------------------------------------------------------------------------


def test_random_lives_take_every_transition_of_the_table_and_no_other():
    taken: set[tuple[SessionState, SessionState]] = set()

    class Watched(ClientSession):
        def _become(self, state: SessionState) -> None:
            taken.add((self.state, state))
            super()._become(state)

    for seed in range(300):
        rng = Random(seed)
        made = Watched("s", ConnectionPolicy((A, B), retry_for=rng.choice([None, 2.0])), draw=rng.random)
        state = SubscriptionState(SubNumber(1), SubscriptionOptions(durable=True), window=9, token=made.token)
        if seed % 2:
            made.subscribe(state, SubscriptionRequest("subscribe", "x > 0"))
        now = alarm = 0
        effects = made.start(now) if seed else made.close(now, SECOND)
        for _ in range(60):
            alarm = max([alarm, *(each.at for each in effects if isinstance(each, WakeAt))])
            now += rng.choice([0, 1_000, SECOND])
            at = made.connection - (rng.random() < 0.1)
            match rng.randrange(12):
                case 0 | 1:
                    effects = made.opened(at, now)
                case 2:
                    effects = made.dial_failed(at, REFUSED, now)
                case 3 | 4:
                    effects = made.received(at, [welcome()], now)
                case 5:
                    code = rng.choice(["moved", "full", "refused"] if rng.random() < 0.2 else ["moved", "full"])
                    effects = made.received(at, [Bye(code, str(C))], now)
                case 6:
                    effects = made.closed(at, now)
                case 7 | 8:
                    now = max(now, alarm)
                    effects = made.tick(now)
                case 9:
                    made.publisher.add([outgoing({"x": 1})])
                    made.received(at, [Published(1, rng.randrange(9))], now)
                case 10 if rng.random() < 0.15:
                    effects = made.close(now, SECOND) if rng.random() < 0.8 else made.stop()
                case _:
                    made.take(rng.choice([1, 100]))
            made.check()
            if made.state is SessionState.OVER:
                break
    assert taken == {(before, after) for before, every in TRANSITIONS.items() for after in every}
