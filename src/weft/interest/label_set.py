"""A set of labels, as brokers tell it."""

from __future__ import annotations

import msgspec


class LabelSet(msgspec.Struct, frozen=True, order=True):
    """Labels of one label space, ascending, each once, and one at least."""

    labels: tuple[int, ...]
