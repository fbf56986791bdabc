"""Steps of clients that ask for what they cannot have, leave for good, or break the protocol; and of the operator who
changes the access rules.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.broker.messages import (
    AskStatus,
    ClientMessage,
    DropDead,
    Explain,
    ListDead,
    QueueNumber,
    Replace,
    RetryDead,
    SubNumber,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from weft.log.base import Offset
from weft.sim.faults.client_steps import Act, draw_event, draw_filter, new_number, new_uid
from weft.sim.faults.consumer import SHARE, SHARED, SHARED_QUEUE
from weft.sim.faults.requests import asked_about

_LONG_FILTER = "x IN (1" + ", 2" * 60 + ")"  # longer than 100 bytes


def publish_outside(act: Act) -> None:
    """An event that was not advertised, or that cannot be an event."""
    uid = new_uid(act)
    if act.rng.random() < 0.3:
        act.client.publisher.publish_oddly(uid)
        return
    event = draw_event(act.rng)
    act.world.network.published(act.client, uid, event)
    act.client.publisher.publish(uid, event)


def subscribe_within_lag(act: Act) -> None:
    """A subscription whose queue may hold little: then it loses events, or its connection."""
    number, durable = new_number(act), act.rng.random() < 0.5 and not act.client.anonymous
    act.client.requests.subscribe(
        Subscribe(
            SubNumber(number),
            draw_filter(act),
            QueueNumber(number),
            durable=durable,
            lag=act.rng.choice((1, 3, 8)),
            disconnect=act.rng.random() < 0.3,
        )
    )


def subscribe_badly(act: Act) -> None:
    """A subscription that cannot be."""
    number, state, limits = SubNumber(new_number(act)), act.client.state, act.client.limits
    own = QueueNumber(number)
    trials: list[tuple[Subscribe, str]] = [
        (Subscribe(number, "x >", own), "filter"),
        (Subscribe(number, "odd(x)", own), "filter"),
        (Subscribe(number, "even(x, 2)", own), "filter"),
        (Subscribe(number, "TRUE", own, durable=False, since=Offset(1)), "since"),
        (Subscribe(number, "TRUE", own, share="others", since=Offset(1)), "since"),
        (Subscribe(number, "TRUE", own, share="others", durable=False), "share"),
        (Subscribe(number, "TRUE", own, share="o" * (limits.name + 1)), "share"),
    ]
    if limits.filter < len(_LONG_FILTER):
        trials.append((Subscribe(number, _LONG_FILTER, own), "filter"))
    if act.client.anonymous:
        trials.append((Subscribe(number, "TRUE", own, durable=True), "durable"))
    for there in [sub for sub in state.subs.values() if sub.stays and not act.client.requests.is_asked(sub.number)]:
        queue = there.queue
        trials.append((Subscribe(there.number, "TRUE", own), "exists"))
        trials.append(
            (Subscribe(number, "TRUE", queue, since=Offset(1)), "queue" if queue == SHARED_QUEUE else "since")
        )
        trials.append((Subscribe(number, "TRUE", queue, share="others"), "queue"))
        trials.append((Subscribe(number, "TRUE", queue, durable=False), "queue"))
        if queue == SHARED_QUEUE:
            trials.append((Subscribe(number, "TRUE", own, share=SHARE), "filter"))
    asked, code = act.rng.choice(trials)
    _try(act, asked, "subscribe", asked.number, code)


def unsubscribe_shared(act: Act) -> None:
    """A consumer of a shared name leaves; the last one takes the queue with it."""
    act.client.requests.unsubscribe(SHARED)


def ask_badly(act: Act) -> None:
    """A request about what is not there, or may not be."""
    number, queue = new_number(act), QueueNumber(new_number(act))
    trials: list[tuple[ClientMessage, str, str]] = [
        (Replace(SubNumber(number), "TRUE"), "replace", "unknown"),
        (Unsubscribe(SubNumber(number)), "unsubscribe", "unknown"),
        (Unadvertise(number), "unadvertise", "unknown"),
        (ListDead(number, queue), "list dead", "unknown"),
        (ListDead(number, queue, session="nobody"), "list dead", "unknown"),
        (RetryDead(number, queue, (Offset(1),), share="nobody"), "retry dead", "unknown"),
        (DropDead(number, queue, (Offset(1),)), "drop dead", "unknown"),
    ]
    for sub in act.client.state.subs.values():
        if sub.accepted and not sub.ended and sub.number == SHARED and not act.client.requests.is_asked(SHARED):
            trials.append((Replace(SHARED, "TRUE"), "replace", "share"))
        elif sub.stays and not act.client.requests.is_asked(sub.number):
            trials.append((Replace(sub.number, "x ="), "replace", "filter"))
    asked, about, code = act.rng.choice(trials)
    _try(act, asked, about, getattr(asked, "number", number), code)


def ask_status(act: Act) -> None:
    """How is the broker, and where would an event go? Only who may know is told."""
    number = new_number(act)
    if number % 2:
        _try(
            act, Explain(number, msgspec.Raw(msgspec.msgpack.encode(asked_about(number)))), "explain", number, "access"
        )
    else:
        _try(act, AskStatus(number, 5), "status", number, "access")


def _try(act: Act, asked: ClientMessage, about: str, number: int, code: str) -> None:
    """Ask for what must fail. A limit, the rules, or the end of the session may forbid it first."""
    client = act.client
    if client.connection.welcomed and (about, number) not in client.state.trials:
        client.state.trials[about, number] = frozenset({code, "leaving", *client.first_refusals})
        client.connection.tell(asked)


def forget(act: Act) -> None:
    """A session is to be removed, with all that is in it."""
    act.client.forget()


def stay_away(act: Act) -> None:
    """A client is gone for so long that its session may expire."""
    act.client.connection.stay_away(act.rng.choice((300_000, 1_200_000, 2_500_000)))


def change_rules(act: Act) -> None:
    """The operator changes the access rules."""
    world, broker = act.world, act.client.broker
    if not world.plan.terms.guarded:
        return
    world.draw_rules(act.rng)
    for client in world.clients:
        client.requests.doubt()
    if broker.core is not None:
        broker.perform(broker.core.set_rules(world.book.rules, broker.now))
        if act.rng.random() < 0.2:
            broker.perform(broker.core.distrust({f"key of {act.client.principal}"}, broker.now))


def hello_badly(act: Act) -> None:
    """The next hello of a client is one that no broker welcomes."""
    lies = ["version", "schema", "name"]
    if act.world.plan.terms.guarded:
        lies.append("credentials")
    if not act.client.anonymous:
        lies.append("epoch")
    act.client.lie = act.rng.choice(lies)
    act.world.trace.count(f"hello with a wrong {act.client.lie}")
    act.client.connection.cut(half_open=False)


def misbehave(act: Act) -> None:
    """A client breaks the protocol."""
    ways = ("garbage", "hello again", "old publisher epoch", "skipped number", "stranger")
    act.client.misbehave(act.rng.choice(ways))


TRIAL_STEPS: dict[str, Callable[[Act], None]] = {
    do.__name__.replace("_", " "): do
    for do in (
        publish_outside,
        subscribe_within_lag,
        subscribe_badly,
        unsubscribe_shared,
        ask_badly,
        ask_status,
        forget,
        stay_away,
        change_rules,
        hello_badly,
        misbehave,
    )
}
