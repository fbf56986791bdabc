"""Draws all pictures of the documentation, by `make pictures`. Law: what is stored is what this draws."""

from __future__ import annotations

from pathlib import Path

from pictures import flows, plots

HERE = Path(__file__).parent
PICTURES = {
    "home": flows.home,
    "matching": flows.matching,
    "pipeline": flows.pipeline,
    "architecture": flows.architecture,
    "routing": flows.routing,
    "order": plots.order,
    "curve": plots.curve,
    "negative": plots.negative,
    "labels": plots.labels,
    "compared": plots.compared,
}


def main() -> None:
    """Write every picture beside this file."""
    for name, draw in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
