"""Profiles and queries in two forests (thesis 6.8.3, 7): which match, by covering or overlap, and what that costs."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from weft.algebra.profile import Meeting
from weft.algebra.relate import overlaps
from weft.console.views.filter_steps import Generator, usable
from weft.console.views.orders import Check
from weft.console.views.panels import panel
from weft.errors import OptionError
from weft.language.ast import Filter
from weft.order import FilterRelation, Node
from weft.profiles import DoubleForest, TwoSets
from weft.profiles.profile_forest import Side, identities

MOST = 400  # profiles, and queries
_LISTED = 200
_PRELOADS = ("none", "right", "wrong")


class ContextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page shows. Steps add profiles and queries in turn, then follow the edits.

    An edit is `+P FILTER` or `+Q FILTER` (a new profile or query), `-NAME` (it ends), or `=NAME FILTER` (it moves).
    """

    generator: Generator = Generator(filters=0)
    profiles: Annotated[int, Meta(ge=0, le=MOST)] = 20
    queries: Annotated[int, Meta(ge=0, le=MOST)] = 12
    overlap: bool = False
    bounds: bool = True
    preload: str = "none"  # right: what is added later; wrong: other things
    edits: Annotated[tuple[Annotated[str, Meta(max_length=1 << 14)], ...], Meta(max_length=500)] = ()
    step: Annotated[int, Meta(ge=0)] | None = None  # None: all
    query: str = ""  # the query whose contents are followed
    first: Annotated[int, Meta(ge=1, le=800)] = 300


class ContextStep(NamedTuple):
    """A profile or query comes or goes."""

    adds: bool
    query: bool
    name: str
    filter: Filter

    @property
    def text(self) -> str:
        """For people."""
        return f"{'add' if self.adds else 'remove'} {'query' if self.query else 'profile'} {self.name}: {self.filter}"


def context_steps(request: ContextRequest) -> list[ContextStep]:
    """All steps. Raises FilterSyntaxError or OptionError for an edit that cannot be read."""
    draw = msgspec.structs.replace
    profiles = draw(request.generator, filters=request.profiles).draw()
    queries = draw(request.generator, filters=request.queries, seed=request.generator.seed + 1_000_003).draw()
    steps: list[ContextStep] = []
    for number in range(max(len(profiles), len(queries))):
        for query, drawn, letter in ((True, queries, "Q"), (False, profiles, "P")):
            if number < len(drawn):
                steps.append(ContextStep(True, query, f"{letter}{number + 1}", drawn[number][0]))
    known = {step.name: step for step in steps}
    numbers = {"P": len(profiles), "Q": len(queries)}
    for edit in request.edits:
        sign, (name, _, text) = edit[:1], edit[1:].strip().partition(" ")
        if sign == "+" and name in numbers and text:
            numbers[name] += 1
            made = ContextStep(True, name == "Q", f"{name}{numbers[name]}", usable(text))
            known[made.name] = made
            steps.append(made)
        elif sign in "-=" and edit and name in known and bool(text) == (sign == "="):
            gone = known.pop(name)
            steps.append(gone._replace(adds=False))
            if sign == "=":
                known[name] = gone._replace(filter=usable(text))
                steps.append(known[name])
        else:
            raise OptionError(f"{edit!r} is not an edit; write +P FILTER, +Q FILTER, -NAME or =NAME FILTER")
    return steps


def context_view(request: ContextRequest) -> dict[str, Any]:
    """What the page shows."""
    meeting = Meeting.OVERLAP if request.overlap else Meeting.COVERING
    steps = context_steps(request)
    shown = len(steps) if request.step is None else min(request.step, len(steps))
    forest = DoubleForest.of_filters(meeting=meeting, bounds=request.bounds, indexed=False)
    sets = two_sets(meeting)
    if request.preload != "none":
        right = request.preload == "right"
        other = msgspec.structs.replace(request.generator, seed=request.generator.seed + 7)
        loaded = steps if right else context_steps(msgspec.structs.replace(request, generator=other, edits=()))
        named = [step for step in loaded if step.adds]
        forest.preload([step.filter for step in named if not step.query], [s.filter for s in named if s.query])
    preloading = forest.comparisons
    costs: list[int] = []
    before: set[Any] = set()
    query = request.query or _liveliest(steps[:shown], meeting)
    for at, step in enumerate(steps[:shown]):
        if at == shown - 1:
            before = forest.profiles_of(query)
        counted = forest.comparisons
        apply(forest, step)
        apply(sets, step)
        costs.append(forest.comparisons - counted)
    after = forest.profiles_of(query)
    pairs = forest.pairs()
    last = steps[shown - 1] if shown else None
    return {
        "step": shown,
        "steps": len(steps),
        "last": last.text if last is not None else "",
        "meeting": str(meeting.value),
        "profiles": _side(forest.profiles, request.first, "P"),
        "queries": _side(forest.queries, request.first, "Q"),
        "pairs": len(pairs),
        "by_query": _rows(forest, steps[:shown], query=True),
        "by_profile": _rows(forest, steps[:shown], query=False),
        "cost": {
            "preloading": preloading,
            "steps": sum(costs),
            "last": costs[-1] if costs else 0,
            "naive": sets.comparisons,
        },
        "collection": {
            "query": query,
            "members": _names(after),
            "joined": _names(after - before),
            "left": _names(before - after),
            "why": _why(last, query, meeting, bool(after - before), bool(before - after)),
        },
        "checks": [each.shown() for each in _checks(forest, sets)],
    }


def _liveliest(steps: list[ContextStep], meeting: Meeting) -> str:
    """The query with the most profiles at the end, the first of several."""
    sets = two_sets(meeting)
    for step in steps:
        apply(sets, step)
    names = [step.name for step in steps if step.query and step.adds]
    return max(dict.fromkeys(names), key=lambda name: len(sets.profiles_of(name)), default="")


def _why(last: ContextStep | None, query: str, meeting: Meeting, joined: bool, left: bool) -> str:
    """Why the contents of a collection have changed with the last step."""
    if last is None or not (joined or left):
        return ""
    if last.query:
        return f"{query} itself was {'added' if last.adds else 'removed'}"
    if left:
        return f"{last.name} was removed"
    return f"{query} {'overlaps' if meeting is Meeting.OVERLAP else 'covers'} {last.name}"


def two_sets(meeting: Meeting) -> TwoSets[Any]:
    """The set-based algorithm: each with each."""
    relation = FilterRelation(indexed=False)
    return TwoSets(relation, overlaps=lambda one, other: overlaps(one.form, other.form), meeting=meeting)


def apply(target: Any, step: ContextStep) -> None:
    """Make a step in either structure."""
    kind = "query" if step.query else "profile"
    if step.adds:
        getattr(target, f"add_{kind}")(step.filter, step.name)
    else:
        getattr(target, f"discard_{kind}")(step.name)


def _side(side: Side[Any], first: int, mark: str) -> dict[str, Any]:
    names: dict[Node[Any], list[int]] = {node: [int(str(each)[1:]) for each in identities(node)] for node in side}
    found = panel(side, names, first, mark=mark)
    for node in found["nodes"]:
        node["kind"] += "" if node["numbers"] else " preloaded"
    return found


def _names(some: set[Any]) -> list[str]:
    return sorted(map(str, some), key=lambda name: (len(name), name))


def _rows(forest: DoubleForest[Any], steps: list[ContextStep], query: bool) -> list[dict[str, Any]]:
    side = forest.queries if query else forest.profiles
    of = forest.profiles_of if query else forest.queries_of
    texts = {step.name: str(step.filter) for step in steps}
    names = _names(set(side.held))[:_LISTED]
    return [{"name": name, "filter": texts[name], "matches": _names(of(name))} for name in names]


def _checks(forest: DoubleForest[Any], sets: TwoSets[Any]) -> list[Check]:
    one, other = forest.pairs(), sets.pairs()
    said = f"{len(one)} pairs, the same as by comparing each with each"
    if one != other:
        said = f"{len(one - other)} pairs too many, {len(other - one)} missing"
    try:
        forest.check()
        held = Check("invariants of both forests", True, "hold")
    except AssertionError as error:
        held = Check("invariants of both forests", False, str(error) or "an invariant is broken")
    return [Check("mappings", one == other, said), held]
