"""The report of a benchmark: figures with goals, as a table and as JSON. Every figure was measured in this run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from rich.console import Console

from weft.tables import plain_table

Progress = Callable[[str], None]  # told what is being measured


@dataclass(frozen=True, slots=True)
class Result:
    """One figure; `ok` is None where there is no goal, or a peer is not installed."""

    name: str  # workload/size/figure
    value: float | None
    unit: str
    goal: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def ok(self) -> bool | None:
        """Whether the goal is reached."""
        if self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one first pass, and what it returned."""
    start = perf_counter()
    result = work()
    return perf_counter() - start, result


def machine() -> str:
    """The machine in one line: processor, cores, system, Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def as_json(bench: str, results: list[Result]) -> dict[str, Any]:
    """The machine-readable form."""
    rows = [{**asdict(result), "ok": result.ok} for result in results]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"bench": bench, "date": now, "machine": machine(), "results": rows}


def show(bench: str, results: list[Result], console: Console) -> None:
    """The table."""
    table = plain_table(f"weft bench {bench}: {machine()}")
    for heading, justify in (
        ("figure", "left"),
        ("value", "right"),
        ("unit", "left"),
        ("goal", "right"),
        ("", "left"),
    ):
        # a narrow screen breaks names and units, never figures
        table.add_column(heading, justify=justify, no_wrap=heading not in {"figure", "unit"}, overflow="fold")  # type: ignore[arg-type]
    for result in results:
        sign = {"higher": ">=", "lower": "<="}[result.better]
        goal = "" if result.goal is None else f"{sign} {_number(result.goal)}"
        verdict = {True: "reached", False: "MISSED", None: ""}[result.ok]
        value = "not measured" if result.value is None else _number(result.value)
        table.add_row(result.name, value, result.unit, goal, verdict)
    console.print(table)


def write(path: Path, bench: str, results: list[Result]) -> None:
    """Write the JSON form to a file."""
    path.write_text(json.dumps(as_json(bench, results), indent=2) + "\n", encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
