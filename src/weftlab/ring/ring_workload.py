"""Subscriptions and events of the paper's simulation (003, 4.1). Every event satisfies some subscription.

What the paper leaves open (erratum 5: "uniform, mean 3, variance 1" is no distribution of whole numbers): the number of
attributes is a continuous uniform variable with that mean and variance, rounded, from 1 to the topic's attributes. The
size of a range is made alike, from 1 to the domain's. A range of size r holds r whole numbers. An event has all
attributes of its topic. Topic i has weight 1 / i**theta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import OptionError

DOMAIN = 100  # whole numbers from 0


@dataclass(frozen=True, slots=True)
class RingWorkloadSettings:
    """The paper's settings, unless changed."""

    nodes: int = 512
    ring: int = 4096
    subscriptions: int = 3000
    events: int = 9000
    topics: int = 10
    schema: int = 20
    attributes: int = 6  # of a topic
    intervals: int = 6
    theta: float = 0.6
    size_variance: float = 5.0

    def __post_init__(self) -> None:
        if min(self.nodes, self.subscriptions, self.topics, self.attributes, self.intervals) < 1 or self.events < 0:
            raise OptionError(
                "a ring needs nodes, subscriptions, topics, attributes and intervals: one or more of each"
            )
        if self.nodes > self.ring:
            raise OptionError(f"{self.nodes} nodes do not fit on a ring of {self.ring}; make it larger")
        if self.attributes > self.schema:
            raise OptionError(f"a topic cannot have {self.attributes} of {self.schema} attributes")
        if not 0 <= self.theta <= 5 or not 0 <= self.size_variance <= DOMAIN**2 / 12:
            raise OptionError("theta is 0 to 5, and the variance of range sizes 0 to that of the whole domain")


@dataclass(frozen=True, slots=True)
class RingWorkload:
    """Rows of subscriptions and events; columns of bounds and values are the attributes of the row's topic."""

    settings: RingWorkloadSettings
    node_ids: tuple[int, ...]  # ascending
    topic_attributes: NDArray[np.int64]  # topic x attribute: which of the schema
    topics: NDArray[np.int64]  # of subscriptions
    homes: NDArray[np.int64]  # of subscriptions: which node
    low: NDArray[np.int64]  # -1 where an attribute is open
    high: NDArray[np.int64]
    event_topics: NDArray[np.int64]
    publishers: NDArray[np.int64]
    values: NDArray[np.int64]
    gaps: NDArray[np.float64]  # between events, with mean 1

    def matches(self, event: int) -> NDArray[np.int64]:
        """The subscriptions that an event matches, by asking all of its topic."""
        values = self.values[event]
        rows = np.flatnonzero(self.topics == self.event_topics[event])
        low, high = self.low[rows], self.high[rows]
        matched: NDArray[np.int64] = rows[((low < 0) | ((low <= values) & (values <= high))).all(axis=1)]
        return matched


def ring_workload(settings: RingWorkloadSettings, seed: int) -> RingWorkload:
    """The workload of a seed."""
    rng = np.random.default_rng(seed)
    s = settings
    ids = tuple(sorted(int(i) for i in rng.choice(s.ring, s.nodes, replace=False)))
    of_topic = np.array([rng.choice(s.schema, s.attributes, replace=False) for _ in range(s.topics)])
    weights = np.arange(1, s.topics + 1) ** -s.theta
    topics = rng.choice(s.topics, s.subscriptions, p=weights / weights.sum())
    counts = _uniform(rng, 3.0, 1.0, s.subscriptions, s.attributes)
    sizes = _uniform(rng, 20.0, s.size_variance, (s.subscriptions, s.attributes), DOMAIN)
    low = (rng.random(sizes.shape) * (DOMAIN - sizes + 1)).astype(np.int64)
    high = low + sizes - 1
    given = rng.random(sizes.shape).argsort(axis=1).argsort(axis=1) < counts[:, None]
    low[~given], high[~given] = -1, -1
    model = rng.integers(s.subscriptions, size=s.events)
    free = rng.integers(DOMAIN, size=(s.events, s.attributes))
    inside = low[model] + (rng.random(free.shape) * (high[model] - low[model] + 1)).astype(np.int64)
    return RingWorkload(
        settings,
        ids,
        of_topic,
        topics,
        rng.integers(s.nodes, size=s.subscriptions),
        low,
        high,
        topics[model],
        rng.integers(s.nodes, size=s.events),
        np.where(low[model] < 0, free, inside),
        rng.exponential(1.0, s.events),
    )


def _uniform(
    rng: np.random.Generator, mean: float, variance: float, shape: int | tuple[int, ...], most: int
) -> NDArray[np.int64]:
    half = (3 * variance) ** 0.5
    return np.clip(np.rint(rng.uniform(mean - half, mean + half, shape)), 1, most).astype(np.int64)
