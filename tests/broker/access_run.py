"""Random clients, rules and events for the law of access. A run checks, whatever happens:

- whatever is delivered, or shown as a dead letter, matches a rule of its subscriber at that moment;
- a subscription is accepted only if its rules together match every event of the tests that it matches, and stays only
  as long as that holds; where filters speak of numbers alone, it is also accepted, and stays, whenever it holds.

The second half needs no delivery, so a hole that few events fall through is found all the same. What is covered is
found out by trying every event, not by the algebra that the broker uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from broker.harness import Broker
from strategies import EVENTS
from weft.broker.admission import read_head
from weft.broker.delivery_run import one_by_one
from weft.broker.effects import ConnectionId, Outgoing
from weft.broker.identity import Identity
from weft.broker.limits import ClientLimits
from weft.broker.rules import Rights, Rules
from weft.language.ast import Filter, Is, Not, conjunction, disjunction
from weft.language.meaning import matches
from weft.language.text import parse
from weft.log.base import Offset
from weft.model.event import Event
from weft.protocol.messages import (
    Ack,
    DeadLetters,
    Deliver,
    Failed,
    Hello,
    ListDead,
    Nack,
    NewEpoch,
    Publish,
    QueueNumber,
    Replace,
    RetryDead,
    Revoked,
    SubNumber,
    Subscribe,
    Unsubscribe,
)

PRINCIPALS = ("ann", "bob")
NUMBERS = (None, -1, 0, 0.5, 1, 1.25, 1.5, 1.75, 2, 3.5, "a")  # one of each cell that the numbers of tests make
ALL_EVENTS: list[dict[str, Any]] = [*EVENTS, *({"a": a, "b": b} for a, b in product(NUMBERS, repeat=2))]
SMALL = ClientLimits(window_events=2, turn=3, tail=3_000, backoff=100, max_backoff=200, failures=1, held=5)


@lru_cache(4096)
def admitted(wanted: Filter) -> Any:
    """Which of the events of the tests a filter matches."""
    return np.array([matches(wanted, Event(each)) for each in ALL_EVENTS])


def covered(rules: Sequence[Filter], wanted: Filter) -> bool:
    """Whether rules together match every event of the tests that a filter matches."""
    together = np.zeros(len(ALL_EVENTS), bool)
    for rule in rules:
        together |= admitted(rule)
    return not (admitted(wanted) & ~together).any()


class Watched(Broker):
    """A broker whose every delivery and subscription is held against the rules of the moment."""

    def __init__(self, rules: dict[str, list[Filter]], numbers: bool = False) -> None:
        self.allowed = rules
        self.numbers = numbers  # whether covering is complete for all filters
        self.delivered = 0
        self.counted: Counter[str] = Counter()  # of all that ran
        self.open: dict[str, dict[int, dict[int, int]]] = {}  # attempts
        super().__init__(
            at_once=False, authenticate=lambda who: Identity(who.decode()), limits=SMALL, rules=as_rules(rules)
        )

    def restart(self) -> None:
        self.counted.update(self.core.counts)
        super().restart()

    def set_rules(self, rules: dict[str, list[Filter]]) -> None:
        before = self.texts()
        self.allowed = rules
        self.options["rules"] = as_rules(rules)
        self.take(self.core.set_rules(self.options["rules"], self.now))
        for session, texts in (before - self.texts()).items() if self.numbers else ():
            assert not covered(rules[session[0]], parse(session[1])), f"{session} has ended, but is allowed: {texts}"

    def texts(self) -> Counter[tuple[str, str]]:
        """What everybody has subscribed to, by owner."""
        sessions = self.core._sessions.by_id.values()
        return Counter((each.owner, sub.text) for each in sessions for sub in each.subs.values())

    def send(self, connection: ConnectionId, messages: list[Outgoing]) -> None:
        for message in one_by_one(messages):
            if isinstance(message, Deliver):
                self.hold(connection, message.head)
                self.open[connection].setdefault(message.queue, {})[message.offset] = message.attempt
            elif isinstance(message, DeadLetters):
                for letter in message.letters:
                    self.hold(connection, letter.head)
            elif isinstance(message, Revoked):
                self.counted["told"] += 1
        super().send(connection, messages)

    def close(self, connection: ConnectionId) -> None:
        self.open.pop(connection, None)
        super().close(connection)

    def hold(self, connection: str, head: Any) -> None:
        event = Event(read_head(head).attributes)
        rules = self.allowed[connection.partition("/")[0]]
        assert any(matches(rule, event) for rule in rules), (connection, event, rules)
        self.delivered += 1

    def ask(self, name: str, request: Subscribe | Replace) -> None:
        """Ask for a filter: it must be refused unless the rules allow it."""
        wanted, mine = parse(request.filter), self.allowed[name.partition("/")[0]]
        said = self.say(name, request)
        codes = [each.code for each in said if isinstance(each, Failed)]
        if not codes:
            assert covered(mine, wanted), f"{name} may ask for {wanted}, but has {mine}"
            self.counted["allowed by several rules"] += not any(covered([rule], wanted) for rule in mine)
        elif codes == ["access"]:
            assert not (self.numbers and covered(mine, wanted)), f"{name} may not ask for {wanted}, but has {mine}"
            self.counted["refused"] += 1

    def hold_subscriptions(self) -> None:
        """When nothing is in doubt, everything that is subscribed to is allowed."""
        core = self.core
        if core._unchecked:
            self.counted["in doubt"] += 1
            return
        subs = [(session.owner, sub) for session in core._sessions.by_id.values() for sub in session.subs.values()]
        queues = core._queues
        for owner, sub in [*subs, *((queues.owner_of(queue), each) for queue, each in queues.shared_members.items())]:
            if owner in self.allowed:
                assert covered(self.allowed[owner], parse(sub.text)), f"{owner} still has {sub.text}"


def as_rules(rules: dict[str, list[Filter]]) -> Rules:
    rights = {who: Rights(subscribe=tuple(map(str, some))) for who, some in rules.items() if who in PRINCIPALS}
    return Rules(rights, default=Rights(subscribe=()))


class Run:
    """Random clients over a few filters, so that rules often cover what is asked for, alone or only together."""

    def __init__(self, pool: list[Filter], seed: int, numbers: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool = pool
        self.asked: list[Filter] = []  # the latest, and so likely to be subscribed to
        self.on = Watched(self.rules(), numbers)
        self.count = 0
        self.publisher()

    def draw(self, many: int) -> int:
        return int(self.rng.integers(many))

    def one(self) -> Filter:
        return self.pool[self.draw(len(self.pool))]

    def wanted(self) -> str:
        one, other = self.one(), self.one()
        if self.draw(3) == 0:  # just what the rules of somebody allow together
            one = disjunction(*self.on.allowed[PRINCIPALS[self.draw(2)]])
        asked = (one, one, one, conjunction(one, other), disjunction(one, other))[self.draw(5)]
        self.asked = [*self.asked[-20:], asked]
        return str(asked)

    def rules(self) -> dict[str, list[Filter]]:
        """New rules for everybody, or for one: a filter, two, or two halves of one; or what was asked for, narrower."""
        rules = {who: self.some_rules() for who in PRINCIPALS}
        if hasattr(self, "on") and self.draw(2):
            rules[PRINCIPALS[self.draw(2)]] = self.on.allowed[PRINCIPALS[self.draw(2)]]
        return rules

    def some_rules(self) -> list[Filter]:
        one, other = self.one(), self.one()
        if self.asked and self.draw(2):
            one = self.asked[self.draw(len(self.asked))]
        halves = [conjunction(one, other), conjunction(one, Not(Is(other, True)))]
        return ([one], [one, other], halves, [*halves, self.one()], halves[:1], [disjunction(one, other)])[self.draw(6)]

    def event(self) -> dict[str, Any]:
        """Any event, or one that somebody has asked for, often one that the rules do not allow now."""
        if self.asked and self.draw(4):
            found = admitted(self.asked[self.draw(len(self.asked))])
            if self.draw(2):
                mine = self.on.allowed[PRINCIPALS[self.draw(2)]]
                beyond = found & ~np.any([admitted(rule) for rule in mine], axis=0)
                found = beyond if beyond.any() else found
            places = np.flatnonzero(found)
            if len(places):
                return ALL_EVENTS[int(places[self.draw(len(places))])]
        return ALL_EVENTS[self.draw(len(ALL_EVENTS))]

    def publisher(self) -> None:
        self.sequence, self.epoch = 0, 1
        self.on.connect("pub")
        self.on.say("pub", Hello(versions=(2, 3), credentials=b"pub"))

    def publish(self) -> None:
        loose, *durable = [self.event() for _ in range(1 + self.draw(6))]
        numbered = [Publish.of(self.sequence + n, each) for n, each in enumerate(durable, 1)]
        self.sequence += len(numbered)
        self.on.say("pub", *numbered, Publish.of(0, loose))

    def arrive(self) -> None:
        if len(self.on.open) < 5:
            self.count += 1
            who = PRINCIPALS[self.draw(2)]
            name = f"{who}/{self.count}"
            self.on.open[name] = {}
            self.on.connect(name)
            session = f"{who}{self.draw(2)}" if self.draw(3) else ""
            self.on.say(name, Hello(session=session, credentials=who.encode()))

    def subscribe(self, name: str, number: SubNumber, queue: QueueNumber) -> None:
        share = "work" if self.draw(5) == 0 else ""
        since = Offset(1) if not share and self.draw(4) == 0 else None
        durable = None if share or self.draw(3) else False
        self.on.ask(name, Subscribe(number, self.wanted(), queue, durable, since=since, share=share))

    def answer(self, name: str) -> None:
        for queue, offsets in list(self.on.open[name].items()):
            some = tuple(Offset(each) for each in sorted(offsets) if self.draw(2) and each)
            if self.draw(2):
                self.on.say(name, Ack(QueueNumber(queue), Offset(0), tuple((o, Offset(o + 1)) for o in some)))
                for offset in some:
                    del offsets[offset]
            else:
                failed = tuple((offset, offsets[offset]) for offset in some)
                self.on.say(name, Nack(QueueNumber(queue), failed), ListDead(1, QueueNumber(queue)))
                self.on.say(name, RetryDead(2, QueueNumber(queue), some))

    def lose(self) -> None:
        """Groups do not fit into the log."""
        if self.on.persists:
            self.on.reject()
            self.commit()
            self.sequence, self.epoch = 0, self.epoch + 1
            self.on.say("pub", NewEpoch(self.epoch))

    def restart(self) -> None:
        """The broker starts again, often with other rules."""
        if self.draw(3):
            self.on.allowed = self.rules()
            self.on.options["rules"] = as_rules(self.on.allowed)
        self.on.open.clear()
        self.on.restart()
        self.publisher()

    def stall(self, name: str) -> None:
        """A connection does not read for a while, in which events come and rules change."""
        self.on.core.paused(ConnectionId(name))
        self.publish()
        self.commit()
        if self.draw(2):
            self.on.set_rules(self.rules())
        if self.draw(2):
            self.on.take(self.on.core.resumed(ConnectionId(name), self.on.now))

    def commit(self) -> None:
        while self.on.persists:
            self.on.commit()

    def step(self) -> None:
        on = self.on
        names = [*on.open]
        name = names[self.draw(len(names))] if names else ""
        number, queue = SubNumber(1 + self.draw(6)), QueueNumber(self.draw(3))
        what = self.draw(34)
        if what < 3:
            self.arrive()
        elif what < 12:
            self.publish()
        elif what < 14:
            on.set_rules(self.rules())
        elif what == 14:
            (self.lose, self.restart)[self.draw(2)]()
        elif what < 18:
            on.wait(self.draw(300))
        elif not name:
            return
        elif what < 25:
            self.subscribe(name, number, queue)
        elif what < 27:
            on.ask(name, Replace(number, self.wanted()))
        elif what == 27:
            on.say(name, Unsubscribe(number))
        elif what < 30:
            self.answer(name)
        elif what < 33:
            self.stall(name)
        elif self.draw(2):
            on.take(on.core.resumed(ConnectionId(name), on.now))
        else:
            on.cut(name)
            on.open.pop(name, None)
        if self.draw(3):
            self.commit()

    def all(self, steps: int) -> Watched:
        for _ in range(steps):
            self.step()
            self.on.core.check()
            self.on.hold_subscriptions()
        self.commit()
        self.on.wait(1_000_000)
        self.on.counted.update(self.on.core.counts)
        return self.on
