"""Living profiles and queries: the cost of a change, memory, patterns within their type, and events beside profiles.

Pairs are compared with those of plain sets where the sets are small enough to run.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any

from weft.algebra.profile import Meeting, Profile
from weft.language.text import parse
from weft.network.cores import BrokerWork, MemoryBroker
from weft.profiles.directory import Directory
from weft.protocol.messages import NEWEST, Publish, PublishProfile, Subscribe, SubscribeProfiles
from weftlab.bench.report import Progress, Result

GOALS = {"change_ms": 2.0, "memory_mb": 1_000.0, "events_ratio": 1.02, "preloaded_comparisons": 0.0}
PAGE = resource.getpagesize()
_CHANGES = 300  # that are timed
_CHECKED = 2_000  # profiles, and queries, whose pairs are compared one by one


def run(quick: bool, progress: Progress) -> list[Result]:
    """All figures."""
    size = 5_000 if quick else 100_000
    results = [each for meeting in Meeting for each in _changes(meeting, size, progress)]
    results += _patterns(200 if quick else 1_000, progress)
    return results + _events(progress)


def _region(rng: Random, side: float, wide: float) -> str:
    x, y = rng.uniform(0, side), rng.uniform(0, side)
    return f"x BETWEEN {x:.4f} AND {x + wide:.4f} AND y BETWEEN {y:.4f} AND {y + wide:.4f}"


def _fill(directory: Directory, meeting: Meeting, size: int, rng: Random) -> None:
    side = size**0.5  # a query meets a few profiles, whatever the size
    for number in range(size):
        directory.add_query(number, parse(_region(rng, side, 2.0)), meeting)
    for number in range(size):
        directory.add_profile(Profile("s", str(number), _region(rng, side, 1.0)))


def _changes(meeting: Meeting, size: int, progress: Progress) -> list[Result]:
    """Processor time of one change, of a profile and of a query, with `size` of each, and the memory of all."""
    place, rng = f"{meeting}/{size}", Random(1)
    progress(f"{size:,} profiles and queries, by {meeting}")
    if size > _CHECKED:
        few = Directory()
        _fill(few, meeting, _CHECKED, Random(2))
        few.check()
    directory = Directory()
    before = _resident()
    _fill(directory, meeting, size, rng)
    kept = _resident() - before
    side = size**0.5
    profile, query = [], []
    for number in range(_CHANGES):
        made = Profile("s", str(rng.randrange(size)), _region(rng, side, 1.0), version=number + 2)
        profile.append(_timed(partial(directory.add_profile, made)))
        wanted = parse(_region(rng, side, 2.0))
        query.append(_timed(partial(directory.add_query, rng.randrange(size), wanted, meeting)))
    changes = sorted([*profile, *query])
    return [
        Result(f"{place}/change_ms", 1e3 * sum(changes) / len(changes), "ms", GOALS["change_ms"], "lower"),
        Result(f"{place}/change_p99_ms", 1e3 * changes[len(changes) * 99 // 100], "ms", None, "lower"),
        Result(f"{place}/memory_mb", kept / 1e6, "MB", GOALS["memory_mb"], "lower"),
        Result(f"{place}/pairs", sum(len(directory.profiles_of(each)) for each in range(size)), "pairs"),
    ]


def _patterns(size: int, progress: Progress) -> list[Result]:
    """A query with LIKE among `size` profiles with LIKE: of one type, and of a hundred, which are never compared."""
    results: list[Result] = []
    for kinds in (1, 100):
        progress(f"{size:,} patterns of {kinds} types")
        directory, rng = Directory(), Random(3)
        for number in range(size):
            text = f"type = 't{number % kinds}' AND name LIKE '%{rng.randrange(10_000)}%'"
            directory.add_profile(Profile("s", str(number), text))
        asked = [parse(f"type = 't{rng.randrange(kinds)}' AND name LIKE '%{each}%'") for each in range(60)]
        times = [
            _timed(partial(directory.add_query, number, each, Meeting.OVERLAP)) for number, each in enumerate(asked)
        ]
        results.append(Result(f"like/{size}/query_ms_of_{kinds}_types", 1e3 * median(times), "ms", None, "lower"))
    directory = Directory()
    for number in range(size):
        directory.add_profile(Profile("s", str(number), _region(Random(number), 30, 1.0)))
    expected = [parse(_region(Random(-number), 30, 2.0)) for number in range(1, 51)]
    directory.preload((), expected, Meeting.OVERLAP)
    before = directory.comparisons
    for number, each in enumerate(expected):
        directory.add_query(number, each, Meeting.OVERLAP)
    more, goal = directory.comparisons - before, GOALS["preloaded_comparisons"]
    return [*results, Result(f"preloaded/{size}/comparisons", more, "comparisons", goal, "lower")]


def _events(progress: Progress) -> list[Result]:
    """Processor time of events that are no profiles: a broker with 1,000 profiles and 100 queries, and one without.

    Both are measured in turn, in one run.
    """
    progress("events beside profiles")
    spent = {"with": list[float](), "without": list[float]()}
    brokers = {name: _broker(name == "with") for name in spent}
    sequence = 0
    for _ in range(40):
        sequence += 200
        for name, (broker, times) in ((each, (brokers[each], spent[each])) for each in spent):
            events = [Publish.of(sequence - 199 + at, {"x": at % 100, "z": name}) for at in range(200)]
            times.append(_timed(partial(broker.say, "meter", *events)))
    ratio = median(spent["with"]) / median(spent["without"])
    return [Result("events/1000/with_profiles_ratio", ratio, "x", GOALS["events_ratio"], "lower")]


def _broker(profiles: bool) -> MemoryBroker:
    broker = MemoryBroker(recorded=False, run=_plain)
    for client in ("meter", "station", "driver"):
        broker.hello(client, versions=(2, NEWEST))
    rng = Random(5)
    for number in range(100):
        wanted = Subscribe(number, f"x = {number} AND z = 'q'", number)  # type: ignore[arg-type]
        if profiles:
            broker.say("driver", SubscribeProfiles(wanted, "overlap"))
        else:
            broker.say("driver", wanted)
    for number in range(1_000 if profiles else 0):
        broker.say("station", PublishProfile(number, str(number), _region(rng, 30, 1.0), 3_600_000_000))
    return broker


def _plain(_: str, __: BrokerWork, work: Callable[[], Any]) -> Any:
    return work()


def _resident() -> int:
    """The bytes that the process takes. The allocator gives freed memory back late, so it is an upper bound."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _timed(work: Callable[[], Any]) -> float:
    start = process_time()
    work()
    return process_time() - start
