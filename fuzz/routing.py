"""Coverage-guided fuzzing of what neighbours send: `make fuzz`, or `python fuzz/routing.py -max_total_time=60`.

Laws: bytes become an update or a RemoteProtocolError, nothing else; an update is written and read back as itself, by
bytes that do not change any more; an item keeps its hash on the way, and the door lets it pass.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import gettempdir

import atheris

with atheris.instrument_imports(include=["weft"]):
    import msgspec

    from weft.errors import RemoteProtocolError
    from weft.language.predicate import Predicates
    from weft.language.taxonomy import IsA, Taxonomy
    from weft.language.text import parse
    from weft.routing.codec import MAX_FRAME, Codec
    from weft.routing.digest import digest
    from weft.routing.dls.items import LabelSet, Retuning, Stage, Switch
    from weft.routing.item_codec import FilterItems, LabelItems, RangeItems
    from weft.routing.mics.items import CurveRange
    from weft.routing.table import About, ItemId, Update

FILTERS = FilterItems(None, Predicates([IsA(Taxonomy({"car": ["vehicle"]}))]))
CODECS = (Codec(FILTERS), Codec(FILTERS, RangeItems()), Codec(FILTERS, LabelItems()))

# A byte of an input in pieces picks one of these: random bytes are then mostly near to an update.
NUMBERS = (0, 1, 2, 127, 128, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "x", "x > 5", "x > 5 AND", "is_a(x, 'car')", "a LIKE '%b'", "\N{GRINNING FACE} = 1", "x" * 300)
BYTES = (b"", b"\0", b"\x05\x80", b"\x05\x00\xa5\x02", b"\xff" * 9, b"\xff" * 8 + b"\x7f", b"\0" * 300)
NOTES = (Switch(1, 64), Retuning("[]", Stage.DONE), {"type": "Switch", "number": -1}, {"type": "Bell"})
VALUES = (*NUMBERS, *TEXTS, *BYTES, *NOTES, None, True, False, 0.5, (0, 1, 2), (1, 2), [], [1], {}, {"x": [1]})
PIECES = (
    *(
        b"\x96",
        b"\x90",
        b"\x91",
        b"\x92",
        b"\x93",
        b"\x95",
        b"\xdc\x00\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ),
    *(b"\xd9", b"\xdb\x00\x01\x00\x00", b"\xc4", b"\xc1", b"\xc7\x01\x00", b"\xd6\xff\0\0\0\0"),
    *map(msgspec.msgpack.encode, VALUES),
)

SEEDS = (
    (0, Update()),
    (0, Update(drop=(ItemId(3), ItemId(900)), add={ItemId(7): parse("x > 5"), ItemId(8): parse("y IN (1, 'a')")})),
    (0, Update(About.ADVERTISEMENTS, True, add={ItemId(7): parse("NOT x LIKE '%a_' OR y IS NULL")})),
    (1, Update(add={ItemId(1): CurveRange(0, 17, 1 << 40), ItemId(2): CurveRange(1, 0, 2**63 - 1)})),
    (2, Update(add={ItemId(1): LabelSet((5, 6, 300, 1 << 62))}, notes=(Switch(1, 64), Retuning("[]", Stage.OFFERED)))),
)


def one_input(data: bytes) -> None:
    """Check the laws on one input. Its first byte says which items there are, and what the other bytes are."""
    way, rest = (data[0] % 6, data[1:]) if data else (0, b"")
    codec = CODECS[way % 3]
    if way >= 3:
        rest = b"\x96" + b"".join(PIECES[byte % len(PIECES)] for byte in rest)
    try:
        update = codec.decode(rest)
    except RemoteProtocolError as error:
        str(error).encode()
        return
    check(codec, update)


def check(codec: Codec, update: Update) -> None:
    """Every law of an update."""
    kind = codec.kinds[update.about]
    data = codec.encode(update)
    assert len(data) <= MAX_FRAME
    again = codec.decode(data)
    assert again == update, "reading what was written gives another update"
    assert codec.encode(again) == data, "an update has two encodings"
    assert digest(again.add, kind) == digest(update.add, kind), "a hash has changed"
    for item in update.add.values():
        kind.refuse(item)


def main() -> None:
    """Run until told to stop, from the seeds and what earlier runs found, or on the files the command line names."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    corpus = Path(gettempdir(), "weft-fuzz-routing")
    corpus.mkdir(exist_ok=True)
    for number, (way, update) in enumerate(SEEDS):
        (corpus / f"seed{number}").write_bytes(bytes([way]) + CODECS[way].encode(update))
    atheris.Setup(sys.argv if given else [*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
