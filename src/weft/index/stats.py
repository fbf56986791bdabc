"""The cost of an index: memory, shape, and which subscriptions are expensive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.index.version import SegmentView
from weft.kernels.partition import NODE


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of an index. `replication` is the mean number of leaves that a row is in. `expensive` are the
    subscriptions in most leaves, with how many: each is a copy to store and, for many events, a comparison to make.
    """

    subscriptions: int
    waiting: int  # in the tail, not yet in a tree
    segments: int
    rows: int
    dead: int
    axes: int
    depth: int
    leaves: int
    replication: float
    bytes_for_matching: int
    bytes_for_changes: int
    bytes_per_subscription: float  # for matching
    events: int  # looked up so far, by `match` and `match_batch`
    matches_per_event: float
    hit_rate: float  # the share of events that matched any subscription
    expensive: list[tuple[Any, int]]


def stats_of(views: Sequence[SegmentView], waiting: int, seen: tuple[int, int, int] = (0, 0, 0)) -> Stats:
    """The figures of views; `seen` are the events looked up, the matches found, and the events that had any."""
    events, matches, wanted = seen
    living = sum(view.size for view in views)
    rows = sum(len(view.segment.rows) for view in views)
    entries = sum(int(np.bitwise_count(view.tree.live).sum()) for view in views)
    matching = sum(view.segment.nbytes for view in views)
    expensive: list[tuple[int, int]] = []
    for view in views:
        tree = view.segment.tree
        held = view.segment.rows
        copies = np.bincount(tree.ids[tree.places()], minlength=held.slot_count)
        most = np.argsort(-copies[: held.slot_count], kind="stable")[:10].tolist()
        expensive += [(int(held.subs[held.firsts[slot]]), int(copies[slot])) for slot in most]
    return Stats(
        subscriptions=living + waiting,
        waiting=waiting,
        segments=len(views),
        rows=rows,
        dead=sum(len(view.alive) - view.size for view in views),
        axes=max((len(view.segment.rows.axes) for view in views), default=0),
        depth=max((_depth(view) for view in views), default=0),
        leaves=sum(int((view.segment.tree.nodes[::NODE] < 0).sum()) for view in views),
        replication=entries / rows if rows else 0.0,
        bytes_for_matching=matching,
        bytes_for_changes=sum(view.segment.row_bytes for view in views),
        bytes_per_subscription=matching / living if living else 0.0,
        events=events,
        matches_per_event=matches / events if events else 0.0,
        hit_rate=wanted / events if events else 0.0,
        expensive=sorted(expensive, key=lambda pair: -pair[1])[:10],
    )


def _depth(view: SegmentView) -> int:
    """The longest way from the root to a leaf; children come after their parents."""
    nodes, children = view.segment.tree.nodes.reshape(-1, NODE), view.segment.tree.children
    depth = np.ones(len(nodes), np.int64)
    for node in np.flatnonzero(nodes[:, 0] >= 0).tolist():
        _, _, wide, first, _, cells, *_ = nodes[node].tolist()
        below = children[first : first + cells]
        depth[below[below >= 0]] = depth[node] + 1
        if wide >= 0:
            depth[wide] = depth[node] + 1
    return int(depth.max())
