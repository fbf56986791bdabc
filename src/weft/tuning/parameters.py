"""A tuning: the parameters chosen for a table, what they cost, and why they were chosen. A tuning read back from its
file is equal. A table built from it loses no event, whatever it was tuned for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from weft.errors import TuningError, WeftError
from weft.model.regular_file import read_regular
from weft.routing.dls.space import LabelSpace
from weft.routing.dls.structure import MOST_COUNTERS, FilterShape
from weft.space.cell_space import CellSpace
from weft.space.content import ContentSpace
from weft.space.curve_groups import CurveGroups
from weft.tuning.budget import CostBudget, LinkFigures

_FORM = "weft tuning"
_VERSION = 1
_MOST_BYTES = 64 << 20  # of a file

Space = TypeVar("Space", bound=CellSpace)


@dataclass(frozen=True, slots=True)
class Trial:
    """A row of the table that explains a choice: what was tried, what it costs, and why it was kept or not."""

    step: str
    tried: str
    figures: LinkFigures
    verdict: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Tuned(Generic[Space]):
    """The choice: a space, and for labels the shape of the filter and the rate beyond which it should grow.

    `MicsTable(tuned.space.groups)` and `DlsTable(tuned.space, shape=tuned.shape, rate=tuned.rate)` are its tables.
    `figures` is what one link costs according to the sample. `counted` is the size in bytes of the exact counts at the
    sender, which no budget limits.
    """

    model: str
    space: Space
    shape: FilterShape | None
    rate: float
    figures: LinkFigures
    counted: int
    budget: CostBudget
    measured: int  # candidates
    rows: tuple[Trial, ...] = ()

    def to_json(self) -> str:
        """The text of the tuning file."""
        form = {
            "form": _FORM,
            "version": _VERSION,
            "model": self.model,
            "space": self.space.parameters,
            "filter": None if self.shape is None else self.shape.parameters,
            "rate": self.rate,
            "figures": asdict(self.figures),
            "counted": self.counted,
            "budget": self.budget.to_dict(),
            "measured": self.measured,
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(form, indent=1)

    @staticmethod
    def from_json(text: str) -> Tuned[Any]:
        """Parse the text of a tuning file. Raises TuningError if it is not one."""
        try:
            form = json.loads(text)
            if form["form"] != _FORM:
                raise ValueError("it is a file of another kind")
            if form["version"] != _VERSION:
                raise ValueError(f"its version is {form['version']!r}, and only {_VERSION} is supported")
            shape = None if form["filter"] is None else FilterShape(*map(_whole, form["filter"]))  # type: ignore[arg-type]
            if shape is not None and shape.size > MOST_COUNTERS:
                raise ValueError(f"its filter has {shape.size} counters; at most {MOST_COUNTERS} are supported")
            rate = float(form["rate"])
            if not 0 < rate <= 1:
                raise ValueError(f"its rate {rate} is not a share")
            return Tuned(
                form["model"],
                read_space(form["model"], form["space"]),
                shape,
                rate,
                _figures(form["figures"]),
                _whole(form["counted"]),
                CostBudget(**form["budget"]),
                _whole(form["measured"]),
                tuple(Trial(**{**row, "figures": _figures(row["figures"])}) for row in form["rows"]),
            )
        except KeyError as error:
            raise TuningError(f"not a tuning file: it has no {error}; write one with to_json()") from None
        except (WeftError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise TuningError(f"not a tuning file: {error}; write one with to_json()") from None

    def save(self, path: str | Path) -> None:
        """Write the tuning file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Tuned[Any]:
        """The tuning in a file. Raises TuningError that names the file."""
        try:
            return Tuned.from_json(read_regular(Path(path), _MOST_BYTES).decode())
        except (OSError, UnicodeDecodeError) as error:
            raise TuningError(f"{path} cannot be read: {error}") from None
        except TuningError as error:
            raise TuningError(f"{path}: {error}") from None


def read_space(model: Any, parameters: Any) -> CellSpace:
    """The space of a model, with its parameters. Raises SchemaError or ValueError."""
    match model, parameters:
        case "mics", ["groups", *_]:
            return CurveGroups.from_json(json.dumps(parameters))
        case "mics", _:
            return ContentSpace.from_json(json.dumps(parameters))
        case "dls", _:
            return LabelSpace.from_json(json.dumps(parameters))
    raise ValueError(f"its model {model!r} is unknown")


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number of 0 or more")
    return value


def _figures(form: dict[str, Any]) -> LinkFigures:
    return LinkFigures(float(form["false_positives"]), _whole(form["forwarded"]), _whole(form["memory"]))
