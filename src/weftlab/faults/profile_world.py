"""Brokers with profiles that last, their publishers and their subscribers under faults, from a plan; and the oracle.

The clients are the product's sessions. While faults happen, a subscription is shown each version of a profile once, in
ascending versions, and no end of a profile that lives. At every quiet moment, when everything is mended, each
subscription has been shown exactly the profiles that one scan over all brokers finds for it (`TwoSets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple

from weft.algebra.profile import Meeting, Profile
from weft.broker.broker import Core
from weft.broker.limits import ClientLimits
from weft.broker.profiles.profile_item import profile_item, read_profile
from weft.client import effects
from weft.client.effects import Replied, SessionEffect
from weft.client.profiles import ProfileNotice, profile_notice
from weft.client.subscription import LOG_SPAN, SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.language.text import parse
from weft.log.base import State
from weft.log.memory import MemoryLog
from weft.model.schema import Schema
from weft.model.value import to_micros
from weft.protocol.messages import Deliver, ProfilePublished, PublishProfile, SubNumber, WithdrawProfile, read_head
from weft.protocol.move_messages import tokens_of
from weft.routing.table import About, Link
from weftlab.engine import Engine
from weftlab.faults.access_book import AccessBook
from weftlab.faults.broker_process import BrokerProcess
from weftlab.faults.client_process import Consumer
from weftlab.faults.moving_client import MovingClient, MovingProcess
from weftlab.faults.oracle import Oracle
from weftlab.faults.plan import Plan, Step
from weftlab.faults.shape import EVEN
from weftlab.faults.trace import RunTrace
from weftlab.faults.trunk import Trunk
from weftlab.faults.views import QueueView
from weftlab.faults.violation import require
from weftlab.faults.world import LINK_LIMITS, QUEUE_LIMITS, RunOutcome

_QUIET = 240_000_000  # simulated microseconds within which everything must come to rest
_AGAIN = 20_000  # until what was refused is asked again, at most
_DOWN, _APART = 30_000, 200_000  # that a broker is down, and a link, at most
_PHASES = 3  # quiet moments of a run
_SHORT, _LONG = 400_000, 7_200_000_000_000  # how long profiles last
_VALUES = range(8)


class PublishedVersion(NamedTuple):
    """What a publisher knows of one of its profiles."""

    region: str
    version: int
    expires: int


def draw_region(rng: Random) -> str:
    """A region, or the area of a query: a few values, so that coincidences are common."""
    low, wide = rng.choice(_VALUES), rng.choice((0, 1, 2, 7))
    box = f"x BETWEEN {low} AND {low + wide}"
    return rng.choice((box, box, f"{box} AND y = {rng.choice('ab')!r}", f"x = {low} OR y = 'a'", "x >= 0"))


class ProfileProcess(MovingProcess):
    """The session of a client that publishes profiles, and is shown some."""

    def __init__(self, client: ProfileClient) -> None:
        super().__init__(client)
        self._publisher = client

    def request(self, name: str, message_of: Callable[[int], PublishProfile | WithdrawProfile]) -> None:
        """Publish or withdraw a profile; there is one request for each at a time."""
        self.session.request(message_of, name)
        self.connection.flush()

    def query(self, number: SubNumber, filter: str, meeting: str) -> None:
        """Subscribe to profiles."""
        options = SubscriptionOptions(durable=True, profiles=meeting)
        state = SubscriptionState(number, options, window=4, token=self.session.token)
        self.consumers[number] = ProfileConsumer(self._publisher, self, state)  # type: ignore[assignment]
        self.session.subscribe(state, SubscriptionRequest("subscribe", filter, None))
        self.connection.flush()

    def noticed(self, notice: SessionEffect) -> None:
        """What the session reports."""
        client = self._publisher
        match notice:
            case Replied(request, answer, code):
                client.replied(str(request.waiter), request.message, answer, code, notice.reason)
            case effects.Answered(number, _, about, code):
                client.answered(number, about, code, notice.reason)
            case effects.Ready() if notice.moved_from:
                for consumer in self.consumers.values():
                    consumer.forget()
                super().noticed(notice)
            case effects.Missed(number) if number in client.asking:
                pass  # the broker has ended it, and the answer was lost
            case effects.Ended(number):
                self.consumers.pop(number, None)
                client.wanted.pop(number, None)
                client.asking.discard(number)
            case _:
                super().noticed(notice)


class ProfileConsumer(Consumer):
    """What the application does with notices."""

    def __init__(self, client: ProfileClient, process: ProfileProcess, state: SubscriptionState) -> None:
        super().__init__(client, process, state)  # type: ignore[arg-type]
        self._driver, self._own, self._mine = client, QueueView(), process
        self._logs: dict[int, tuple[Deliver, str]] = {}  # the log that a message is from, by its Python id

    def arrived(self, messages: Sequence[Deliver]) -> None:
        """Events for the application."""
        welcome = self._mine.session.welcome
        assert welcome is not None
        self._logs |= {id(message): (message, welcome.log_id) for message in messages}
        super().arrived(messages)

    def forget(self) -> None:
        """Offsets mean other events from now on."""
        self._acked.clear()
        self._failed.clear()
        self._last = 0

    @property
    def _view(self) -> QueueView:
        return self._own

    def _shown(self, message: Deliver) -> None:
        notice, client = profile_notice(read_head(message.head).attributes), self._driver
        _, log = self._logs.pop(id(message))
        names = {(log, message.offset % LOG_SPAN), *tokens_of(message.head)}
        if notice is not None and not names & client.seen:
            client.saw(self._state.number, notice)
        client.seen |= names
        super()._shown(message)


@dataclass(eq=False)
class ProfileClient(MovingClient):
    """A client with a name, its profiles and what its subscriptions were shown."""

    def __post_init__(self) -> None:
        self.published: dict[str, PublishedVersion] = {}  # as they were confirmed
        self.regions: dict[tuple[str, int], str] = {}  # by id and version
        self.requested: dict[str, PublishProfile | WithdrawProfile] = {}  # and not answered
        self.unsure: set[str] = set()  # ids of requests that a broker could not answer, since the session moved
        self.withdrawn: set[tuple[str, int]] = set()  # ids and versions whose end was requested
        self.wanted: dict[SubNumber, tuple[str, str]] = {}  # filters and meetings
        self.filters: dict[SubNumber, list[str]] = {}  # all that it has asked for since the subscription began
        self.asking: set[SubNumber] = set()
        self.has: dict[SubNumber, dict[tuple[str, str], int]] = {}  # versions that a subscription is shown
        self.highest: dict[tuple[SubNumber, str, str], int] = {}  # versions that it was ever shown
        self.ended: dict[tuple[SubNumber, str, str], tuple[int, str]] = {}
        self.seen: set[tuple[str, int]] = set()  # logs and offsets of events that it was shown
        self.everyone: dict[str, ProfileClient] = {}
        self.schema: Schema | None = None
        self.tokens = count(1)
        self.pending: dict[SubNumber, tuple[str, str]] = {}  # filters and meetings that were asked for last
        super().__post_init__()

    def make_process(self) -> ProfileProcess:
        """The process that the client is."""
        self.own = ProfileProcess(self)
        return self.own

    # -- publishing ------------------------------------------------------------------------------------

    def publish_profile(self, name: str, region: str, duration: int) -> None:
        """Publish a profile, or another version of it."""
        if name not in self.requested:
            token = self.seed_token()
            made = PublishProfile(0, name, region, duration, name.encode(), token)
            self.requested[name] = made
            self.own.request(name, lambda number: _numbered(made, number))

    def seed_token(self) -> int:
        """A token that no other request has."""
        return next(self.tokens) + self.rng.getrandbits(40) * 1000

    def withdraw(self, name: str) -> None:
        """Withdraw a profile."""
        known = self.published.get(name)
        if name not in self.requested and known is not None:
            self.withdrawn.add((name, known.version))
            self.requested[name] = WithdrawProfile(0, name)
            self.own.request(name, lambda number: WithdrawProfile(number, name))

    def replied(self, name: str, asked: object, answer: object, code: str, reason: str) -> None:
        """The broker has answered a request about a profile."""
        done = self.requested.pop(name)
        if code == "moving":
            self.unsure.add(name)
        if code in ("full", "moving"):
            again = self.publish_profile if isinstance(done, PublishProfile) else None
            if again is not None and isinstance(done, PublishProfile):
                self.soon(_AGAIN, lambda: again(name, done.region, done.duration))
            elif name in self.published:
                self.soon(_AGAIN, lambda: self.withdraw(name))
            return
        require(code in ("", "unknown"), f"{self.name}: {asked} failed: {code}, {reason}")
        self.unsure.discard(name)
        if isinstance(answer, ProfilePublished) and isinstance(done, PublishProfile):
            before = self.published.get(name)
            higher = before is None or answer.version > before.version
            require(higher, f"{self.name}: version {answer.version} of {name} is not above {before}")
            self.published[name] = PublishedVersion(done.region, answer.version, answer.expires)
            self.regions[name, answer.version] = done.region
            self.trace.count("op: profile published")
        else:
            self.published.pop(name, None)
            self.trace.count("op: profile withdrawn")

    # -- subscribing -----------------------------------------------------------------------------------

    def subscribe_or_replace(self, number: SubNumber, filter: str, meeting: str) -> None:
        """Subscribe to profiles, or change the filter."""
        if number in self.asking:
            return
        self.asking.add(number)
        if number in self.wanted:
            meeting = self.wanted[number][1]
            self.filters[number].append(filter)
            self.process.session.ask(number, SubscriptionRequest("replace", filter, (filter, meeting)))
            self.process.connection.flush()
        else:
            self.has[number] = {}
            self.wanted[number], self.filters[number] = (filter, meeting), [filter]
            self.highest = {each: version for each, version in self.highest.items() if each[0] != number}
            self.own.query(number, filter, meeting)
        self.pending[number] = filter, meeting

    def unsubscribe(self, number: SubNumber) -> None:
        """End a subscription."""
        if number in self.wanted and number not in self.asking:
            self.asking.add(number)
            self.process.session.ask(number, SubscriptionRequest("unsubscribe", "", None))
            self.process.connection.flush()

    def answered(self, number: SubNumber, about: str, code: str, reason: str) -> None:
        """The broker has answered a request about a subscription, or it is complete."""
        require(code in ("", "full", "moving", "unknown"), f"{self.name}: {about} {number} failed: {code}, {reason}")
        if about == "complete":
            return
        self.asking.discard(number)
        if about == "replace" and not code:
            self.wanted[number] = self.pending[number]
        elif about == "subscribe" and code:
            self.wanted.pop(number, None)
            self.process.consumers.pop(number, None)

    # -- what it is shown ------------------------------------------------------------------------------

    def saw(self, number: SubNumber, notice: ProfileNotice) -> None:
        """A notice has come, for the first time."""
        what = f"{self.name}, subscription {number}: {notice.source}/{notice.id} has {notice.change}"
        self.trace.count(f"notice: {notice.change} {notice.reason}".rstrip())
        has, identity = self.has.setdefault(number, {}), (notice.source, notice.id)
        known, highest = has.get(identity), self.highest.get((number, *identity), 0)
        if notice.change == "ended":
            require(known == notice.version, f"{what} in version {notice.version}, but was shown {known}")
            self._check_end(what, number, notice)
            del has[identity]
            self.ended[number, *identity] = notice.version, notice.reason
            return
        require((known is None) == (notice.change == "appeared"), f"{what}, but was shown {known} before")
        back = notice.version > highest
        again = self.ended.get((number, *identity)) == (notice.version, "left")
        require(back or again, f"{what} in version {notice.version} after version {highest}")
        self.highest[number, *identity] = max(highest, notice.version)
        has[identity] = notice.version

    def _check_end(self, what: str, number: SubNumber, notice: ProfileNotice) -> None:
        """No profile ends that lives, and the reason is true."""
        publisher = self.everyone[notice.source]
        lives = publisher.published.get(notice.id)
        asked = (notice.id, notice.version) in publisher.withdrawn
        replaced = (
            lives is None or lives.version != notice.version or notice.id in {*publisher.requested, *publisher.unsure}
        )
        latest = max(each.latest for each in self.brokers.values())
        gone = lives is not None and lives.expires <= latest
        if notice.reason == "expired":
            until = to_micros(notice.expires)
            require(until <= latest, f"{what}, but has not expired")
        elif notice.reason == "withdrawn":
            require(asked or replaced or gone, f"{what}, but nobody has withdrawn it")
        else:
            filters = self.filters.get(number, [])
            require(len(set(filters)) > 1, f"{what} with the reason {notice.reason!r}, but its filter is the same")
            region = publisher.regions.get((notice.id, notice.version))
            apart = region is None or not all(self._meets(region, number, each) for each in filters)
            require(apart or asked or replaced or gone, f"{what} with the reason 'left', but all its filters meet it")

    def _meets(self, region: str, number: SubNumber, filter: str) -> bool:
        profile = Profile(self.name, "region", region, schema=self.schema)
        return profile.meets(parse(filter), Meeting(self.pending[number][1]))

    def unfinished(self) -> Iterator[str]:
        """What it waits for, in a sentence each."""
        yield from super().unfinished()
        if self.requested or self.asking:
            yield f"{self.name} waits for answers about {[*self.requested, *self.asking]}"


def _numbered(message: PublishProfile, number: int) -> PublishProfile:
    return PublishProfile(number, message.id, message.region, message.duration, message.payload, message.token)


class ProfileWorld:
    """Brokers, publishers and subscribers, and what happens to them."""

    def __init__(self, plan: Plan, **limits: int) -> None:
        self.plan, self.engine, self.trace = plan, Engine(), RunTrace()
        shape, rng = plan.shape, Random(plan.seed ^ 0x5EED)
        self._ids = Random(plan.seed ^ 0x1D5)
        drawn: dict[str, Any] = {name: rng.choice(choices) for name, choices in QUEUE_LIMITS.items()}
        drawn |= {name: rng.choice(choices) for name, choices in LINK_LIMITS.items()}
        drawn |= {"link_silence": 4 * drawn["heartbeat"], "changes": drawn["slice"], "lag": 1 << 40, **limits}
        self.limits = replace(ClientLimits(run=2, run_behind=2), **drawn)
        self.brokers = [self._broker(name, Random(rng.getrandbits(64))) for name in shape.names]
        repeats = set[str]()
        for broker in self.brokers:
            broker.sync_within = rng.choice((1_500, 1_500, 20_000))
            broker.oracle.repeats = repeats
        ends = [(self.brokers[near], self.brokers[far], role) for near, far, role in shape.links]
        self.trunks = [Trunk(*each, self.engine, Random(rng.getrandbits(64)), self.trace) for each in ends]
        for broker in self.brokers:
            broker.start()
        by_name = {broker.name: broker for broker in self.brokers}
        self.clients = []
        for number in range(plan.clients):
            home = self.brokers[shape.homes[number % len(shape.homes)]]
            place = f"client{number}", self.engine, Random(rng.getrandbits(64)), self.trace, home, by_name
            self.clients.append(ProfileClient(*place, "", False))
        for client in self.clients:
            client.everyone = {each.name: each for each in self.clients}
            client.schema = shape.schema

    def _broker(self, name: str, rng: Random) -> BrokerProcess:
        shape = self.plan.shape

        def make(log: MemoryLog, state: State) -> Core:
            draw = lambda: self._ids.getrandbits(63)  # noqa: E731
            options = {"schema": shape.schema, "limits": self.limits, "name": name, "predicates": EVEN}
            return Core(log, state, shape.make_table(), draw=draw, **options)  # type: ignore[arg-type]

        log = MemoryLog(f"log-{self.plan.seed}-{name}")
        return BrokerProcess(name, self.engine, rng, self.trace, Oracle(AccessBook()), log, make)

    # -- the run ---------------------------------------------------------------------------------------

    def run(self) -> RunOutcome:
        """Everything that was planned, in a few parts with a quiet moment after each."""
        outcome = RunOutcome(self.plan, self.trace)
        with outcome.judged(self.engine):
            self._rest("the warm-up")
            steps = self.plan.steps
            for phase in range(_PHASES):
                some = steps[phase * len(steps) // _PHASES : (phase + 1) * len(steps) // _PHASES]
                begun, first = self.engine.now, some[0].time if some else 0
                for step in some:
                    self.engine.at(begun + 1 + step.time - first, lambda step=step: self._do(step))  # type: ignore[misc]
                self.engine.run(until=begun + (some[-1].time - first if some else 0) + 2)
                self._heal()
                self._judge()
        for broker in self.brokers:
            broker.count_core()
        outcome.events = self.trace.counts["op: profile published"]
        outcome.deliveries = sum(times for what, times in self.trace.counts.items() if what.startswith("notice:"))
        return outcome

    def _rest(self, what: str) -> None:
        end, quiet = self.engine.now + _QUIET, 0
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
            case "publish profile":
                duration = _LONG if rng.random() < 0.6 else 1 + rng.randrange(_SHORT)
                client.publish_profile(rng.choice("abc"), draw_region(rng), duration)
            case "withdraw":
                client.withdraw(rng.choice("abc"))
            case "query":
                meeting = rng.choice(("covering", "overlap"))
                client.subscribe_or_replace(SubNumber(rng.randint(3, 5)), draw_region(rng), meeting)
            case "unsubscribe":
                client.unsubscribe(SubNumber(rng.randint(3, 5)))
            case "move":
                client.move(broker.name, rng.random() < 0.7)
            case "both move":
                for each in rng.sample(self.clients, 2):
                    each.move(rng.choice(self.brokers).name, patient=True)
            case "stop acknowledging":
                client.acking = False
                self.engine.after(1 + rng.randrange(300_000), lambda: setattr(client, "acking", True))
            case _:
                self._fault(step.what, client, broker, rng)
        for process in self.brokers:
            if process.core is not None:
                process.core.check()

    def _fault(self, what: str, client: ProfileClient, broker: BrokerProcess, rng: Random) -> None:
        connection = client.process.connection
        trunk = rng.choice(self.trunks) if self.trunks else None
        match what:
            case "crash":
                broker.crash(why="killed")
                self.engine.after(1 + rng.randrange(_DOWN), broker.start)
            case "crash in a move":
                moving = [each for each in self.brokers if each.core is not None and self._is_moving(each.core)]
                if moving:
                    victim = rng.choice(moving)
                    victim.crash(why="killed in a move")
                    self.engine.after(1 + rng.randrange(_DOWN), victim.start)
            case "commit refused":
                broker.log.fail_commits(rng.randint(1, 3))
            case "sync failed":
                broker.log.fail_syncs()
            case "quota":
                broker.log.quota = broker.log.size() + rng.randrange(2_000)
                self.engine.after(200_000, lambda: setattr(broker.log, "quota", None))
            case "clock jump":
                broker.skew += rng.choice((-3_600_000_000, -5_000, 5_000, 3_600_000_000))
            case "cut":
                connection.cut()
            case "half open":
                connection.cut(half_open=True)
            case "slow reader":
                connection.pause()
                self.engine.after(1 + rng.randrange(300_000), connection.resume)
            case "link cut" if trunk is not None:
                trunk.cut()
            case "link half open" if trunk is not None:
                trunk.cut(half_open=True)
            case "partition" if trunk is not None:
                trunk.separated += 1
                trunk.cut(half_open=rng.random() < 0.5)
                self.engine.after(1 + rng.randrange(_APART), lambda: setattr(trunk, "separated", 0))

    @staticmethod
    def _is_moving(core: Core) -> bool:
        moves = core._moves
        return bool(moves.asking or moves.departures.left or moves.arrivals.arriving or moves.arrivals.finishing)

    # -- quiet moments -----------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No more faults: everything must come to rest."""
        self.trace.say(self.engine.now, "world", "faults end")
        for broker in self.brokers:
            broker.log.quota = None
            broker.log.fail_commits(-broker.log._refused_commits)
            broker.start()
        for trunk in self.trunks:
            trunk.separated = 0
            trunk.resume()
        for client in self.clients:
            client.mend()
        self._rest("healing")

    def _open_ends(self) -> Iterator[str]:
        for broker in self.brokers:
            if broker.core is None:
                yield f"{broker.name} is down"
            elif broker.core._notices.due:
                yield f"{broker.name} has notices to write"
            elif self._is_moving(broker.core):
                yield f"{broker.name} has not finished a move"
        for client in self.clients:
            yield from client.unfinished()
            for number, has in client.has.items():
                if number in client.wanted and has != self._scan(client, number):
                    yield f"{client.name} has not been shown what it should: {has} for {self._scan(client, number)}"
        for trunk in self.trunks:
            for one, other in ((trunk.near, trunk.far), (trunk.far, trunk.near)):
                if one.core is None or (behind := one.behind(other.name)):
                    yield one.name if one.core is None else behind
                elif (
                    sender := one.core._neighbours[Link(other.name)].exchanges[1].sender
                ).waiting or sender.marks.unacked:
                    yield f"{one.name} has more profiles to tell {other.name}"

    def _scan(self, client: ProfileClient, number: SubNumber) -> dict[tuple[str, str], int]:
        """The profiles that a subscription should be shown, compared one by one, over all brokers."""
        core = client.broker.core
        if core is None:
            return {}
        text, meeting = client.wanted[number]
        wanted, found = parse(text), {}
        for publisher in self.clients:
            home = publisher.broker.core
            for name, (region, version, expires) in publisher.published.items():
                if home is None or expires <= home.time or expires <= core.time:
                    continue
                profile = Profile(publisher.name, name, region, schema=self.plan.shape.schema)
                if profile.meets(wanted, Meeting(meeting)):
                    found[publisher.name, name] = version
        return found

    def _judge(self) -> None:
        """Law 13, and that both ends of a link agree on what was exchanged in the table of profiles."""
        for client in self.clients:
            for number, has in client.has.items():
                if number in client.wanted:
                    due = self._scan(client, number)
                    require(has == due, f"{client.name}, subscription {number}, was shown {has}, and {due} are due")
        for broker in self.brokers:
            assert broker.core is not None
            broker.core.check()
        for trunk in self.trunks:
            for one, other in ((trunk.near, trunk.far), (trunk.far, trunk.near)):
                for about in About:
                    same = _told(one, other, about) == _heard(other, one, about)
                    require(same, f"{other.name} has heard other {about.value} of profiles than {one.name} has told")
        self.trace.count("quiet moments")


def _told(one: BrokerProcess, other: BrokerProcess, about: About) -> list[str]:
    assert one.core is not None
    table = one.core._neighbours[Link(other.name)].exchanges[1].table
    return sorted(_text(each, about) for each in table.told(Link(other.name), about).values())


def _heard(one: BrokerProcess, other: BrokerProcess, about: About) -> list[str]:
    assert one.core is not None
    table = one.core._neighbours[Link(other.name)].exchanges[1].table
    return sorted(_text(each, about) for each in table.heard(Link(other.name), about).values())


def _text(item: Any, about: About) -> str:
    return str(profile_item(read_profile(item))) if about is About.SUBSCRIPTIONS else str(item)
