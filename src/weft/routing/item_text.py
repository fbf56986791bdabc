"""Items as text for people. A filter is shown as its text, and nothing is longer than requested."""

from __future__ import annotations

from itertools import islice

import msgspec

from weft.routing.dls.items import LabelSet
from weft.routing.mics.items import CurveRange
from weft.routing.table import About, Item, UpdateCodec

_decode = msgspec.msgpack.Decoder().decode


def item_text(item: Item, codec: UpdateCodec, most: int, about: About = About.SUBSCRIPTIONS) -> str:
    """An item in `most` characters.

    >>> from weft import parse
    >>> from weft.routing import make_table
    >>> item_text(parse("x > 5 AND y = 'a'"), make_table("simple").codec, 8)
    'x > 5 ..'
    """
    if isinstance(item, CurveRange):
        return shortened(f"points {item.start} to {item.end} of curve {item.group}", most)
    if isinstance(item, LabelSet):
        return shortened(f"labels {', '.join(map(str, islice(item.labels, most)))}", most)
    return shortened(str(_decode(codec.encode_item(about, item))), most)


def shortened(text: str, most: int) -> str:
    """A text, cut to a number of characters."""
    return text if len(text) <= most else text[: max(0, most - 2)] + ".."
