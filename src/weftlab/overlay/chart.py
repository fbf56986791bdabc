"""Bar charts of the costs of models, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weft.errors import WeftError
from weftlab.overlay.overlay import ModelOutcome

_PANELS: list[tuple[str, Callable[[ModelOutcome], float]]] = [
    ("items told to neighbours", lambda each: each.subscribing.told + each.leaving.told),
    ("items in all tables", lambda each: each.heard),
    ("events over links", lambda each: each.messages),
]
_SUFFIXES = (".png", ".svg", ".pdf")


def check_chart(path: Path) -> None:
    """Raise WeftError if no chart can be written to the file. Call it before a long run, not after it."""
    if path.suffix.lower() not in _SUFFIXES:
        raise WeftError(f"{path} is not a chart file; name it {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    if not path.absolute().parent.is_dir():
        raise WeftError(f"there is no directory {path.parent} for the chart; create it first")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise WeftError("charts need matplotlib; install it with pip install 'weft[lab]'") from None


def draw(outcomes: Sequence[ModelOutcome], title: str, path: Path) -> None:
    """Draw the chart. Raises WeftError as `check_chart` does."""
    check_chart(path)
    from matplotlib.figure import Figure

    names = [each.model for each in outcomes]
    figure = Figure(figsize=(12, 1.6 + 0.42 * len(names)), layout="constrained")
    figure.suptitle(title, fontsize=11)
    panels = figure.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0]
    for panel, (heading, value) in zip(panels, _PANELS, strict=True):
        bars = panel.barh(names, [value(each) for each in outcomes], color="#3b6ea5", height=0.62)
        panel.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
        panel.set_title(heading, fontsize=10)
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.set_major_locator(_few_ticks())
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.tick_params(labelsize=9)
    panels[0].invert_yaxis()  # the first model on top
    panels[-1].axvline(outcomes[0].ideal, color="#c0392b", linestyle="--", linewidth=1, label="ideal")
    panels[-1].legend(fontsize=8, frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)


def _few_ticks() -> object:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, integer=True)
