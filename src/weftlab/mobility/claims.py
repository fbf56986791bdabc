"""The claims of the thesis about its simulations (5.8, 5.10), checked over several seeds. A claim holds only if it does
so for every seed; the figures that decide it are given with their spread.

Figures show shapes, and so do the verdicts: the thesis gives no values but those of Table 5.4, and its topology, its
filters and its rendezvous point are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError
from weftlab.mobility.campaign import CampaignProgress, NetworkSettings, prepared
from weftlab.mobility.protocols import RUNNERS, THESIS, MobilityOutcome
from weftlab.mobility.script import BUSY, MobilityArea, ScriptSettings

FIGURES = ("5.11", "5.12", "5.13", "5.14", "table-5.4", "5.10")
SUBSCRIBERS = (5, 10, 20, 50, 100)
PUBLISHERS = (1, 5, 10, 20)
_ACYCLIC = ("acyclic", "acyclic-complete")
_PAIRS = (("acyclic-complete", "acyclic"), ("acyclic-complete-overlay", "acyclic-overlay"), ("rp-complete", "rp"))
_HARDLY = 0.25  # a cost that changes by less than this part hardly changes

SeedValues = NDArray[np.float64]  # one for each seed


def figures_of(text: str) -> tuple[str, ...]:
    """The figures that a user names. Raises WeftError for an unknown one."""
    names = FIGURES if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in FIGURES:
            raise WeftError(f"there are no claims of {name!r}; choose from {', '.join(FIGURES)}, or all")
    return names


@dataclass(frozen=True, slots=True)
class MobilityClaim:
    """A claim of the thesis, and what the runs show."""

    figure: str
    text: str
    holds: int  # seeds for which it does
    seeds: int
    evidence: str

    @property
    def verdict(self) -> str:
        """In a word."""
        return "holds" if self.holds == self.seeds else "does not hold" if not self.holds else "holds in part"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}


class MobilityStudy:
    """Runs with the settings of the thesis, each made once."""

    def __init__(
        self,
        network: NetworkSettings,
        seeds: Iterable[int],
        moves: int = 100,
        report: CampaignProgress = lambda *_: None,
    ) -> None:
        self.network, self.seeds, self.base = network, tuple(seeds), ScriptSettings(moves=moves)
        self._report = report
        self._runs: dict[tuple[str, ScriptSettings, int], MobilityOutcome] = {}
        self._figure = ""

    def outcomes(self, protocol: str, settings: ScriptSettings) -> list[MobilityOutcome]:
        """An outcome for each seed."""
        found = []
        for seed in self.seeds:
            key = protocol, settings, seed
            if key not in self._runs:
                self._report(f"claims of {self._figure}: {protocol}", len(self._runs), 0)
                self._runs[key] = RUNNERS[protocol](*prepared(self.network, settings, seed), None)
            found.append(self._runs[key])
        return found

    def mean(self, figure: str, protocol: str, **changes: Any) -> SeedValues:
        """The mean of a figure over the moves, by seed."""
        return np.array([each.mean(figure) for each in self.outcomes(protocol, replace(self.base, **changes))])

    def claims(self, figures: Iterable[str] = FIGURES) -> list[MobilityClaim]:
        """The claims of these figures."""
        made: list[MobilityClaim] = []
        for name in figures:
            self._figure = name
            made += _CLAIMS[name](self)
        return made

    def claim(self, text: str, holds: Any, **evidence: Any) -> MobilityClaim:
        """A claim of the present figure."""
        said = ", ".join(f"{name.replace('_', ' ')} {_spread(values)}" for name, values in evidence.items())
        return MobilityClaim(self._figure, text, int(np.sum(holds)), len(self.seeds), said)

    # -- series, for claims and charts --------------------------------------------------------------------

    def by_moves(self) -> dict[str, dict[int, SeedValues]]:
        """The total signalling of each protocol, by the number of moves (Figure 5.11)."""
        sizes = sorted({max(1, self.base.moves * part // 4) for part in (1, 2, 3, 4)})
        return {name: {size: self.mean("signals", name, moves=size) * size for size in sizes} for name in THESIS}

    def by_area(self) -> dict[str, dict[int, SeedValues]]:
        """The total signalling of the acyclic protocols by the number of moves, border and full (Figure 5.12)."""
        sizes = sorted({max(1, self.base.moves * part // 4) for part in (1, 2, 3, 4)})
        return {
            f"{name}, {area}": {size: self.mean("signals", name, moves=size, area=area) * size for size in sizes}
            for name in _ACYCLIC
            for area in MobilityArea
        }

    def by_subscribers(self, names: Sequence[str] = _ACYCLIC) -> dict[str, dict[int, SeedValues]]:
        """The signalling for each move by the number of subscribers (Figure 5.13)."""
        return {
            f"{name}, {area}": {size: self.mean("signals", name, subscribers=size, area=area) for size in SUBSCRIBERS}
            for name in names
            for area in MobilityArea
        }

    def by_publishers(
        self, names: Sequence[str] = (*_ACYCLIC, "rp", "rp-complete")
    ) -> dict[str, dict[int, SeedValues]]:
        """The signalling for each move by the number of publishers (Figure 5.14)."""
        return {
            f"{name}, {area}": {size: self.mean("signals", name, publishers=size, area=area) for size in PUBLISHERS}
            for name in names
            for area in MobilityArea
        }

    def draw(self, figures: Iterable[str], folder: Path) -> None:
        """Draw the charts of the figures."""
        from weftlab.mobility.charts import Axes, draw_lines

        charts: dict[str, tuple[Callable[[], dict[str, dict[int, SeedValues]]], Axes]] = {
            "5.11": (self.by_moves, Axes("Border mobility (Figure 5.11)", "moves", "message hops in all", True)),
            "5.12": (
                self.by_area,
                Axes("Border and full mobility (Figure 5.12)", "moves", "message hops in all", True),
            ),
            "5.13": (self.by_subscribers, Axes("Subscribers (Figure 5.13)", "subscribers", "message hops per move")),
            "5.14": (self.by_publishers, Axes("Publishers (Figure 5.14)", "publishers", "message hops per move")),
        }
        for name in figures:
            if name in charts:
                series, axes = charts[name]
                draw_lines(series(), axes, folder / f"figure-{name}.svg")


def _border(study: MobilityStudy) -> list[MobilityClaim]:
    cost = {name: study.mean("signals", name) for name in THESIS}
    updated = {name: study.mean("updated", name) for name in THESIS}
    upper = {name: study.mean("upper", name) for name in THESIS}
    others = np.max([cost[name] for name in THESIS if name != "ping-pong"], axis=0)
    rest = [name for name in THESIS if not name.startswith("ping-pong")]
    return [
        study.claim(
            "average costs are below the upper bounds",
            np.all([updated[name] <= upper[name] for name in THESIS], axis=0),
            **{name: updated[name] / upper[name] for name in THESIS},
        ),
        study.claim(
            "ping/pong is the most expensive", cost["ping-pong"] > others, ping_pong=cost["ping-pong"], next=others
        ),
        study.claim(
            "a rendezvous point makes ping/pong much cheaper (by a quarter at least)",
            cost["ping-pong-rp"] < 0.75 * cost["ping-pong"],
            with_rendezvous=cost["ping-pong-rp"],
            without=cost["ping-pong"],
        ),
        study.claim(
            "with a rendezvous point, ping/pong still costs more than the acyclic protocols",
            np.all([cost["ping-pong-rp"] > cost[name] for name in rest], axis=0),
            **{name: cost[name] for name in ("ping-pong-rp", *rest)},
        ),
        study.claim(
            "complete costs less than incomplete",
            np.all([cost[one] < cost[other] for one, other in _PAIRS], axis=0),
            **{name: cost[name] for pair in _PAIRS for name in pair},
        ),
    ]


def _full(study: MobilityStudy) -> list[MobilityClaim]:
    cost = {(name, area): study.mean("signals", name, area=area) for name in _ACYCLIC for area in MobilityArea}
    paths = {area: study.mean("paths", "acyclic", area=area) for area in MobilityArea}
    return [
        study.claim(
            "paths are longer with border mobility",
            paths[MobilityArea.BORDER] > paths[MobilityArea.FULL],
            **{area.value: values for area, values in paths.items()},
        ),
        *(
            study.claim(
                f"{name} costs more with border mobility",
                cost[name, MobilityArea.BORDER] > cost[name, MobilityArea.FULL],
                border=cost[name, MobilityArea.BORDER],
                full=cost[name, MobilityArea.FULL],
            )
            for name in _ACYCLIC
        ),
    ]


def _subscribers(study: MobilityStudy) -> list[MobilityClaim]:
    series = study.by_subscribers()
    found = []
    for area in MobilityArea:
        incomplete = np.array(list(series[f"acyclic, {area}"].values()))
        complete = np.array(list(series[f"acyclic-complete, {area}"].values()))
        peak = np.array(SUBSCRIBERS)[np.argmax(complete, axis=0)]
        found += [
            study.claim(
                f"the incomplete protocol's cost grows with subscribers ({area})",
                np.all(np.diff(incomplete, axis=0) > 0, axis=0),
                **_by_size(SUBSCRIBERS, incomplete),
            ),
            study.claim(
                f"the complete protocol's cost peaks at 20 subscribers and falls ({area})",
                (peak == 20) & (complete[-1] < complete[SUBSCRIBERS.index(20)]),
                peak=peak,
                **_by_size(SUBSCRIBERS, complete),
            ),
        ]
    border, full = (series[f"acyclic-complete, {area}"][50] for area in MobilityArea)
    found.append(
        study.claim("with 50, complete costs less with border mobility", border < full, border=border, full=full)
    )
    border, full = (series[f"acyclic, {area}"][50] for area in MobilityArea)
    found.append(
        study.claim("with 50, incomplete costs more with border mobility", border > full, border=border, full=full)
    )
    return found


def _publishers(study: MobilityStudy) -> list[MobilityClaim]:
    series = study.by_publishers()
    found = []
    for area in MobilityArea:
        for name in _ACYCLIC:
            values = np.array(list(series[f"{name}, {area}"].values()))
            found.append(
                study.claim(
                    f"the cost of {name} grows with publishers ({area})",
                    values[-1] > values[0],
                    **_by_size(PUBLISHERS, values),
                )
            )
        for name in ("rp", "rp-complete"):
            values = np.array(list(series[f"{name}, {area}"].values()))
            found.append(
                study.claim(
                    f"publishers hardly change the cost of {name} ({area})",
                    np.abs(values[-1] - values[0]) < _HARDLY * values[0],
                    **_by_size(PUBLISHERS, values),
                )
            )
    ping = [study.mean("signals", "ping-pong"), study.mean("signals", "ping-pong", publishers=PUBLISHERS[-1])]
    ping.append(study.mean("signals", "ping-pong", subscribers=5))
    found.append(
        study.claim(
            "ping/pong depends on neither publishers nor subscribers",
            np.ptp(ping, axis=0) < _HARDLY * ping[0],
            base=ping[0],
            publishers_20=ping[1],
            subscribers_5=ping[2],
        )
    )
    return found


def _latencies(study: MobilityStudy) -> list[MobilityClaim]:
    names = ("ping-pong", "ping-pong-rp", "acyclic", "rp", "acyclic-complete", "rp-complete")
    taken = {name: study.mean("latencies", name) / 1000 for name in names}
    beside = study.mean("latencies", "rp-beside") / 1000
    slow = np.minimum(taken["ping-pong"], taken["ping-pong-rp"])
    return [
        study.claim(
            "ping/pong takes more than twice as long as all others",
            slow > 2 * np.max([taken[name] for name in names[2:]], axis=0),
            **{name: taken[name] for name in names},
        ),
        study.claim(
            "a rendezvous point hardly changes the latency of ping/pong",
            np.abs(taken["ping-pong-rp"] - taken["ping-pong"]) < _HARDLY * taken["ping-pong"],
        ),
        study.claim(
            "a rendezvous point hardly changes the latency of the acyclic protocols",
            (np.abs(taken["rp"] - taken["acyclic"]) < _HARDLY * taken["acyclic"])
            & (np.abs(taken["rp-complete"] - taken["acyclic-complete"]) < _HARDLY * taken["acyclic-complete"]),
            rp_over_acyclic=taken["rp"] / taken["acyclic"],
            complete=taken["rp-complete"] / taken["acyclic-complete"],
        ),
        study.claim(
            "the same for incomplete, if the point notifies the source beside the tree, which loses events",
            np.abs(beside - taken["acyclic"]) < _HARDLY * taken["acyclic"],
            rp_beside=beside,
            acyclic=taken["acyclic"],
        ),
        study.claim(
            "complete is faster than incomplete",
            (taken["acyclic-complete"] < taken["acyclic"]) & (taken["rp-complete"] < taken["rp"]),
        ),
    ]


def _summary(study: MobilityStudy) -> list[MobilityClaim]:
    cost = {name: study.mean("signals", name) for name in THESIS}
    taken = {name: study.mean("latencies", name) / 1000 for name in THESIS}
    others = [name for name in THESIS if name != "rp-complete"]
    busy = replace(BUSY, moves=study.base.moves)
    lost = np.array([each.lost for each in study.outcomes("rp-complete", busy)])
    due = np.array([each.due for each in study.outcomes("rp-complete", busy)])
    return [
        study.claim(
            "complete with a rendezvous point has the lowest cost",
            np.all([cost["rp-complete"] <= cost[name] for name in others], axis=0),
            **cost,
        ),
        study.claim(
            "complete with a rendezvous point has the lowest latency",
            np.all([taken["rp-complete"] <= taken[name] for name in others], axis=0),
            **taken,
        ),
        study.claim("and it loses nothing with traffic during moves", lost == 0, lost=lost, due=due),
    ]


_CLAIMS: dict[str, Callable[[MobilityStudy], list[MobilityClaim]]] = {
    "5.11": _border,
    "5.12": _full,
    "5.13": _subscribers,
    "5.14": _publishers,
    "table-5.4": _latencies,
    "5.10": _summary,
}


def _by_size(sizes: Sequence[int], values: NDArray[np.float64]) -> dict[str, Any]:
    return {f"at_{size}": row for size, row in zip(sizes, values, strict=True)}


def _spread(values: Any) -> str:
    """The mean, and how far the seeds are apart."""
    values = np.asarray(values, float)
    low, mean, high = values.min(), values.mean(), values.max()
    return f"{mean:.3g}" if low == high else f"{mean:.3g} ({low:.3g} to {high:.3g})"
