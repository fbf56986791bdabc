"""The portrait of a set of subscriptions as a page: one file without scripts, which loads nothing from a network. It is
light or dark as the reader's browser is. Every text of a filter is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.algebra.columns import ColumnPart
from weft.demand.demand_counts import DemandRanges, Fact
from weft.demand.predicate_kinds import PredicateKind
from weft.kernels.arrays import Floats
from weft.model.value import from_micros
from weft.spark import charts
from weft.spark.charts import clean
from weft.spark.event_statistics import AttributeSummary

if TYPE_CHECKING:
    from weft.spark.demand_report import Demand

_ATTRIBUTES = 24  # in charts
_CONSTANTS = 10
_POINTS = 97  # of a curve
_PAIRED = 16  # attributes in the heat map

_STYLE = """
:root { --ground: #f7f8fa; --card: #fff; --ink: #17212b; --faint: #66727f; --line: #e1e6ec; --c0: #2f6db5;
  --c1: #e08a2c; --c2: #2c9c8f; --c3: #b5476b; --c4: #7a5bb8; --c5: #6b9a2f; --c6: #c9a227; --c7: #8a949e; }
@media (prefers-color-scheme: dark) { :root { --ground: #12171d; --card: #1a2129; --ink: #e4e9ee;
  --faint: #93a0ad; --line: #2c3641; --c0: #5b9be0; --c1: #f0a75a; --c2: #4fc0b2; --c3: #dd7397; --c4: #a48ae0;
  --c5: #93c255; --c6: #e0be4f; --c7: #7d8894; } }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, 'DejaVu Sans', sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 27px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 40px 0 4px; }
h3 { font-size: 15px; margin: 0 0 6px; }
p { margin: 0 0 14px; color: var(--faint); max-width: 76ch; }
.figures { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 0; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 18px;
  min-width: 96px; }
.figure b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.figure span { color: var(--faint); font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  overflow-x: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 14px; }
.note { color: var(--faint); font-size: 13px; margin: 6px 0 0; }
.legend { display: flex; flex-wrap: wrap; gap: 6px 16px; margin: 0 0 10px; font-size: 13px; color: var(--faint);
  }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, 'DejaVu Sans', sans-serif; }
svg text.n { fill: var(--faint); font-size: 11px; }
svg .axis { stroke: var(--faint); }
svg .grid { stroke: var(--line); }
svg .area { fill: var(--c0); fill-opacity: .28; stroke: var(--c0); stroke-width: 1.6; }
svg .events { fill: none; stroke: var(--c1); stroke-width: 1.6; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--faint); font-weight: 600; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.r, th.r { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 12.5px ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere; }
"""


def page(demand: Demand, title: str) -> str:
    """The page."""
    sections = [
        _uses(demand),
        _attributes(demand),
        _filters(demand),
        _together(demand),
        _repeated(demand),
        _gaps(demand),
    ]
    figures = "".join(
        f'<div class="figure"><b>{clean(value)}</b><span>{clean(name)}</span></div>'
        for name, value in demand.headline.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{clean(title)}</title><style>{_STYLE}</style></head>\n<body><main>"
        f'<h1>{clean(title)}</h1><p>A set of subscriptions, read as a whole.</p><div class="figures">{figures}</div>\n'
        + "\n".join(filter(None, sections))
        + "\n</main></body></html>\n"
    )


def _section(title: str, said: str, inside: str) -> str:
    return f"<section><h2>{clean(title)}</h2><p>{clean(said)}</p>{inside}</section>"


def _card(title: str, inside: str, note: str = "") -> str:
    said = f'<div class="note">{clean(note)}</div>' if note else ""
    return f'<div class="card">{f"<h3>{clean(title)}</h3>" if title else ""}{inside}{said}</div>'


def _uses(demand: Demand) -> str:
    """Attributes by use, in the colours of their predicates."""
    kinds = dict(list(demand.kinds.items())[:_ATTRIBUTES])
    if not kinds:
        return ""
    totals = {str(kind): sum(of.get(kind, 0) for of in kinds.values()) for kind in PredicateKind}
    order = sorted((kind for kind, total in totals.items() if total), key=lambda kind: -totals[kind])
    colours = {kind: min(at, charts.COLOURS - 1) for at, kind in enumerate(order)}
    rows = {
        name: {kind: of[kind] * demand.asked.uses[name] / max(sum(of.values()), 1) for kind in order if kind in of}
        for name, of in kinds.items()
    }
    whole = {name: {kind: round(count) for kind, count in parts.items()} for name, parts in rows.items()}
    chart = _legend(colours) + charts.stacked(whole, colours, demand.asked.read, 1080)
    heads = ("attribute", "filters", "share", "predicates", "often equal to", "events that pass a predicate")
    table = _table(heads, demand.attribute_rows(_ATTRIBUTES), right=(1, 2, 5))
    more = len(demand.kinds) - len(kinds)
    note = f"{more:,} attributes more are looked at less often." if more > 0 else ""
    said = "How many of all filters look at each attribute, and what kind of predicate they have on it."
    return _section("Attributes", said, _card("", chart, note) + '<div style="height:14px"></div>' + _card("", table))


def _attributes(demand: Demand) -> str:
    """Where the filters' ranges and constants are, and where the events are."""
    cards = []
    for name in list(demand.asked.uses)[:_ATTRIBUTES]:
        seen = None if demand.statistics.occurring is None else demand.statistics.occurring.attributes.get(name)
        for part, ranges in demand.asked.ranges(name).items():
            cards.append(_range_card(demand, name, part, ranges, seen))
        constants = dict(list(demand.asked.of(Fact.CONSTANT, name).items())[:_CONSTANTS])
        if constants:
            different = demand.asked.distinct(Fact.CONSTANT, name)
            chart = charts.bars(constants, lambda count: f"{count:,.0f}", 2)
            note = f"{different:,} different values are asked for" if different > 1 else "One value is asked for"
            if seen is not None and seen.top:
                often = ", ".join(
                    f"{text} {count / max(seen.present, 1):.0%}" for text, count in list(seen.top.items())[:3]
                )
                note += f"; most frequent in events: {often}"
            cards.append(_card(f"{name}: equal to", chart, note + "."))
    if not cards:
        return ""
    legend = (
        '<div class="legend"><span><i style="background:var(--c0)"></i>filters whose range holds the value</span>'
        '<span><i style="background:var(--c1)"></i>where events are (to its own scale)</span>'
        '<span><i style="background:var(--c2)"></i>filters in which it equals a value</span></div>'
    )
    said = "Which values the filters want, against the values that events have."
    return _section("Values", said, legend + f'<div class="cards">{"".join(cards)}</div>')


def _range_card(
    demand: Demand, name: str, part: ColumnPart, ranges: DemandRanges, seen: AttributeSummary | None
) -> str:
    numeric = None if seen is None or not seen.boundaries or isinstance(seen.boundaries[0], str) else seen.boundaries
    edges = _domain(ranges, numeric)
    shown = _day if part is ColumnPart.TIMESTAMPS else _number
    density = None if numeric is None else np.diff(_below(np.array(numeric, np.float64), edges))
    widths = (ranges.high - ranges.low)[np.isfinite(ranges.high - ranges.low)]
    share = demand.asked.share(name)
    said = []
    if len(widths):
        typical = float(np.median(widths))
        width = _span(typical) if part is ColumnPart.TIMESTAMPS else _number(typical)
        said.append(f"half of the closed ranges are at most {width} wide")
    one_sided = float(np.mean(~np.isfinite(ranges.high - ranges.low)))
    if one_sided:
        said.append(f"{one_sided:.0%} of the ranges are open on one side")
    if share is not None:
        said.append(f"{share:.1%} of the events pass a predicate, on average")
    return _card(f"{name}: ranges", charts.demand(edges, ranges.around(edges), density, shown), "; ".join(said) + ".")


def _domain(ranges: DemandRanges, events: Sequence[float] | None) -> Floats:
    """Evenly spaced points over where ranges end and events are, but for a few that lie far out."""
    ends = np.concatenate([ranges.low, ranges.high, np.array(events or [], np.float64)])
    low, high = np.quantile(ends[np.isfinite(ends)], [0.01, 0.99]).tolist()
    return np.linspace(low, high if high > low else low + 1, _POINTS)


def _below(boundaries: Floats, points: Floats) -> Floats:
    """The part of events below each point, between boundaries of equal depth."""
    return np.interp(points, boundaries, np.linspace(0, 1, len(boundaries)))


def _filters(demand: Demand) -> str:
    cards = []
    for title, fact in (
        ("attributes of a filter", Fact.ATTRIBUTES),
        ("boxes of a filter's normal form", Fact.BOXES),
        ("signs of a filter's text, up to", Fact.SIZE),
    ):
        values = {str(value): count for value, count in list(demand.asked.histogram(fact).items())[:24]}
        if values:
            cards.append(_card(title, charts.columns(values)))
    return _section("Filters", "How large they are.", f'<div class="cards">{"".join(cards)}</div>') if cards else ""


def _together(demand: Demand) -> str:
    names = [name for name in demand.asked.uses if any(name in pair for pair in demand.asked.together)][:_PAIRED]
    if len(names) < 2:
        return ""
    uses, together = demand.asked.uses, demand.asked.together

    def both(row: int, column: int) -> int:
        if row == column:
            return uses[names[row]]
        one, other = sorted((names[row], names[column]))
        return together.get((one, other), 0)

    def said(row: int, column: int) -> str:
        one, other = names[row], names[column]
        if row == column:
            return f"{one}: {uses[one]:,} filters"
        lift = demand.asked.lift(one, other)
        return f"{one} and {other}: {both(row, column):,} filters, {lift:.2f} times as many as by chance"

    chart = charts.heat(names, lambda row, column: both(row, column) / uses[names[row]], said)
    heads = ("attribute", "and", "filters", "lift", "correlation of events")
    table = _table(heads, demand.pair_rows(12), right=(2, 3, 4))
    cards = _card("of the filters with the row's attribute, those with the column's", chart) + _card(
        "most often", table
    )
    what = "Which attributes filters constrain together. A lift above 1 is more often than by chance."
    return _section(
        "Together",
        what,
        f'<div class="cards" style="grid-template-columns:repeat(auto-fit,minmax(440px,1fr))">{cards}</div>',
    )


def _repeated(demand: Demand) -> str:
    rows = demand.repeated_rows()
    if not rows:
        return ""
    return _section(
        "Repeated filters",
        "Filters that match the same events as others, each shown by one of its texts.",
        _card("", _table(("times", "filter"), rows, right=(0,), code=(1,))),
    )


def _gaps(demand: Demand) -> str:
    said = []
    if demand.missing:
        said.append(f"Filters constrain attributes that no event has: {', '.join(demand.missing)}.")
    if demand.statistics.unasked:
        said.append(f"No filter constrains: {', '.join(demand.statistics.unasked)}.")
    if demand.asked.refused:
        said.append(f"{demand.asked.refused:,} texts are not valid filters and are left out.")
    inside = "".join(f'<div class="card" style="margin-bottom:10px">{clean(each)}</div>' for each in said)
    return _section("Gaps", "Where filters and events do not fit together.", inside) if said else ""


def _legend(colours: Mapping[str, int]) -> str:
    each = (f'<span><i style="background:var(--c{at})"></i>{clean(name)}</span>' for name, at in colours.items())
    return f'<div class="legend">{"".join(each)}</div>'


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), code: Sequence[int] = ()
) -> str:
    def cell(tag: str, at: int, text: str) -> str:
        inside = f"<code>{clean(text)}</code>" if at in code and tag == "td" else clean(text)
        return f"<{tag}{' class=r' if at in right else ''}>{inside}</{tag}>".replace("class=r", 'class="r"')

    head = "".join(cell("th", at, text) for at, text in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', at, text) for at, text in enumerate(row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _day(micros: float) -> str:
    return f"{from_micros(int(micros)):%Y-%m-%d}"


def _span(micros: float) -> str:
    hours = micros / 3_600_000_000
    return f"{hours / 24:.3g} days" if hours >= 48 else f"{hours:.3g} hours"
