"""The player of recorded runs (thesis 5.8): the state at any step, what happened there, and two runs on one clock."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from weft.algebra.relate import overlaps
from weft.console.drawings import placed
from weft.drawing.layout import Spacing
from weft.errors import FilterError, OptionError, WeftError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.recording import Recording, RunState, RunStep

SUFFIX = ".weftrun"
RECORD = """mkdir -p runs
weft sim mobility --topology campus --protocols weft --busy --moves 20 --record runs/weft.weftrun
weft sim mobility --topology campus --protocols acyclic --busy --moves 20 --record runs/acyclic.weftrun
weft sim faults --brokers 5 --seed 7 --record runs/faults.weftrun
weft sim overlay --models covering --subscriptions 50 --events 20 --record runs/overlay.weftrun
weft sim ring --designs 'topic groups' --nodes 64 --subscriptions 200 --events 50 --record runs/ring.weftrun"""
_STEPS = 60  # steps of the list around the one that is shown
_ITEMS = 400  # items of a table
_BRIEF = 4  # messages and changes of a step in the list
_MARKS = 400


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the player shows: the state after a step, or at a time."""

    name: str
    step: Annotated[int, Meta(ge=0)] | None = None
    at: Annotated[int, Meta(ge=0)] | None = None  # microseconds; used without a step
    follow: str = ""  # a client, broker or node: only its steps are listed, and jumped to
    broker: str = ""  # whose tables are shown
    graph: bool = False  # all edges of the topology, not only those of the tree


class RunIndex(NamedTuple):
    """What a look at all steps of a recording found."""

    recording: Recording
    times: list[int]
    marks: list[tuple[int, str, str]]  # step, kind (failed, phase), text
    mentioned: dict[str, list[int]]  # the steps in which a name occurs
    kinds: dict[str, int]  # messages of each kind
    figures: dict[str, float]  # of the whole run


def run_names(folder: Path) -> list[str]:
    """The recordings of a folder."""
    if not folder.is_dir():
        return []
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}") if path.is_file())


def runs_list(folder: str) -> dict[str, Any]:
    """The recordings of a folder, with what they are of."""
    rows = []
    for name in run_names(Path(folder)):
        path = Path(folder) / f"{name}{SUFFIX}"
        try:
            recording = Recording(path)
        except WeftError as error:
            rows.append({"name": name, "problem": str(error), "steps": 0, "bytes": path.stat().st_size})
            continue
        meta = recording.meta
        rows.append(
            {
                "name": name,
                "kind": meta.get("kind", ""),
                "protocol": meta.get("protocol", ""),
                "topology": meta.get("topology", ""),
                "seed": meta.get("seed"),
                "steps": recording.size,
                "bytes": path.stat().st_size,
                "problem": "",
            }
        )
    return {"folder": folder, "runs": rows, "record": RECORD}


def opened(folder: str, name: str) -> RunIndex:
    """A recording of a folder, by its name. Raises WeftError if there is none."""
    if name not in run_names(Path(folder)):
        raise OptionError(f"there is no recording {name!r} in {folder}; record one with weft sim ... --record")
    path = Path(folder) / f"{name}{SUFFIX}"
    return _opened(str(path), path.stat().st_mtime_ns)


@lru_cache(4)
def _opened(path: str, _: int) -> RunIndex:
    recording = Recording(Path(path))
    times: list[int] = []
    marks: list[tuple[int, str, str]] = []
    mentioned: dict[str, list[int]] = {}
    kinds: Counter[str] = Counter()
    figures: dict[str, float] = {}
    for step in recording.steps():
        times.append(step.at)
        figures |= step.body.get("figures", {})
        for name, holds in step.body.get("assertions", {}).items():
            if not holds:
                marks.append((step.number, "failed", name))
        if step.phase and step.phase not in ("store", "publish", "subscribe", "match"):
            marks.append((step.number, "phase", step.phase))
        kinds.update(message[2] for message in step.body.get("messages", ()))
        for name in _names_of(step):
            mentioned.setdefault(name, []).append(step.number)
    return RunIndex(recording, times, marks, mentioned, dict(kinds.most_common()), figures)


def _names_of(step: RunStep) -> set[str]:
    """Whom a step is about."""
    body = step.body
    found = {str(end) for message in body.get("messages", ()) for end in message[:2]}
    found |= {str(name) for name in body.get("streams", {})}
    found |= {str(name) for name in body.get("states", {})}
    for table in body.get("tables", {}):
        parts = table.split("/")
        found.add(parts[1])
        found |= set(parts[2:3]) if parts[0] == "local" else set()
    note = body.get("note")
    for said in note if isinstance(note, list) and note and isinstance(note[0], list) else [note]:
        if isinstance(said, list) and said:
            found.add(str(said[0]))
            facts = said[1] if len(said) > 1 and isinstance(said[1], dict) else {}
            found |= {str(facts[key]) for key in ("client", "publisher", "at") if key in facts}
    return {name for name in found if name}


# -- one run -----------------------------------------------------------------------------------------------------


def run_view(folder: str, request: RunRequest) -> dict[str, Any]:
    """The state of a run after a step, or at a time."""
    index = opened(folder, request.name)
    recording = index.recording
    number = recording.size if request.step is None else min(request.step, recording.size)
    if request.step is None and request.at is not None:
        number = bisect_right(index.times, request.at)
    state = recording.state(number)
    here = next(iter(recording.steps(number - 1, number)), None) if number else None
    followed = index.mentioned.get(request.follow, []) if request.follow else []
    place = bisect_right(followed, number)
    return {
        "name": request.name,
        "meta": {key: recording.meta.get(key, "") for key in ("kind", "protocol", "topology", "seed")},
        "step": number,
        "steps": recording.size,
        "at": here.at if here is not None else 0,
        "last": index.times[-1] if index.times else 0,
        "now": None if here is None else _told(here),
        "marks": index.marks[:_MARKS],
        "failed": sum(kind == "failed" for _, kind, _ in index.marks),
        "names": sorted(index.mentioned, key=lambda name: (len(name), name))[:_ITEMS],
        "clients": sorted(state.streams),
        "previous": next((step for step in reversed(followed) if step < number), None),
        "next": followed[place] if place < len(followed) else None,
        "list": _listed(recording, number, followed if request.follow else None),
        "picture": run_picture(recording, state, here, request.graph),
        "tables": tables_of(state, request.broker) if request.broker else [],
        "kinds": index.kinds,
        "figures": index.figures,
    }


def _told(step: RunStep, most: int = _ITEMS) -> dict[str, Any]:
    """A step for people."""
    body = step.body
    note = body.get("note")
    notes = note if isinstance(note, list) and note and isinstance(note[0], list) else [note] if note else []
    return {
        "step": step.number,
        "at": step.at,
        "phase": step.phase,
        "messages": [[str(part)[:_ITEMS] for part in message] for message in body.get("messages", ())[:most]],
        "more": max(0, len(body.get("messages", ())) - most),
        "changes": [
            {"table": table_title(table), "drop": len(change["drop"]), "add": list(change["add"].values())[:most]}
            for table, change in list(body.get("tables", {}).items())[:most]
            if change["drop"] or change["add"]
        ],
        "streams": body.get("streams", {}),
        "states": body.get("states", {}),
        "assertions": body.get("assertions", {}),
        "notes": [_note(said) for said in notes],
    }


def table_title(name: str) -> str:
    """The name of a table for people."""
    plane, broker, *rest = name.split("/")
    if plane == "local":
        return f"{broker}, {rest[0] if rest else 'own clients'}"
    return f"{broker}, {rest[0]}" if rest[1:] == ["ring"] else f"{broker}, {rest[1]} from {rest[0]}"


def _note(said: Any) -> str:
    if not isinstance(said, list):
        return str(said)
    parts = (", ".join(f"{key} {value}" for key, value in p.items()) if isinstance(p, dict) else str(p) for p in said)
    return " ".join(parts)


def _listed(recording: Recording, number: int, followed: list[int] | None) -> list[dict[str, Any]]:
    """Steps around one, or those of whom one follows."""
    if followed is None:
        first = max(0, number - _STEPS // 2)
        return [_told(step, _BRIEF) for step in islice(recording.steps(first, first + _STEPS), _STEPS)]
    place = bisect_right(followed, number)
    near = followed[max(0, place - _STEPS // 2) : place + _STEPS // 2]
    return [_told(step, _BRIEF) for each in near for step in recording.steps(each - 1, each)]


def tables_of(state: RunState, broker: str) -> list[dict[str, Any]]:
    """The tables of a broker or node."""
    found = []
    for name, items in sorted(state.tables.items()):
        parts = name.split("/")
        if parts[1] != broker:
            continue
        title = table_title(name).partition(", ")[2]
        rows = [{"number": number, "item": item} for number, item in list(items.items())[:_ITEMS]]
        found.append({"table": title, "count": len(items), "rows": rows})
    return found


# -- the picture ----------------------------------------------------------------------------------------------------


def run_picture(recording: Recording, state: RunState, here: RunStep | None, graph: bool) -> dict[str, Any]:
    """Brokers and links with their state, and the messages of the step."""
    meta = recording.meta
    names = brokers_of(recording, state)
    at = places(recording, names)
    number = {name: index for index, name in enumerate(names)}
    tables = Counter[tuple[str, str]]()
    for table, items in state.tables.items():
        parts = table.split("/")
        tables[parts[1], "local" if parts[0] == "local" else parts[-1]] += len(items)
    complete = streams_complete(state)
    clients = Counter(place for place in state.streams.values() if place >= 0) if meta.get("kind") != "ring" else {}
    nodes = [
        {
            "name": name,
            "at": at[name],
            "state": state.states.get(name, "up"),
            "clients": clients.get(index, 0),
            "local": tables[name, "local"],
            "subscriptions": tables[name, "subscriptions"],
            "adverts": tables[name, "advertisements"],
            "streams": complete.get(name, 0),
        }
        for index, name in enumerate(names)
    ]
    wanted = meta.get("graph", []) if graph and meta.get("graph") else meta.get("links", [])
    tree = {frozenset(map(str, link)) for link in meta.get("links", [])}
    links = [
        {
            "a": number[str(a)],
            "b": number[str(b)],
            "state": state.states.get(f"{a}-{b}", state.states.get(f"{b}-{a}", "up")),
            "tree": frozenset((str(a), str(b))) in tree,
        }
        for a, b in (link[:2] for link in wanted)
        if str(a) in number and str(b) in number
    ]
    messages = [] if here is None else here.body.get("messages", ())
    moving = [
        [number[str(a)], number[str(b)], str(kind)]
        for a, b, kind, *_ in messages
        if str(a) in number and str(b) in number
    ]
    return {"nodes": nodes, "links": links, "messages": moving[:50], "ring": meta.get("kind") == "ring"}


def brokers_of(recording: Recording, state: RunState) -> list[str]:
    """The names of brokers or nodes, in their order."""
    meta = recording.meta
    if meta.get("kind") == "ring":
        return sorted(state.streams, key=lambda name: state.streams[name])
    if meta.get("brokers"):
        return [str(name) for name in meta["brokers"]]
    return [str(number) for number in range(len(meta.get("places", ())))]


def places(recording: Recording, names: list[str]) -> dict[str, tuple[float, float]]:
    """Where brokers are drawn: by the tree, not by their places on earth (thesis 5.8); on a circle for a ring."""
    meta = recording.meta
    if meta.get("kind") == "ring":
        size = max(1, int(meta.get("space", 1)))
        turns = {name: int(name.lstrip("n") or 0) / size if name.lstrip("n").isdecimal() else 0.0 for name in names}
        return {
            name: (round(500 + 460 * math.sin(math.tau * t), 1), round(500 - 460 * math.cos(math.tau * t), 1))
            for name, t in turns.items()
        }
    return _tree_places(tuple(names), tuple((str(a), str(b)) for a, b, *_ in meta.get("links", ())))


@lru_cache(16)
def _tree_places(names: tuple[str, ...], links: tuple[tuple[str, str], ...]) -> dict[str, tuple[float, float]]:
    number = {name: index for index, name in enumerate(names)}
    near: dict[int, list[int]] = {index: [] for index in range(len(names))}
    for a, b in links:
        near[number[a]].append(number[b])
        near[number[b]].append(number[a])
    below: list[list[int]] = [[] for _ in names]
    seen: set[int] = set()
    for start in range(len(names)):
        if start in seen:
            continue
        seen.add(start)
        todo = [start]
        for node in todo:
            fresh = [other for other in near[node] if other not in seen]
            seen.update(fresh)
            below[node] += fresh
            todo += fresh
    drawn = placed([44.0] * len(names), below, Spacing(row=44.0, gap=14.0, between=120.0))
    return {name: tuple(drawn["at"][index]) for index, name in enumerate(names)}


def streams_complete(state: RunState) -> dict[str, int]:
    """For each broker the subscriptions that meet an advertisement there: the connected streams of the thesis."""
    subs: dict[str, list[str]] = {}
    adverts: dict[str, list[str]] = {}
    for table, items in state.tables.items():
        parts = table.split("/")
        if parts[0] != "local" and len(parts) == 4:
            side = {"subscriptions": subs, "advertisements": adverts}.get(parts[3])
            if side is not None:
                side.setdefault(parts[1], []).extend(items.values())
    return {
        broker: sum(any(_meet(one, other) for other in set(adverts[broker])) for one in some)
        for broker, some in subs.items()
        if broker in adverts
    }


@lru_cache(4_096)
def _meet(one: str, other: str) -> bool:
    first, second = _filter(one), _filter(other)
    return first is not None and second is not None and overlaps(first, second)


@lru_cache(2_048)
def _filter(text: str) -> Filter | None:
    try:
        return parse(text)
    except FilterError:
        return None  # an item of a model with cells


# -- two runs on one clock -------------------------------------------------------------------------------------------


def compare_view(folder: str, one: RunRequest, other: str) -> dict[str, Any]:
    """A run and another one at the same time; the first decides which."""
    first = run_view(folder, one)
    second = run_view(folder, RunRequest(other, at=first["at"], follow=one.follow, broker=one.broker, graph=one.graph))
    return {"one": first, "other": second}
