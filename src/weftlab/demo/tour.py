"""The tour of Weft that `weft demo` gives. Every number shown is computed from the events and filters; times do not
include compiling or loading code.

A chapter prints its part on a console and returns what it found as JSON-able facts. What anybody with rules and events
wants to see comes first, what brokers do with filters at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from weft.algebra.normalize import normalize
from weft.algebra.relate import covers
from weft.index.base import Matches
from weft.index.tree import TreeIndex
from weft.language.ast import Filter
from weft.language.builder import F
from weft.language.meaning import matches
from weft.model.event import Event
from weft.tables import plain_table
from weftlab.demo import earthquakes
from weftlab.demo.filters import SUBSCRIPTIONS, NamedFilter
from weftlab.demo.live import stay_up, through_a_broker
from weftlab.demo.mistakes import what_lint_finds
from weftlab.demo.order import in_order
from weftlab.demo.pipeline import matching_on_spark

ChapterFacts = dict[str, Any]

_BAR = 40
_FEW = 8
_MANY, _CHECKED = 100_000, 200


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the tour: its name in the facts, its title, and what plays it."""

    name: str
    title: str
    play: Callable[[Console, Sequence[Event]], ChapterFacts]


def tour(console: Console, chapters: Sequence[Chapter] | None = None) -> ChapterFacts:
    """Play the chapters, all of them unless told; the facts of each are under its name."""
    events = earthquakes.events()
    facts: ChapterFacts = {"source": earthquakes.SOURCE}
    for number, chapter in enumerate(CHAPTERS if chapters is None else chapters, 1):
        console.print()
        console.rule(Text(f"{number}  {chapter.title}", "bold"), align="left", style="dim")
        console.print()
        facts[chapter.name] = chapter.play(console, events)
    console.print()
    return facts


def stay(console: Console) -> None:
    """Keep a broker up, with the events replayed slowly, until Ctrl-C."""
    console.rule(Text("The broker stays up", "bold"), align="left", style="dim")
    console.print()
    stay_up(console, earthquakes.events())


def the_events(console: Console, events: Sequence[Event]) -> ChapterFacts:
    """How many there are, of which days, and from whom."""
    moments = [moment for event in events if isinstance(moment := event["time"], datetime)]
    first, last = min(moments), max(moments)
    days = Counter(f"{moment:%a %d %b}" for moment in sorted(moments))
    console.print(f"[bold]{len(events):,}[/] real seismic events, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC.")
    console.print(Text(f"Source: {earthquakes.SOURCE}.", "dim"))
    console.print()
    table = plain_table()
    table.add_column("day")
    table.add_column("events", justify="right")
    table.add_column("")
    most, sign = max(days.values()), "#" if console.options.ascii_only else "━"
    for day, count in days.items():
        table.add_row(day, str(count), Text(sign * round(_BAR * count / most), "cyan"))
    console.print(table)
    return {"count": len(events), "first": first.isoformat(), "last": last.isoformat(), "days": dict(days)}


def the_matches(console: Console, events: Sequence[Event]) -> ChapterFacts:
    """Which events reach which subscription, and the strongest of them."""
    console.print(
        "A rule is a filter over the columns of the table. It gets the events for which the filter is TRUE.\n"
    )
    table = plain_table()
    table.add_column("rule", no_wrap=True)
    table.add_column("purpose and filter", ratio=1)
    table.add_column("matches", justify="right", no_wrap=True)
    table.add_column("strongest", min_width=18, max_width=27)
    facts: ChapterFacts = {}
    for subscription in SUBSCRIPTIONS:
        matched = _matched(subscription, events)
        facts[subscription.name] = {"filter": subscription.text, "matches": len(matched)}
        example = Text("none")
        if matched:
            strongest = max(matched, key=_magnitude)
            magnitude, place = _magnitude(strongest), str(strongest["place"])
            facts[subscription.name] |= {"strongest": {"magnitude": magnitude, "place": place}}
            example = Text(f"{magnitude:.1f}  {place.partition(' of ')[2] or place}")
        said = Group(subscription.purpose, Padding(Text(subscription.text, "cyan"), (0, 0, 0, 2)))
        table.add_row(Text(subscription.name, "bold"), said, f"{len(matched):,}", example)
    console.print(table)
    return facts


def what_covering_saves(console: Console, events: Sequence[Event]) -> ChapterFacts:
    """A broker need not forward a subscription that another one covers."""
    covered = covered_by(SUBSCRIPTIONS)
    forwarded = [subscription for subscription in SUBSCRIPTIONS if subscription.name not in covered]
    wanted = _any_matched(SUBSCRIPTIONS, events)
    kept = _any_matched(forwarded, events)
    console.print(
        "One filter covers another if it matches every event that the other matches. A broker that has forwarded "
        "the wider filter need not forward the narrower one: its events arrive anyway.\n"
    )
    table = plain_table()
    table.add_column("not forwarded", no_wrap=True)
    table.add_column("every event that matches", ratio=1)
    table.add_column("also matches", ratio=1)
    texts = {subscription.name: subscription for subscription in SUBSCRIPTIONS}
    for narrow, wides in covered.items():
        wide = texts[wides[0]]
        said = Text.assemble((wide.name, "bold"), ": ", (wide.text, "cyan"))
        table.add_row(Text(narrow, "bold"), Text(texts[narrow].text, "cyan"), said)
    console.print(table)
    console.print(
        f"\nSo only [bold]{len(forwarded)}[/] of {len(SUBSCRIPTIONS)} filters are forwarded, and the same events "
        f"arrive: [bold]{kept:,}[/] of {len(events):,} match the {len(forwarded)}, and {wanted:,} match all "
        f"{len(SUBSCRIPTIONS)}."
    )
    return {
        "subscriptions": len(SUBSCRIPTIONS),
        "forwarded": [subscription.name for subscription in forwarded],
        "covered": covered,
        "events_wanted": wanted,
        "events_of_forwarded": kept,
    }


def many_subscriptions(console: Console, events: Sequence[Event]) -> ChapterFacts:
    """The same events against very many subscriptions, by an index."""
    rng = np.random.default_rng(2018)
    alerts = Alerts.drawn(rng, _MANY)
    with console.status("loading the index; its kernels are compiled once on a machine"):
        warm = TreeIndex()
        warm.add_columns(np.arange(_FEW), Alerts.drawn(rng, _FEW).bounds)
        warm.match_batch(events[:8])
    start = perf_counter()
    index = TreeIndex()
    index.add_columns(np.arange(_MANY), alerts.bounds)
    built = perf_counter() - start
    start = perf_counter()
    found = index.match_batch(events)
    elapsed = perf_counter() - start
    pairs = _pairs(rng, found)
    equal = sum((sub in found[event]) == matches(alerts.filter(sub), events[event]) for event, sub in pairs)
    most = int(np.argmax(found.counts))
    reached, each = int((found.counts > 0).sum()), elapsed / len(events) * 1e6
    console.print(
        "An index finds the rules that an event matches without evaluating each of them. These are random regions of "
        "the map, each with a minimum magnitude, such as\n"
    )
    console.print(Padding(Text(str(alerts.filter(0)), "cyan"), (0, 0, 1, 2)))
    table = plain_table()
    table.show_header = False
    table.add_column()
    table.add_column(justify="right")
    table.add_row("rules", f"{len(index):,}")
    table.add_row("time to build the index", f"{built:.2f} s")
    table.add_row("events", f"{len(events):,}")
    table.add_row("events that match a rule", f"{reached:,}")
    table.add_row("matches", Text(f"{len(found.ids):,}", "bold"))
    table.add_row("time per event", Text(f"{each:.1f} us", "bold"))
    console.print(table)
    console.print(
        f"\nThe event with the most matches, {found.counts[most]:,}: magnitude {_magnitude(events[most]):.1f}, "
        f"{events[most]['place']}.\nChecked against the definition of matching: [bold]{equal}[/] of {len(pairs)} pairs "
        "are equal."
    )
    return {
        "subscriptions": len(index),
        "events": len(events),
        "events_wanted": reached,
        "matches": len(found.ids),
        "seconds_to_build": built,
        "microseconds_per_event": each,
        "checked": len(pairs),
        "equal": equal,
    }


CHAPTERS: list[Chapter] = [
    Chapter("events", "A table of events", the_events),
    Chapter("matches", "Rules, and the events that match them", the_matches),
    Chapter("lint", "Rules that cannot match", what_lint_finds),
    Chapter("many", "A hundred thousand rules in an index", many_subscriptions),
    Chapter("live", "A live broker, killed halfway", through_a_broker),
    Chapter("pipeline", "Tables of rules against tables of events, on Spark", matching_on_spark),
    Chapter("covering", "For brokers: what covering saves", what_covering_saves),
    Chapter("order", "For brokers: the covering order", in_order),
]


@dataclass(frozen=True, slots=True)
class Alerts:
    """Subscriptions to regions, as columns: one row for each.

    >>> print(Alerts(*np.array([[59.0], [62.0], [-152.0], [-148.0], [2.5]])).filter(0))
    latitude BETWEEN 59.0 AND 62.0 AND longitude BETWEEN -152.0 AND -148.0 AND magnitude >= 2.5
    """

    south: NDArray[np.float64]
    north: NDArray[np.float64]
    west: NDArray[np.float64]
    east: NDArray[np.float64]
    magnitude: NDArray[np.float64]

    @staticmethod
    def drawn(rng: np.random.Generator, size: int) -> Alerts:
        """Alerts all over the map."""
        latitude, longitude = rng.uniform(-60, 70, size).round(1), rng.uniform(-175, 175, size).round(1)
        half = rng.choice([0.5, 1.0, 2.0, 5.0], size)
        magnitude = rng.choice([1.0, 2.5, 4.0, 5.0], size)
        return Alerts(
            south=(latitude - half).round(1),
            north=(latitude + half).round(1),
            west=(longitude - half).round(1),
            east=(longitude + half).round(1),
            magnitude=magnitude,
        )

    @property
    def bounds(self) -> dict[str, Any]:
        """The columns as an index takes them."""
        return {
            "latitude": (self.south, self.north),
            "longitude": (self.west, self.east),
            "magnitude": (self.magnitude, None),
        }

    def filter(self, row: int) -> Filter:
        """One of them as a filter."""
        return (
            F.latitude.between(float(self.south[row]), float(self.north[row]))
            & F.longitude.between(float(self.west[row]), float(self.east[row]))
            & (F.magnitude >= float(self.magnitude[row]))
        )


def covered_by(subscriptions: Sequence[NamedFilter]) -> dict[str, list[str]]:
    """The subscriptions that others cover, each with those that cover it; of equivalent ones the first is kept.

    >>> wide, narrow = NamedFilter("wide", "", "x > 1"), NamedFilter("narrow", "", "x > 2")
    >>> covered_by([narrow, wide, NamedFilter("same", "", "NOT x <= 1")])
    {'narrow': ['wide', 'same'], 'same': ['wide']}
    """
    forms = [normalize(subscription.filter) for subscription in subscriptions]
    covered: dict[str, list[str]] = {}
    for at, narrow in enumerate(forms):
        for other, wide in enumerate(forms):
            if at != other and covers(wide, narrow) and not (at < other and covers(narrow, wide)):
                covered.setdefault(subscriptions[at].name, []).append(subscriptions[other].name)
    return covered


def _pairs(rng: np.random.Generator, found: Matches) -> list[tuple[int, int]]:
    """Events and subscriptions to check: half of them found, half of any event and somebody who wants another."""
    half = _CHECKED // 2
    events = np.repeat(np.arange(len(found)), found.counts)
    places = rng.integers(0, len(events), 2 * half)
    events = np.concatenate([events[places[:half]], rng.integers(0, len(found), half)])
    return list(zip(events.tolist(), found.ids[places].tolist(), strict=True))


def _matched(subscription: NamedFilter, events: Sequence[Event]) -> list[Event]:
    wanted = subscription.filter
    return [event for event in events if matches(wanted, event)]


def _any_matched(subscriptions: Sequence[NamedFilter], events: Sequence[Event]) -> int:
    wanted = [subscription.filter for subscription in subscriptions]
    return sum(any(matches(filter, event) for filter in wanted) for event in events)  # noqa: A001


def _magnitude(event: Event) -> float:
    magnitude = event["magnitude"]
    return magnitude if isinstance(magnitude, float) else float("-inf")
