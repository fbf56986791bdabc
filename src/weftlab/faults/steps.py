"""The steps of a run, by the names that they have in its plan: of clients, rude peers and the operator, and faults.

A fault ends by itself, or when all is mended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.client.subscription import SubscriptionOptions
from weft.errors import LocalProtocolError
from weft.log.base import Offset
from weft.protocol import messages as protocol
from weft.protocol.messages import QueueNumber, Replace, SubNumber, Subscribe
from weftlab.faults.client import COMMON, SHARED_QUEUE, SimClient
from weftlab.faults.client_connection import TRAPS
from weftlab.faults.client_watch import SHARE, SHARED
from weftlab.faults.rude_peer import RudeRequest
from weftlab.faults.shape import SPACES
from weftlab.faults.trunk import Trunk

if TYPE_CHECKING:
    from weftlab.faults.broker_process import BrokerProcess
    from weftlab.faults.world import World

FILTERS = (
    "TRUE",
    "x < 4",
    "x BETWEEN 2 AND 5",
    "x = 3",
    "y = 'a'",
    "x >= 3 AND y = 'b'",
    "x < 2 OR y = 'a'",
    "y IS NULL",
)
ONE_FILTERS = (*FILTERS, "even(x)", "even(x) AND y = 'a'")  # of clients of one broker
_LONG_FILTER = "x IN (1" + ", 2" * 60 + ")"  # longer than 100 bytes
_WAYS = ("garbage", "hello again", "old publisher epoch", "skipped number", "stranger", "again", "again", "again")
_DOWN = 30_000  # microseconds that a broker is down, at most
_ALL_DOWN = 60_000  # that several brokers are down, at most
_APART = 300_000  # that a partition or a detachment lasts, at most
_SLOW = 300_000  # that somebody reads nothing, at most
_RESYNC = 8_000  # after which a resync that has begun is cut, at most
_HOUR = 3_600_000_000


class Act(NamedTuple):
    """One step: in which world, to which client or broker, with which draws."""

    world: World
    client: SimClient
    broker: BrokerProcess
    rng: Random
    draw: int

    def later(self, within: int, action: Callable[[], None]) -> None:
        """Do something after a random time."""
        self.world.engine.after(self.rng.randrange(within), action)

    def new_number(self) -> int:
        """A number that no subscription has had."""
        self.world.numbers += 1
        return self.world.numbers

    def new_event(self, attributes: dict[str, object], *, odd: bool = False) -> tuple[str, dict[str, object]]:
        """An event with a name of its own, which the client is about to publish; if it is odd, nobody may store it."""
        self.world.uids += 1
        uid = f"{self.client.name}:{self.world.uids}"
        if not odd:
            self.world.network.published(self.client, uid, attributes)
        return uid, attributes

    def draw_filter(self) -> str:
        """The text of a random filter."""
        return self.rng.choice(FILTERS if self.world.trunks else ONE_FILTERS)

    def draw_sub(self) -> SubNumber | None:
        """A subscription of the client; the shared one stays as it is."""
        live = [number for number, wanted in self.client.wanted.items() if not wanted.ending and number != SHARED]
        return self.rng.choice(live) if live else None


def draw_event(rng: Random) -> dict[str, object]:
    """The attributes of a random event, of 24 possible ones."""
    event: dict[str, object] = {"x": rng.randrange(8)}
    if rng.random() < 0.8:
        event["y"] = rng.choice("ab")
    return event


def do_step(what: str, act: Act) -> None:
    """Do what the plan says: a fault, or a step of a client."""
    rng, broker, connection = act.rng, act.broker, act.client.process.connection
    match what:
        case "crash":  # wherever it is
            broker.crash(why="killed")
            act.later(_DOWN, broker.start)
        case "commit refused":  # the disk is full for some commits
            broker.log.fail_commits(rng.randint(1, 3))
        case "sync failed":  # which ends the process
            broker.log.fail_syncs()
        case "cut":  # perhaps within a frame
            connection.cut()
        case "half open":  # a cut that the broker, or both ends, do not notice
            connection.cut(half_open=True)
        case "take over":  # a client connects a second time
            act.client.take_over()
        case "slow reader":
            connection.pause()
            act.later(_SLOW, connection.resume)
        case "clock jump":  # of UTC
            broker.jumped = True
            broker.skew += rng.choice((-_HOUR, -5_000, 5_000, _HOUR))
        case "quota":  # the log has little room left for a while, and clients ask for things while others publish
            broker.log.quota = broker.log.size() + rng.randrange(2_000)
            act.later(200_000, lambda: setattr(broker.log, "quota", None))  # of the log that it has then
            for _ in range(8):
                act.later(50_000, partial(_ask_and_publish, act))
        case "crash several":  # at once; they come back one after another
            for each in rng.sample(act.world.brokers, rng.randint(2, len(act.world.brokers))):
                each.crash(why="killed, with others")
                act.later(_ALL_DOWN, each.start)
        case "retune":
            _retune(act)
        case "restore backup":
            _restore_backup(act)
        case _ if act.world.trunks:
            _link_step(what, act, act.world.trunks[act.draw % len(act.world.trunks)])
        case _:
            _client_step(what, act)


def _ask_and_publish(act: Act) -> None:
    """Some clients of a broker publish, and another one asks for something at the same time."""
    clients = [each for each in act.world.clients if each.broker is act.broker]
    here = [each for each in clients if each.process.connection.is_welcome]
    if here:
        for client in act.rng.sample(here, len(here)):
            _publish(act._replace(client=client), [draw_event(act.rng)])
        asking = act._replace(client=act.rng.choice(here))
        _client_step(act.rng.choice(("subscribe", "replace", "unsubscribe", "dead letters", "goodbye")), asking)


def _client_step(what: str, act: Act) -> None:
    """Do what the plan says; a step that cannot be done now is left out."""
    client, rng = act.client, act.rng
    match what:
        case "publish":
            if not act.world.trunks and rng.random() < 0.3:  # in one read, perhaps with very many matches
                _publish(act, [draw_event(rng) for _ in range(rng.choice((3, 15)))])
            else:
                for _ in range(rng.randint(1, 5)):
                    _publish(act, [draw_event(rng)])
        case "publish once":
            client.publish(act.new_event(draw_event(rng)), durable=False)
        case "publish with ttl":
            _publish(act, [draw_event(rng)], ttl=rng.choice((5_000, 500_000)))
        case "subscribe":
            _subscribe(act)
        case "subscribe once":
            _subscribe(act, durable=False)
        case "subscribe unordered":
            _subscribe(act, ordered=False)
        case "subscribe shared":
            # what a half-open connection has not acknowledged would be lost to the other consumers for ever
            endless = client.anonymous and not client.limits.idle
            if not endless and SHARED not in client.views.subs and SHARED not in client.wanted:
                client.subscribe(SHARED, FILTERS[1], SubscriptionOptions(durable=True, share=SHARE))
        case "subscribe since":
            _subscribe_since(act)
        case "replace":
            if (number := act.draw_sub()) is not None:
                client.process.ask(number, "replace", act.draw_filter())
        case "unsubscribe":
            if (number := act.draw_sub()) is not None:
                client.unsubscribe(number)
        case "advertise":
            text = act.draw_filter() if act.world.plan.shape.advertised else "TRUE"
            client.adverts.advertise(act.new_number(), text)
        case "unadvertise":
            _unadvertise(act)
        case "goodbye":
            client.leave()
        case "stop acknowledging":  # for a while
            client.acking = False
            act.later(200_000, partial(setattr, client, "acking", True))
        case "refuse deliveries":  # for a while
            client.nacks = rng.choice((0.2, 1.0))
            act.later(400_000, partial(setattr, client, "nacks", 0.0))
        case "dead letters":
            _look_for_dead_letters(act)
        case "trim":
            act.broker.trim()
        case _:
            _trial_step(what, act)


def _trial_step(what: str, act: Act) -> None:  # noqa: PLR0915 - a case for each step
    """Steps in which clients, rude peers and the operator try the terms of one broker."""
    client, rng = act.client, act.rng
    match what:
        case "publish outside":  # what was not advertised, or cannot be an event
            if rng.random() < 0.3:
                client.publish(act.new_event({"x": 1 << 63}, odd=True), odd=True)
            else:
                client.publish(act.new_event(draw_event(rng)))
        case "subscribe within lag":  # its queue may hold little: then it loses events, or its connection
            durable = rng.random() < 0.5 and not client.anonymous
            lag, disconnect = rng.choice((1, 3, 8)), rng.random() < 0.3
            options = SubscriptionOptions(durable, lag=lag, disconnect=disconnect)
            client.subscribe(SubNumber(act.new_number()), act.draw_filter(), options)
        case "subscribe badly":
            _subscribe_badly(act)
        case "unsubscribe shared":  # the last consumer takes the queue with it
            client.unsubscribe(SHARED)
        case "ask badly":
            _ask_badly(act)
        case "ask status":  # or for an explanation or past events; without the right, it is refused
            number = act.new_number()
            if number % 3 == 0:
                client.process.ask_history(number % 16, act.draw_filter())
            elif number % 3 == 1:
                client.process.explain({"x": number % 8, "y": "ab"[number // 8 % 2]})
            else:
                client.process.ask_status()
        case "forget":
            client.leave(forget=True)
        case "stay away":  # for so long that its session may expire
            client.process.connection.stay_away(rng.choice((300_000, 1_200_000, 2_500_000)))
        case "change rules":
            if act.world.plan.terms.guarded:
                _change_rules(act)
        case "hello badly":  # in the name of the client
            lies = ["version", "schema", "name"]
            lies += ["credentials"] if act.world.plan.terms.guarded else []
            lies += [] if client.anonymous else ["epoch"]
            lie = rng.choice(lies)
            act.world.trace.count(f"hello with a wrong {lie}")
            client.rude.lie(lie)
        case "trap":  # the next dial leads to something that is not the broker
            client.process.connection.trap = rng.choice(TRAPS)
            client.process.connection.cut()
        case "misbehave":  # break the protocol, or publish the same again
            way = rng.choice(_WAYS)
            if way == "again":
                client.rude.publish_again(*act.new_event(draw_event(rng)))
            else:
                client.rude.misbehave(way)
        case _:
            raise ValueError(f"there is no step {what!r}")


def _link_step(what: str, act: Act, trunk: Trunk) -> None:
    """Faults of links."""
    happened, connected = False, bool(trunk.connections)
    match what:
        case "link cut":  # perhaps within a frame
            happened = connected
            trunk.cut()
        case "link cut in use":  # right after events have come, and the other end has not stored them yet
            trunk.fragile = True
        case "link half open":  # a cut that one end, or none, notices
            if connected:
                act.world.trace.count("fault: link half-open")
            trunk.cut(half_open=True)
        case "link dialled twice":
            happened = trunk.dial_twice()
        case "link reads slowly":
            happened = connected
            trunk.pause()
            if connected:
                act.later(_SLOW, trunk.resume)
        case "stale hello":  # of an earlier connection, perhaps of an earlier process
            happened = trunk.say_stale_hello(act.draw >> 8)
        case "resync cut":  # a link comes up, and breaks again soon, perhaps before both ends agree
            trunk.cut()
            for _ in range(act.rng.randint(1, 3)):
                act.world.engine.after(20_000 + act.rng.randrange(_RESYNC), lambda: _cut_resync(act, trunk))
        case "partition":
            happened = True
            _partition(act)
        case "detach":  # two brokers stop being neighbours, and become so again later
            happened = trunk.attached
            if happened:
                act.world.detach(trunk)
                act.later(_APART, lambda: act.world.attach(trunk))
        case _:
            _client_step(what, act)
    if happened:
        act.world.trace.count(f"fault: {what}")


def _publish(act: Act, drawn: list[dict[str, object]], ttl: int = 0) -> None:
    """Publish durable events together, if the client may."""
    everything = not act.world.plan.shape.advertised
    events = [act.new_event(event) for event in drawn if everything or act.client.views.may_publish(event)]
    act.client.publish(*events, ttl=ttl)


def _subscribe(act: Act, durable: bool = True, ordered: bool = True) -> None:
    """A subscription, in a queue of its own or together with others."""
    number, client, queue = SubNumber(act.new_number()), act.client, None
    durable = durable and not client.anonymous
    own = not (durable and ordered) or act.rng.random() < 0.4
    common = client.wanted.get(COMMON)
    if not own and common is None and not any(each.number == COMMON for each in client.process.waiting.values()):
        number = COMMON
    elif not own and common is not None and not common.ending:
        queue = QueueNumber(COMMON)
    client.subscribe(number, act.draw_filter(), SubscriptionOptions(durable, ordered), queue)


def _subscribe_since(act: Act) -> None:
    """A subscription to older events, too."""
    if act.client.anonymous:
        return
    number, broker = act.new_number(), act.client.broker
    since: dict[str, Any] = {"since": act.rng.randint(1, broker.oracle.next)}
    text = act.draw_filter()
    if not act.world.trunks and act.rng.random() < 0.6:
        past = act.rng.choice([event.at for event in broker.oracle.history.values()] or [1])
        kinds: dict[str, dict[str, Any]] = {
            "begin": {"since": 0},
            "between": {"since_time": past + 1},
            "event": {"since_time": past},
            "future": {"since": broker.oracle.next + 5},
            "later": {"since_time": broker.latest + 1_000_000_000_000},
            "now": {"since_time": broker.latest},
        }
        kind = act.rng.choice([*kinds])
        act.world.trace.count(f"since: {kind}")
        since = kinds[kind]
    act.client.subscribe(SubNumber(number), text, SubscriptionOptions(durable=True, **since))


def _unadvertise(act: Act) -> None:
    """A promise is taken back; where it matters, at once after the last events that depend on it are confirmed."""
    numbers = [number for number, advert in act.client.views.adverts.items() if advert.in_force]
    if not numbers:
        return
    take_back = partial(act.client.adverts.unadvertise, act.rng.choice(numbers))
    if act.world.plan.shape.advertised:
        for _ in range(act.rng.choice((0, 3, 15))):
            _publish(act, [draw_event(act.rng)])
        for wait in range(1_000, 10_000, 1_000):
            act.world.engine.after(wait, take_back)
    take_back()


def _look_for_dead_letters(act: Act) -> None:
    """A client looks after its dead letters, and perhaps after those of another client."""
    queues = sorted(act.client.views.queues)
    if not act.world.trunks:  # where there may be any
        queues = [queue for queue in queues if act.client.views.queues[queue].refused] or queues
    if queues:
        act.client.look_for_dead(act.rng.choice(queues), act.rng.choice(("list", "retry", "drop")))
    if act.world.trunks or act.rng.random() < 0.7:
        return
    other = act.rng.choice([each for each in act.world.clients if each.principal == act.client.principal])
    theirs = sorted(queue for queue in other.views.queues if queue and queue != SHARED_QUEUE)
    if theirs and other is not act.client and not other.anonymous:
        act.client.look_for_dead(act.rng.choice(theirs), act.rng.choice(("list", "retry", "drop")), other)


def _subscribe_badly(act: Act) -> None:
    """A subscription that is invalid."""
    one, two, limits = SubNumber(1), SubNumber(2), act.client.limits
    queue, own, others = QueueNumber(0), QueueNumber(2), f"others-{act.new_number()}"
    plain, share = Subscribe(one, "x < 4", queue), Subscribe(one, "x < 4", queue, share=others)
    trials: list[tuple[Subscribe, str, Subscribe | None]] = [
        (Subscribe(two, "x >", own), "filter", None),
        (Subscribe(two, "odd(x)", own), "filter", None),
        (Subscribe(two, "even(x, 2)", own), "filter", None),
        (Subscribe(two, "TRUE", own, durable=False, since=Offset(1)), "since", None),
        (Subscribe(two, "TRUE", own, share=others, since=Offset(1)), "since", None),
        (Subscribe(two, "TRUE", own, share=others, durable=False), "share", None),
        (Subscribe(two, "TRUE", own, share="o" * (limits.name + 1)), "share", None),
        (Subscribe(one, "TRUE", own), "exists", plain),
        (Subscribe(two, "TRUE", queue, since=Offset(1)), "since", plain),
        (Subscribe(two, "TRUE", queue, share=others), "queue", plain),
        (Subscribe(two, "TRUE", queue, durable=False), "queue", plain),
        (Subscribe(two, "TRUE", queue, since=Offset(1)), "queue", share),
        (Subscribe(two, "TRUE", own, share=others), "filter", share),
    ]
    if limits.filter < len(_LONG_FILTER):
        trials.append((Subscribe(two, _LONG_FILTER, own), "filter", None))
    if act.client.anonymous:
        trials.append((Subscribe(two, "TRUE", own, durable=True), "durable", None))
    asked, code, before = act.rng.choice(trials)
    act.client.rude.request(RudeRequest(asked, "subscribe", asked.number, code, before))


def _ask_badly(act: Act) -> None:
    """A request about something that does not exist, or is not allowed."""
    number, queue, one = act.new_number(), QueueNumber(act.new_number()), SubNumber(1)
    plain = Subscribe(one, "x < 4", queue)
    share = Subscribe(one, "x < 4", queue, share=f"others-{number}")
    trials: list[tuple[protocol.ClientMessage, str, str, Subscribe | None]] = [
        (Replace(SubNumber(number), "TRUE"), "replace", "unknown", None),
        (protocol.Unsubscribe(SubNumber(number)), "unsubscribe", "unknown", None),
        (protocol.Unadvertise(number), "unadvertise", "unknown", None),
        (protocol.ListDead(number, queue), "list dead", "unknown", None),
        (protocol.ListDead(number, queue, session="nobody"), "list dead", "unknown", None),
        (protocol.RetryDead(number, queue, (Offset(1),), share="nobody"), "retry dead", "unknown", None),
        (protocol.DropDead(number, queue, (Offset(1),)), "drop dead", "unknown", None),
        (Replace(one, "TRUE"), "replace", "share", share),
        (Replace(one, "x ="), "replace", "filter", plain),
    ]
    asked, about, code, before = act.rng.choice(trials)
    act.client.rude.request(RudeRequest(asked, about, getattr(asked, "number", number), code, before))


def _change_rules(act: Act) -> None:
    """The operator changes the access rules, and perhaps distrusts a key."""
    world, broker = act.world, act.client.broker
    world.draw_rules(act.rng)
    for client in world.clients:
        client.watch.doubt()
    if broker.core is not None:
        broker.do(broker.core.set_rules, world.book.rules)
        if act.rng.random() < 0.2:
            broker.do(broker.core.distrust, {f"key of {act.client.principal}"})


def _cut_resync(act: Act, trunk: Trunk) -> None:
    if trunk.is_resyncing:
        act.world.trace.count("fault: resync cut midway")
    trunk.cut()


def _partition(act: Act) -> None:
    """Some links are cut and cannot be dialled until the network heals."""
    trunks = act.rng.sample(act.world.trunks, act.rng.randint(1, len(act.world.trunks)))
    for trunk in trunks:
        trunk.separated += 1
        trunk.cut(half_open=act.rng.random() < 0.5)

    def heal() -> None:
        for trunk in trunks:
            trunk.separated = max(0, trunk.separated - 1)

    act.later(_APART, heal)


def _retune(act: Act) -> None:
    """A network of label sets gets another label space, from one broker.

    Not where a part of the network could come back with the old one: it would be refused.
    """
    leader = min(act.world.brokers, key=lambda broker: broker.name)  # the others refuse
    core, faults = leader.core, act.world.plan.faults
    if act.world.plan.shape.kind != "dls" or core is None or faults & {"detach", "restore backup"}:
        return
    try:
        leader.do(core.retune, act.rng.choice(SPACES))
    except LocalProtocolError:  # another one is in progress, or it has not met all its neighbours
        return
    act.world.trace.count("op: re-tuned")


def _restore_backup(act: Act) -> None:
    """The log of a broker without clients is copied, and later restored under a new id."""
    broker = act.broker
    if any(client.broker is broker for client in act.world.clients) or broker.core is None or broker.is_committing:
        return
    act.world.numbers += 1
    copy = broker.log.backup(f"{broker.log.log_id}.{act.world.numbers}")
    act.later(_APART, lambda: act.world.rewind(broker, copy))
