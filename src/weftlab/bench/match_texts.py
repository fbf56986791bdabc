"""Rules of the kinds that programs have, which are no ranges: URLs with a common beginning, log lines, e-mail domains,
and events with few of many attributes. Weft against an automaton, a query engine and plain Python, as in `match`.

Events are mappings, one by one and in batches, as a program has them. Peers get the same mappings; what they make of
them first is part of their time. Each is written for its workload, as somebody would who has only this one to serve.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from weft.index import TreeIndex
from weftlab.bench.report import timed

BATCH = 4_096
EVENTS, QUICK_EVENTS = 20_000, 4_000
_ATTRIBUTES, _EACH = 5_000, 10  # of all sparse events, and of one
_SINGLE = 1_000  # events that are matched one by one

TextEvent = Mapping[str, Any]
Rule = tuple[str, Any]  # what a peer needs to know of a rule: a text or an attribute, and what else it tests


@dataclass(frozen=True, slots=True)
class TextRules:
    """Rules as filters and as peers take them, and events."""

    texts: list[str]
    rules: list[Rule]
    events: list[TextEvent]

    def __len__(self) -> int:
        return len(self.texts)


def urls(n: int, events: int, seed: int = 1) -> TextRules:
    """Pages of one shop: all rules have their first 34 bytes in common."""
    return _pages("https://shop.example.com/products/{:06d}", n, events, seed)


def urls_apart(n: int, events: int, seed: int = 1) -> TextRules:
    """The same rules with the number in front: nothing is common at the beginning. A measure for `urls`."""
    return _pages("{:06d}.products/https://shop.example.com/", n, events, seed)


def _pages(form: str, n: int, events: int, seed: int) -> TextRules:
    rng = np.random.default_rng(seed)
    pages = [form.format(number) for number in rng.permutation(n).tolist()]
    visits = rng.integers(0, n + n // 4 + 1, events).tolist()  # a fifth of the events is of pages without a rule
    lines = [f"GET {form.format(page)}?session={page % 97}" for page in visits]
    return TextRules([f"url LIKE '%{page}%'" for page in pages], [(page, None) for page in pages], _said("url", lines))


def logs(n: int, events: int, seed: int = 1) -> TextRules:
    """Lines of a few programs: a rule names one error of one, and a level."""
    rng = np.random.default_rng(seed)
    forms = [f"{host}.eu-west-1.internal kernel: [component={part}] request failed with error code {{:05d}} (retryable"
             for host in ("gateway", "ledger", "search") for part in ("db", "net")]  # fmt: skip
    levels = ("WARN", "ERROR", "FATAL")
    wanted = [(forms[n % 6].format(n // 6), levels[k]) for n, k in enumerate(rng.integers(0, 3, n).tolist())]
    drawn = zip(rng.integers(0, 6, events).tolist(), rng.integers(0, n // 5 + 1, events).tolist(), strict=True)
    lines = [f"2026-03-01T12:00:00Z {forms[form].format(code)}=true)" for form, code in drawn]
    chosen = rng.integers(0, 3, events).tolist()
    happened = [{"line": line, "level": levels[at]} for line, at in zip(lines, chosen, strict=True)]
    return TextRules([f"line LIKE '%{text}%' AND level = '{level}'" for text, level in wanted], [*wanted], [*happened])


def mails(n: int, events: int, seed: int = 1) -> TextRules:
    """E-mail of certain domains: suffixes."""
    rng = np.random.default_rng(seed)
    domains = [f"@mail{number}.example.{['com', 'org', 'net'][number % 3]}" for number in range(n)]
    said = [f"user{k % 1_000}{domains[k]}" for k in rng.integers(0, n, events).tolist()]
    return TextRules(
        [f"sender LIKE '%{each}'" for each in domains], [(each, None) for each in domains], _said("sender", said)
    )


def sparse(n: int, events: int, seed: int = 1) -> TextRules:
    """Measurements under 5,000 names, of which an event has ten and a rule tests one."""
    rng = np.random.default_rng(seed)
    tested = list(zip(rng.integers(0, _ATTRIBUTES, n).tolist(), rng.integers(0, 1_000, n).tolist(), strict=True))
    rules: list[Rule] = [(f"a{name}", bound) for name, bound in tested]
    names, values = (
        rng.integers(0, _ATTRIBUTES, (events, _EACH)).tolist(),
        rng.integers(0, 200, (events, _EACH)).tolist(),
    )
    happened = [
        {f"a{name}": value for name, value in zip(*each, strict=True)} for each in zip(names, values, strict=True)
    ]
    return TextRules([f"{name} > {bound}" for name, bound in rules], rules, [*happened])


def tags(n: int, events: int, seed: int = 1) -> TextRules:
    """Tags of articles, half as many as rules: a rule names one, and an event has a list of ten."""
    rng = np.random.default_rng(seed)
    known = [f"tag-{number:05d}" for number in range(max(1, n // 2))]
    wanted = [known[at] for at in rng.integers(0, len(known), n).tolist()]
    lists = [[known[at] for at in sorted(set(each))] for each in rng.integers(0, len(known), (events, _EACH)).tolist()]
    return TextRules(
        [f"tags HAS '{each}'" for each in wanted], [(each, None) for each in wanted], [{"tags": each} for each in lists]
    )


def _said(name: str, texts: Sequence[str]) -> list[TextEvent]:
    return [{name: text} for text in texts]


# -- peers -------------------------------------------------------------------------------------------


class TextPeer(Protocol):
    """What finds the rules of events."""

    def match(self, events: Sequence[TextEvent]) -> int:
        """Find all pairs of event and rule, and say how many there are."""


class TextAutomaton:
    """An automaton of all texts; the level of a rule is compared in Python."""

    name, module = "ahocorasick_rs", "ahocorasick_rs"

    def __init__(self, given: TextRules) -> None:
        self._rules: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        for number, (text, level) in enumerate(given.rules):
            self._rules[text].append((number, level))
        self._texts = list(self._rules)
        self._automaton = import_module(self.module).AhoCorasick(self._texts)
        self._attribute = next(iter(given.events[0]))

    def match(self, events: Sequence[TextEvent]) -> int:
        """Event by event."""
        found = 0
        for event in events:
            hits = {hit[0] for hit in self._automaton.find_matches_as_indexes(event[self._attribute], overlapping=True)}
            rules = [each for hit in hits for each in self._rules[self._texts[hit]]]
            found += len([number for number, level in rules if level is None or event["level"] == level])
        return found


class DomainDictionary:
    """A dictionary of domains."""

    name, module = "dict", ""

    def __init__(self, given: TextRules) -> None:
        self._rules: dict[str, list[int]] = defaultdict(list)
        for number, (domain, _) in enumerate(given.rules):
            self._rules[domain].append(number)

    def match(self, events: Sequence[TextEvent]) -> int:
        """Event by event."""
        return sum(len(self._rules.get("@" + event["sender"].rpartition("@")[2], ())) for event in events)


class BoundDictionary:
    """The sorted bounds of each attribute."""

    name, module = "dict", ""

    def __init__(self, given: TextRules) -> None:
        rules: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, (name, bound) in enumerate(given.rules):
            rules[name].append((bound, number))
        self._rules = {name: tuple(zip(*sorted(some), strict=True)) for name, some in rules.items()}

    def match(self, events: Sequence[TextEvent]) -> int:
        """Event by event."""
        found = 0
        for event in events:
            for name, value in event.items():
                if name in self._rules:
                    bounds, numbers = self._rules[name]
                    found += len(numbers[: bisect_left(bounds, value)])
        return found


class TagDictionary:
    """The rules of each tag."""

    def __init__(self, given: TextRules) -> None:
        self._rules: dict[str, list[int]] = defaultdict(list)
        for number, (tag, _) in enumerate(given.rules):
            self._rules[tag].append(number)

    def match(self, events: Sequence[TextEvent]) -> int:
        """The rules of all tags of an event, one list after the other."""
        rules, nothing = self._rules, list[int]()
        found = [[rule for tag in event["tags"] for rule in rules.get(tag, nothing)] for event in events]
        return sum(map(len, found))


class TextJoin:
    """One join in DuckDB for a batch: by substring, by domain, or by name and value."""

    name, module = "duckdb", "duckdb"

    def __init__(
        self, given: TextRules, condition: str, rows: Callable[[Sequence[TextEvent]], Iterator[tuple[Any, ...]]]
    ) -> None:
        self._duckdb = import_module(self.module).connect()
        self._duckdb.execute("SET threads = 1")
        first, second = zip(*given.rules, strict=True)
        rules = pa.table({"rule": np.arange(len(given)), "first": pa.array(first), "second": pa.array(second)})
        self._duckdb.register("given", rules)
        self._duckdb.execute("CREATE TABLE rules AS SELECT * FROM given")
        self._sql = f"SELECT e.event, r.rule FROM happened e JOIN rules r ON {condition}"
        self._rows = rows

    def match(self, events: Sequence[TextEvent]) -> int:
        """One query for the batch, its result an Arrow table."""
        number, first, second = zip(*self._rows(events), strict=True)
        happened = pa.table({"event": pa.array(number), "first": pa.array(first), "second": pa.array(second)})
        self._duckdb.register("happened", happened)
        found: int = self._duckdb.sql(self._sql).to_arrow_table().num_rows
        return found


def _lines(events: Sequence[TextEvent]) -> Iterator[tuple[Any, ...]]:
    """An event a row: its text, and its level if it has one."""
    return ((at, next(iter(event.values())), event.get("level", "")) for at, event in enumerate(events))


def _values(events: Sequence[TextEvent]) -> Iterator[tuple[Any, ...]]:
    """A row for each attribute of an event."""
    return ((at, name, value) for at, event in enumerate(events) for name, value in event.items())


def _tagged(events: Sequence[TextEvent]) -> Iterator[tuple[Any, ...]]:
    """A row for each tag of an event."""
    return ((at, tag, "") for at, event in enumerate(events) for tag in event["tags"])


_BY_TEXT = partial(TextJoin, condition="contains(e.first, r.first)", rows=_lines)
_BY_LINE = partial(TextJoin, condition="e.second = r.second AND contains(e.first, r.first)", rows=_lines)
_BY_DOMAIN = partial(TextJoin, condition="'@' || split_part(e.first, '@', 2) = r.first", rows=_lines)
_BY_TAG = partial(TextJoin, condition="e.first = r.first", rows=_tagged)
_BY_VALUE = partial(TextJoin, condition="e.first = r.first AND e.second > r.second", rows=_values)

Maker = Callable[[TextRules], TextPeer]
SETS: dict[str, tuple[Callable[[int, int], TextRules], dict[str, Maker]]] = {
    "urls": (urls, {"ahocorasick_rs": TextAutomaton, "duckdb": _BY_TEXT}),
    "logs": (logs, {"ahocorasick_rs": TextAutomaton, "duckdb": _BY_LINE}),
    "mails": (mails, {"dict": DomainDictionary, "duckdb": _BY_DOMAIN}),
    "tags": (tags, {"dict": TagDictionary, "duckdb": _BY_TAG}),
    "sparse": (sparse, {"dict": BoundDictionary, "duckdb": _BY_VALUE}),
}


# -- figures -----------------------------------------------------------------------------------------


def measure_texts(
    name: str, size: int, budget: float, quick: bool, progress: Callable[[str], None]
) -> dict[str, float | None]:
    """The figures of one workload by name; those of a peer that is not installed are None."""
    make, peers = SETS[name]
    progress(f"{name} with {size:,} rules")
    given = make(size, QUICK_EVENTS if quick else EVENTS)
    figures, counts = _ours(given)
    if name == "urls":
        apart, _ = _ours(urls_apart(size, len(given.events)))
        figures["vs_apart"] = figures["us_per_event"] / apart["us_per_event"]
        figures["single_vs_apart"] = figures["single_match_us"] / apart["single_match_us"]
    found: dict[str, float | None] = {**figures}
    ratios: list[float | None] = []
    for peer, build in peers.items():
        seconds = None
        if peer == "dict" or find_spec(peer) is not None:
            progress(f"{peer} on {name} with {size:,} rules")
            seconds = _paced(build(given), given.events, counts, budget)
        found[f"{peer}_us_per_event"] = seconds and 1e6 * seconds
        ratios.append(seconds and 1e6 * seconds / figures["us_per_event"])
        found[f"vs_{peer}"] = ratios[-1]
    known = [ratio for ratio in ratios if ratio is not None]
    found["vs_best_peer"] = min(known) if len(known) == len(ratios) else None
    return found


def _ours(given: TextRules) -> tuple[dict[str, float], Any]:
    """Our figures, and how many matches each event has."""
    few = TreeIndex()
    few.add_texts(range(20), given.texts[:20])  # compiles, or loads what was compiled
    few.match(given.events[0])
    few.match_batch(given.events[:3])
    index = TreeIndex()
    build_seconds, _ = timed(lambda: index.add_texts(np.arange(len(given)), given.texts))
    index.match(given.events[-1])
    seconds, counts = 0.0, []
    for first in range(0, len(given.events), BATCH):
        took, found = timed(partial(_with_ids, index, given.events[first : first + BATCH]))
        seconds += took
        counts.append(found.counts)
    per_event = np.concatenate(counts)
    few_events = given.events[:_SINGLE]
    single_seconds, alone = timed(lambda: [index.match(event) for event in few_events])
    assert [len(ids) for ids in alone] == per_event[:_SINGLE].tolist(), "one by one must be as in a batch"
    figures = {
        "us_per_event": 1e6 * seconds / len(per_event),
        "single_match_us": 1e6 * single_seconds / len(few_events),
        "build_per_s": len(given) / build_seconds,
        "bytes_per_subscription": index.stats().bytes_per_subscription,
    }
    return figures, per_event


def _with_ids(index: TreeIndex, events: Sequence[TextEvent]) -> Any:
    found = index.match_batch(events)
    assert len(found.ids) == found.offsets[-1]
    return found


def _paced(peer: TextPeer, events: Sequence[TextEvent], counts: Any, budget: float) -> float:
    """Seconds that a peer takes for an event, in batches that grow as its time allows; it finds what we find."""
    peer.match(events[:1])
    first, size, spent = 0, 8, 0.0
    last = 0.0
    while first < len(events) and spent < budget:
        some = events[first : first + size]
        last, found = timed(partial(peer.match, some))
        expected = int(counts[first : first + len(some)].sum())
        assert found == expected, f"{type(peer).__name__} found {found} matches, Weft {expected}"
        last, spent, first = last / len(some), spent + last, first + len(some)
        size = min(BATCH, 8 * size)
    return last
