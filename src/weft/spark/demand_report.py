"""The portrait of a set of subscriptions, for people to read. It shows what was counted and nothing else. The same
facts are shown in the terminal, on the page and in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.demand.demand_counts import DemandCounts, Fact
from weft.errors import WeftError
from weft.spark.statistics import Statistics

if TYPE_CHECKING:
    from rich.console import Console

_NAMED = 3  # kinds and constants of an attribute in its row
_ROWS = 20  # of a table
_BAR = 24  # characters


@dataclass(frozen=True, slots=True)
class Demand:
    """A portrait of subscriptions: `show` it, or `save` it as a page or as JSON.

    >>> from weft.demand.filter_demand import demand_of
    >>> some = Demand(Statistics(demand_of([1, 2], ["x > 5", "NOT x <= 5"]), None, {}))
    >>> some.headline["filters"], some.headline["different filters"], some.repeated_rows()
    ('2', '1', [('2', 'NOT x <= 5')])
    """

    statistics: Statistics

    @property
    def asked(self) -> DemandCounts:
        """What the filters ask for."""
        return self.statistics.asked

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that was counted, as JSON types."""
        return self.statistics.to_dict()

    @property
    def headline(self) -> dict[str, str]:
        """The set in a few figures."""
        found, asked = {}, self.asked
        found["filters"] = f"{asked.read:,}"
        found["attributes"] = f"{len(asked.uses):,}"
        found["different filters"] = f"{asked.distinct(Fact.FORM):,}"
        satisfiable = asked.read - asked.of(Fact.FILTERS).get("nothing", 0)
        if satisfiable:
            found["duplicates"] = _share(satisfiable - asked.distinct(Fact.FORM), satisfiable)
        found["match nothing"] = f"{asked.of(Fact.FILTERS).get('nothing', 0):,}"
        found["match everything"] = f"{asked.of(Fact.FILTERS).get('everything', 0):,}"
        found["unreadable texts"] = f"{asked.refused:,}"
        if self.statistics.occurring is not None:
            found["events"] = f"{self.statistics.occurring.events:,}"
        return found

    @property
    def kinds(self) -> dict[str, dict[str, int]]:
        """Of each attribute, most used first, the kinds of its predicates."""
        return {name: self.asked.of(Fact.KIND, name) for name in self.asked.uses}

    @property
    def missing(self) -> list[str]:
        """Attributes that filters look at and no event has."""
        seen = self.statistics.occurring
        if seen is None:
            return []
        return [name for name in self.asked.uses if name not in seen.attributes or not seen.attributes[name].present]

    def attribute_rows(self, most: int = _ROWS) -> list[tuple[str, ...]]:
        """Of each attribute: filters, their share, kinds of predicates, frequent constants, events that pass."""
        rows: list[tuple[str, ...]] = []
        for name, uses in list(self.asked.uses.items())[:most]:
            kinds = ", ".join(f"{kind} {_share(n, uses)}" for kind, n in _first(self.asked.of(Fact.KIND, name)))
            constants = ", ".join(text for text, _ in _first(self.asked.of(Fact.CONSTANT, name)))
            share = self.asked.share(name)
            rows.append(
                (
                    name,
                    f"{uses:,}",
                    _share(uses, self.asked.read),
                    kinds,
                    constants,
                    "" if share is None else f"{share:.1%}",
                )
            )
        return rows

    def pair_rows(self, most: int = _ROWS) -> list[tuple[str, ...]]:
        """Attributes that are looked at together: filters, lift, and the rank correlation of the events' values."""
        rows: list[tuple[str, ...]] = []
        for (one, other), count in list(self.asked.together.items())[:most]:
            related = self.statistics.correlations.get((one, other))
            lift = f"{self.asked.lift(one, other):.2f}"
            rows.append((one, other, f"{count:,}", lift, "" if related is None else f"{related:+.2f}"))
        return rows

    def repeated_rows(self) -> list[tuple[str, str]]:
        """The filters that occur more than once."""
        repeated = [(form, count) for form, count in self.asked.of(Fact.FORM).items() if count > 1]
        return [(f"{count:,}", self.asked.examples[form]) for form, count in repeated[:_ROWS]]

    def show(self, console: Console) -> None:
        """Print the portrait."""
        from rich.text import Text

        from weft.tables import plain_table

        console.print(Text("  ".join(f"{value} {name}" for name, value in self.headline.items()), style="bold"))
        sign = "#" if console.options.ascii_only else "█"
        table = plain_table("What filters constrain")
        for head in ("attribute", "filters", "", "share", "predicates", "often equal to", "events that pass"):
            table.add_column(head, justify="right" if head in ("filters", "share", "events that pass") else "left")
        for name, uses, share, *rest in self.attribute_rows():
            bar = sign * round(_BAR * self.asked.uses[name] / max(self.asked.read, 1))
            table.add_row(*map(Text, (name, uses, bar, share, *rest)))
        console.print(table)
        for title, fact in (("Attributes per filter", Fact.ATTRIBUTES), ("Boxes per filter", Fact.BOXES)):
            self._print_histogram(console, title, self.asked.histogram(fact), sign)
        for title, heads, rows in (
            (
                "Constrained together",
                ("attribute", "and", "filters", "lift", "correlation"),
                self.pair_rows(),
            ),
            ("Repeated filters", ("times", "filter"), self.repeated_rows()),
        ):
            if rows:
                table = plain_table(title)
                for head in heads:
                    table.add_column(head, justify="right" if head in ("filters", "lift", "times") else "left")
                for row in rows:
                    table.add_row(*map(Text, row))
                console.print(table)
        if self.missing:
            console.print(Text(f"No event has: {', '.join(self.missing)}"))
        if self.statistics.unasked:
            console.print(Text(f"No filter constrains: {', '.join(self.statistics.unasked)}"))

    def _print_histogram(self, console: Console, title: str, values: Mapping[int, int], sign: str) -> None:
        from rich.text import Text

        from weft.tables import plain_table

        table = plain_table()
        table.add_column(title, justify="right")
        table.add_column("filters", justify="right")
        table.add_column("")
        most = max(values.values(), default=1)
        for value, count in list(values.items())[:_ROWS]:
            table.add_row(str(value), f"{count:,}", Text(sign * max(1, round(_BAR * count / most))))
        console.print(table)

    def html(self, title: str = "What users ask for") -> str:
        """The portrait as one page that needs no other file."""
        from weft.spark.demand_page import page

        return page(self, title)

    def save(self, path: str | Path) -> None:
        """Write a page (.html) or the facts (.json). Raises WeftError for other names."""
        path = Path(path)
        check_portrait(path)
        if path.suffix == ".html":
            path.write_text(self.html(), encoding="utf-8")
        else:
            path.write_text(json.dumps(self.facts, indent=1) + "\n", encoding="utf-8")


def check_portrait(path: Path | None) -> None:
    """Raise WeftError for a name that is neither a page nor facts."""
    if path is not None and path.suffix not in (".html", ".json"):
        raise WeftError(f"{path} is neither a page nor JSON: name it .html or .json")


def _first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return list(counts.items())[:_NAMED]


def _share(count: float, whole: float) -> str:
    return f"{count / whole:.1%}" if whole else "0%"
