"""Items and updates as bytes: everything that may be told is read back as what it was, and nothing else is read."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from routing.golden import Run
from routing.models import TABLES
from strategies import AMONG, EVENTS, KINDS, PREDICATES, filters, thorough, trees
from weft import Schema, normalize, parse
from weft.algebra.box import Box, NormalForm
from weft.algebra.merge import merge
from weft.algebra.relate import equivalent
from weft.errors import FilterError, FilterTooComplexError, LocalProtocolError, RemoteProtocolError
from weft.language.ast import AttributeRef, Call, Compare, Filter, In, Like, Operator, conjunction, disjunction
from weft.language.constant import Constant
from weft.language.lexer import MAX_TEXT
from weft.language.predicate import Predicates
from weft.model.limits import LIMITS
from weft.model.value import Type
from weft.network.tables import BrokerId, TableNetwork
from weft.routing import item_codec
from weft.routing.codec import MAX_FRAME, Codec
from weft.routing.digest import Digest, digest
from weft.routing.dls.items import LabelSet, Retuning, Stage, Switch
from weft.routing.item_codec import FilterItems, ItemCodec, LabelItems, RangeItems
from weft.routing.mics.items import CurveRange
from weft.routing.table import About, Item, ItemId, Link, Tell, Update

SCHEMAS = (None, Schema.of(a="int", b="string"), Schema.of(a="float", b="timestamp"), Schema.of(a="bool", b="int"))
FILTERS = FilterItems(None, PREDICATES)
RANGES, LABELS = RangeItems(), LabelItems()
CODECS = {"filters": Codec(FILTERS), "ranges": Codec(FILTERS, RANGES), "labels": Codec(FILTERS, LABELS)}

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1), st.sampled_from([0, 127, 128, 2**56, 2**63 - 1]))
ranges = st.builds(lambda group, ends: CurveRange(group, *sorted(ends)), st.integers(0, 9), st.tuples(numbers, numbers))
label_sets = st.lists(numbers, min_size=1, max_size=12, unique=True).map(lambda some: LabelSet(tuple(sorted(some))))
ids = st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 1)).map(ItemId)
notes = st.one_of(
    st.builds(Switch, st.integers(0, 9), st.integers(1, 2**32)),
    st.builds(Retuning, st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.sampled_from(Stage)),
)


def updates(items: st.SearchStrategy[Any], about: st.SearchStrategy[About]) -> st.SearchStrategy[Update]:
    dropped = st.lists(ids, max_size=4, unique=True).map(lambda some: tuple(sorted(some)))
    several = st.lists(notes, max_size=2).map(tuple)
    return st.builds(Update, about, st.booleans(), dropped, st.dictionaries(ids, items, max_size=4), several)


adverts = updates(trees(3), st.just(About.ADVERTISEMENTS))
wishes = st.just(About.SUBSCRIPTIONS)
coded = st.one_of(
    st.tuples(st.just(CODECS["filters"]), st.one_of(updates(trees(3), wishes), adverts)),
    st.tuples(st.just(CODECS["ranges"]), st.one_of(updates(ranges, wishes), adverts)),
    st.tuples(st.just(CODECS["labels"]), st.one_of(updates(label_sets, wishes), adverts)),
)

# -- items --------------------------------------------------------------------------------------------


@given(trees())
@thorough(200)
def test_a_filter_comes_back_as_it_was(tree: Filter) -> None:
    FILTERS.refuse(tree)
    again = FILTERS.decode(FILTERS.encode(tree))
    assert again == tree
    assert FILTERS.hash(again) == FILTERS.hash(tree)


@given(st.one_of(filters(), trees(6)), st.sampled_from(SCHEMAS))
@example(parse("a LIKE '%a_' AND NOT a LIKE '%b' OR b LIKE '_%c%' AND b != 'x'"), None)
@thorough(200)
def test_a_normal_form_comes_back_with_the_same_meaning(tree: Filter, schema: Schema | None) -> None:
    kind, form = FilterItems(schema, PREDICATES), normalize(tree, schema)
    kind.refuse(form)
    read = kind.decode(kind.encode(form))
    again = normalize(read, schema)
    assert set(again.boxes) == set(form.boxes) or equivalent(again, form, schema)
    assert kind.hash(read) == kind.hash(form) == kind.hash(again)
    if schema is None:
        assert [event in again for event in EVENTS] == [event in form for event in EVENTS]


@given(filters(4), filters(4))
@thorough(100)
def test_a_merger_comes_back_with_the_same_meaning(one: Filter, other: Filter) -> None:
    form = merge([one, other]).form
    FILTERS.refuse(form)
    again = normalize(FILTERS.decode(FILTERS.encode(form)))
    assert [event in again for event in EVENTS] == [event in form for event in EVENTS]


@given(filters(), st.randoms(use_true_random=False))
@thorough(150)
def test_the_order_of_boxes_and_tests_changes_no_hash(tree: Filter, rng: random.Random) -> None:
    form = normalize(tree)
    boxes = [Box(dict(shuffled(b.sets.items(), rng)), dict(shuffled(b.residuals.items(), rng))) for b in form.boxes]
    assert FILTERS.hash(NormalForm(tuple(shuffled(boxes, rng)))) == FILTERS.hash(form)


def shuffled(things: Iterable[Any], rng: random.Random) -> list[Any]:
    some = list(things)
    rng.shuffle(some)
    return some


@given(ranges)
@thorough(100)
def test_a_range_comes_back_as_it_was(item: CurveRange) -> None:
    RANGES.refuse(item)
    assert RANGES.decode(RANGES.encode(item)) == item


@given(label_sets)
@thorough(100)
def test_a_label_set_comes_back_as_it_was(item: LabelSet) -> None:
    LABELS.refuse(item)
    assert LABELS.decode(LABELS.encode(item)) == item


@given(st.one_of(st.binary(min_size=1, max_size=12), label_sets.map(LABELS.encode)))
@thorough(200)
def test_a_label_set_has_one_encoding(data: bytes) -> None:
    try:
        item = LABELS.decode(data)
    except RemoteProtocolError:
        return
    assert LABELS.encode(item) == data


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (FILTERS, parse("x > 5"), parse("x > 5.0")),
        (RANGES, CurveRange(0, 1, 2), CurveRange(0, 1, 258)),
        (LABELS, LabelSet((1, 2)), LabelSet((1, 3))),
    ],
)
def test_other_items_have_other_hashes(kind: ItemCodec, one: Item, other: Item) -> None:
    assert kind.hash(one) != kind.hash(other)
    assert 0 <= kind.hash(one) < 1 << 64


PATTERNS = "a LIKE '%a%b%' AND a LIKE '%y%z%' OR a LIKE '%m%n%' AND a LIKE '%o%p%' AND a NOT LIKE '_x%' OR b LIKE '%y'"


@pytest.mark.parametrize(
    ("kind", "item", "known"),
    [
        (FILTERS, parse("magnitude >= 5 AND place = 'Köln'"), 0x5C57E2418C074C25),
        (FILTERS, normalize(parse(PATTERNS)), 0x83CB5E1A6D57EE73),
        (FILTERS, normalize(parse("x > y OR among(z, 1, 'a') AND y IS NULL", PREDICATES)), 0x5190E9E91AB4B81),
        (RANGES, CurveRange(2, 3, 1 << 40), 0xD0D671CC046EEAA0),
        (LABELS, LabelSet((0, 1, 1 << 62)), 0xEB3AA84FA6732F6D),
    ],
)
def test_a_hash_is_the_same_in_every_process(kind: ItemCodec, item: Item, known: int) -> None:
    assert kind.hash(item) == known


# -- the door -----------------------------------------------------------------------------------------


def test_a_filter_whose_text_no_parser_takes_is_refused() -> None:
    large = In(AttributeRef("a"), tuple(Constant.of(number) for number in range(10_000, 25_540)))
    assert len(str(large)) == 108_785
    for item in (large, conjunction(large, parse("b = 1")), normalize(large), parse("TRUE") & large):
        with pytest.raises(FilterError, match="longer than 65536 bytes"):
            FILTERS.refuse(item)
    with pytest.raises(FilterTooComplexError, match="longer than 65536 bytes"):
        CODECS["filters"].encode(Update(add={ItemId(1): normalize(large)}))


def test_a_filter_that_weft_writes_longer_than_its_user_is_sent() -> None:
    for text in ("x IN (" + ",".join(["1e15"] * 13_000) + ")", " OR ".join([f"x={n}" for n in range(10_000, 11_500)])):
        item = parse(text + " OR y IN (" + ",".join(map(str, range(10, 40))) + ")")
        FILTERS.refuse(item)
        sent = CODECS["filters"].encode(Update(add={ItemId(1): item}))
        assert CODECS["filters"].decode(sent).add == {ItemId(1): item}


@pytest.mark.parametrize("letter", ["a", "'", "é", "\N{GRINNING FACE}"])
def test_the_limit_is_one_of_bytes_and_is_met_exactly(letter: str) -> None:
    each = len((letter * 2 if letter == "'" else letter).encode())
    room = MAX_TEXT - len("a = ''")
    fits, over = (
        Compare(AttributeRef("a"), Operator.EQ, Constant.of(letter * n)) for n in (room // each, room // each + 3)
    )
    FILTERS.refuse(fits)
    assert FILTERS.decode(FILTERS.encode(fits)) == fits
    with pytest.raises(FilterError, match="longer than 65536 bytes"):  # even without its spaces
        FILTERS.refuse(over)


def test_many_short_tests_are_measured_together() -> None:
    many = disjunction(*(parse(f"attribute{number} BETWEEN {number} AND {number}") for number in range(5000)))
    assert len(str(many)) > MAX_TEXT
    with pytest.raises(FilterError):
        FILTERS.refuse(many)


@pytest.mark.parametrize("number", [400, 5_000])
def test_a_long_filter_is_written_once_for_all_neighbours(number: int) -> None:
    items, tree, other = FilterItems(), parse(f"x IN ({','.join(map(str, range(number)))})"), parse("x > 5")
    items.refuse(tree)
    assert items.encode(tree) is items.encode(tree)
    assert (items.encode(other), items.encode(tree)) == ("x > 5", str(tree))


def test_a_filter_with_more_patterns_than_a_text_may_have_is_refused() -> None:
    made = disjunction(*(Like(AttributeRef("s"), f"w{n}%") for n in range(LIMITS.likes + 1)))
    with pytest.raises(FilterError, match="LIKE tests"):
        FilterItems().refuse(made)


def test_a_merger_that_does_not_normalize_again_is_refused() -> None:
    boxes = [normalize(parse(f"a{n} < 0 OR a{n} > {n}")).boxes[0] for n in range(300)]
    with pytest.raises(FilterTooComplexError):
        FILTERS.refuse(NormalForm(tuple(boxes)))


def test_a_filter_of_many_calls_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " OR ".join(f"cidr(address, '10.{n}.0.0/16')" for n in range(250))
    item = parse(text)
    assert FILTERS.decode(FILTERS.encode(item)) == item
    monkeypatch.setattr(item_codec, "parse", None)
    FILTERS.refuse(item)


def test_a_predicate_that_the_registry_does_not_have_is_refused() -> None:
    call = Call(AMONG, AttributeRef("a"), (Constant.of(1),))
    impostor = type("Other", (), {name: getattr(AMONG, name) for name in ("check", "matches", "covers", "overlaps")})()
    impostor.name, impostor.type = AMONG.name, AMONG.type
    FILTERS.refuse(call & parse("b = 1"))
    for known in (Predicates([KINDS]), Predicates([impostor])):
        with pytest.raises(FilterError, match="cannot be sent to other brokers"):
            FilterItems(None, known).refuse(call & parse("b = 1"))


def test_a_constant_that_is_written_otherwise_is_refused() -> None:
    odd = Compare(AttributeRef("a"), Operator.GT, Constant(Type.FLOAT, np.float64(1.5)))
    with pytest.raises(FilterError, match="cannot be sent"):
        FILTERS.refuse(odd)


def test_a_label_set_past_the_limit_is_refused() -> None:
    LABELS.refuse(LabelSet(tuple(range(MAX_TEXT))))
    with pytest.raises(FilterTooComplexError, match="split"):
        LABELS.refuse(LabelSet(tuple(range(MAX_TEXT + 1))))


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (FILTERS, LabelSet((1,))),
        (FILTERS, normalize(parse("a > 1"), SCHEMAS[1])),
        (RANGES, parse("a > 1")),
        (RANGES, CurveRange(0, 5, 4)),
        (RANGES, CurveRange(-1, 5, 6)),
        (RANGES, CurveRange(0, 5, 1 << 63)),
        (LABELS, CurveRange(0, 1, 2)),
        (LABELS, LabelSet(())),
        (LABELS, LabelSet((-1, 2))),
        (LABELS, LabelSet((2, 2))),
        (LABELS, LabelSet((2, 1, 3))),
        (LABELS, LabelSet((2, 1 << 63))),
    ],
)
def test_an_item_of_another_model_is_refused(kind: ItemCodec, item: Item) -> None:
    for refuse in (kind.refuse, kind.encode, kind.hash):
        with pytest.raises(LocalProtocolError):
            refuse(item)


GARBAGE: list[tuple[ItemCodec, object]] = [
    *((FILTERS, value) for value in ("", "x >", "x > 5 garbage", "nobody(x)", "x" * (MAX_TEXT + 1), 5, b"x", None)),
    *((RANGES, value) for value in ((1, 2), (1, 2, 3, 4), (0, 2, 1), (-1, 2, 3), (0, 1, 1 << 63), "abc", (True, 1, 2))),
    *((LABELS, value) for value in (b"", b"\x80", b"\x05\x80", b"\x80\x00", b"\xff" * 9 + b"\x01", "a", b"\0" * 65537)),
    (LABELS, b"\xff" * 8 + b"\x7f\x00"),  # 2**63 - 1, and one more
]


@pytest.mark.parametrize(("kind", "value"), GARBAGE, ids=range(len(GARBAGE)))
def test_an_invalid_item_is_the_neighbours_fault(kind: ItemCodec, value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        kind.decode(value)


def test_whatever_is_read_can_be_written_again() -> None:
    """Texts that brokers do not write may grow: a neighbour must not hand us what we cannot pass on."""
    for text in (
        "x=1e15 OR " * 1500 + "x",
        "x IN(" + "1e15," * 12_000 + "2)",
        "x" + " " * 65_000,
        "a='" + "x" * 65_000 + "'",
    ):
        assert len(text) <= MAX_TEXT
        with pytest.raises(RemoteProtocolError, match="not in canonical form"):
            FILTERS.decode(text)
    assert FILTERS.encode(FILTERS.decode("x IN(" + "1e15," * 1500 + "2)"))


# -- updates ------------------------------------------------------------------------------------------


@given(coded)
@thorough(150)
def test_an_update_comes_back_as_it_was(case: tuple[Codec, Update]) -> None:
    codec, update = case
    assert codec.decode(codec.encode(update)) == update


@given(coded)
@thorough(40)
def test_truncated_or_trailing_bytes_are_not_an_update(case: tuple[Codec, Update]) -> None:
    codec, update = case
    data = codec.encode(update)
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            codec.decode(data[:end])
    for more in (b"\0", b"\xc0", data[:1], data):
        with pytest.raises(RemoteProtocolError):
            codec.decode(data + more)


@given(coded, st.randoms(use_true_random=False))
@thorough(40)
def test_a_byte_that_has_changed_is_noticed_or_makes_another_update(
    case: tuple[Codec, Update], rng: random.Random
) -> None:
    codec, update = case
    data = codec.encode(update)
    for at in range(len(data)):
        torn = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        survives(codec, torn)


@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=60))
@thorough(300)
def test_garbage_is_not_an_update(name: str, data: bytes) -> None:
    survives(CODECS[name], data)
    survives(CODECS[name], b"\x96" + data)


def survives(codec: Codec, data: bytes) -> None:
    """RemoteProtocolError, or an update that is written and read as itself."""
    try:
        update = codec.decode(data)
    except RemoteProtocolError:
        return
    assert codec.decode(codec.encode(update)) == update


def frame(
    *, about: Any = 0, fresh: Any = False, drop: Any = (), ids: Any = (), items: Any = (), notes: Any = ()
) -> bytes:
    return msgspec.msgpack.encode((about, fresh, drop, ids, items, notes))


@pytest.mark.parametrize(
    "data",
    [
        frame(drop=[-1]),
        frame(drop=[2, 1]),
        frame(drop=[1, 1]),
        frame(drop=[1 << 63]),
        frame(ids=[-1], items=["x"]),
        frame(ids=[2, 1], items=["x", "y"]),
        frame(ids=[1, 1], items=["x", "x"]),
        frame(ids=[1], items=[]),
        frame(ids=[], items=["x"]),
        frame(ids=[1], items=[b"x"]),
        frame(ids=["1"], items=["x"]),
        frame(ids=[True], items=["x"]),
        frame(about=2),
        frame(about=-1),
        frame(about="subscriptions"),
        frame(fresh=1),
        frame(notes=[{"type": "Bell"}]),
        frame(notes=[{"type": "Switch", "number": 1}]),
        frame(notes=[{"type": "Retuning", "space": "", "stage": 4}]),
        msgspec.msgpack.encode((0, False, (), (), ())),
        msgspec.msgpack.encode((0, False, (), (), (), (), ())),
        msgspec.msgpack.encode({"about": 0}),
        b"\x96\x00\xc2\x90\x91\x01\x91\xa1\xff\x90",  # a text that is no UTF-8
        b"\x96\x00\xc2\x90\x90" + b"\x91" * 5000 + b"\x01\x90",  # nested deeper than any stack
        b"\x96\x00\xc2\x90\x90\xdd\xff\xff\xff\xff\x90",
        b"",
    ],
)
def test_an_invalid_frame_is_the_neighbours_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        CODECS["filters"].decode(data)


def test_a_frame_past_the_limit_is_neither_read_nor_written() -> None:
    codec, long = CODECS["filters"], Compare(AttributeRef("a"), Operator.EQ, Constant.of("x" * 60_000))
    several = {ItemId(number): long for number in range(17)}
    assert codec.decode(codec.encode(Update(add=several))).add == several
    with pytest.raises(LocalProtocolError, match="split"):
        codec.encode(Update(add=several | {ItemId(17): long}))
    with pytest.raises(RemoteProtocolError, match="exceeds the limit of 1048576"):
        codec.decode(b"\0" * (MAX_FRAME + 1))


def test_the_same_update_has_the_same_bytes() -> None:
    codec, items = CODECS["filters"], {ItemId(n): parse(f"x > {n}") for n in (3, 1, 200, 2)}
    one = codec.encode(Update(drop=(ItemId(9), ItemId(7)), add=items))
    other = codec.encode(Update(drop=(ItemId(7), ItemId(9)), add=dict(sorted(items.items()))))
    assert one == other
    assert codec.decode(one).drop == (7, 9)
    assert [*codec.decode(one).add] == [1, 2, 3, 200]


@pytest.mark.parametrize(
    "update",
    [
        Update(drop=(ItemId(-1),)),
        Update(drop=(ItemId(1), ItemId(1))),
        Update(drop=(ItemId(1 << 63),)),
        Update(add={ItemId(-1): parse("x")}),
    ],
)
def test_an_update_with_impossible_ids_is_not_written(update: Update) -> None:
    with pytest.raises(LocalProtocolError, match="ids"):
        CODECS["filters"].encode(update)


COUNT = b"\xdd\x7f\xff\xff\xff"  # an array of two thousand million


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "data",
    [
        COUNT,
        b"\x96\x00\xc2" + COUNT,
        b"\x96\x00\xc2\x90" + COUNT,
        b"\x96\x00\xc2\x90\x90" + COUNT,
        b"\x96\x00\xc2\x90\x91\x01\x91" + COUNT,
        b"\x96\x00\xc2\x90\x90\x90" + COUNT,
        b"\x96\x00\xc2\x90\x91\x01\x91\xdb\x7f\xff\xff\xff",  # a text, bytes and a map of as many
        b"\x96\x00\xc2\x90\x91\x01\x91\xc6\x7f\xff\xff\xff",
        b"\x96\x00\xc2\x90\x90\x90\x91\xdf\x7f\xff\xff\xff",
    ],
)
def test_a_count_that_is_not_there_takes_no_memory(name: str, data: bytes) -> None:
    padded = data + b"\0" * 1000
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            CODECS[name].decode(padded)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


# -- digests ------------------------------------------------------------------------------------------

SEVERAL: dict[ItemId, Item] = {ItemId(n): CurveRange(0, n % 3, n) for n in range(12)}


def test_a_digest_does_not_depend_on_how_the_set_came_to_be() -> None:
    there = Digest()
    for item_id in [*reversed(SEVERAL), ItemId(99)]:
        there.add(item_id, RANGES.hash(SEVERAL.get(item_id, CurveRange(9, 9, 9))))
    assert there.value != digest(SEVERAL, RANGES)
    there.drop(ItemId(99), RANGES.hash(CurveRange(9, 9, 9)))
    assert there.value == digest(SEVERAL, RANGES) == digest(dict(reversed(SEVERAL.items())), RANGES)
    assert there == Digest(digest(SEVERAL, RANGES))
    assert digest({}, RANGES) == Digest().value == 0


def test_other_sets_have_other_digests() -> None:
    subsets = [dict(some) for size in range(4) for some in combinations(SEVERAL.items(), size)]
    swapped = {ItemId(1): SEVERAL[ItemId(2)], ItemId(2): SEVERAL[ItemId(1)]}
    digests = [digest(some, RANGES) for some in [*subsets, swapped]]
    assert len(set(digests)) == len(digests)
    assert all(0 <= each < 1 << 64 for each in digests)


def test_a_digest_is_the_sum_that_is_documented() -> None:
    whole = 0
    for item_id, ends in ((1, (0, 1, 2)), (7, (1, 2, 3))):
        hashed = blake2b(struct.pack(">3Q", *ends), digest_size=8).digest()
        whole += int.from_bytes(blake2b(struct.pack(">Q", item_id) + hashed, digest_size=8).digest(), "big")
    assert digest({ItemId(1): CurveRange(0, 1, 2), ItemId(7): CurveRange(1, 2, 3)}, RANGES) == whole % 2**64


# -- every model on the wire --------------------------------------------------------------------------


class WiredOverlay(TableNetwork):
    """An overlay in which every update goes as bytes."""

    codec: Codec

    def _send(self, broker: BrokerId, tells: Iterable[Tell]) -> None:
        super()._send(broker, (Tell(tell.link, self.codec.decode(self.codec.encode(tell.update))) for tell in tells))


def codec_of(name: str) -> Codec:
    codec = TABLES[name].make().codec
    assert isinstance(codec, Codec)
    return codec


def links(overlay: TableNetwork) -> Iterator[tuple[BrokerId, BrokerId]]:
    return ((broker, other) for broker in overlay.brokers for other in overlay.links(broker))


def play(name: str, advertised: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run with objects and with bytes: the same deliveries, and the two ends of a link agree."""
    codec = codec_of(name)
    plain = Run(TABLES[name], advertised, seed)
    with monkeypatch.context() as patch:
        patch.setattr("routing.golden.TableNetwork", type("Wired", (WiredOverlay,), {"codec": codec}))
        wired = Run(TABLES[name], advertised, seed)
    assert plain.play()[0] == wired.play()[0]
    assert sorted(plain.overlay.deliveries) == sorted(wired.overlay.deliveries)
    for broker, other in links(wired.overlay):
        for about, kind in codec.kinds.items():
            told = wired.overlay.table(broker).told(Link(other), about)
            heard = wired.overlay.table(other).heard(Link(broker), about)
            assert told.keys() == heard.keys()
            assert digest(told, kind) == digest(heard, kind)
            assert wired.overlay.table(broker).digest(Link(other), about)[0] == digest(told, kind)
            assert wired.overlay.table(other).digest(Link(broker), about)[1] == digest(heard, kind)
            for item in told.values():
                kind.refuse(item)


@pytest.mark.parametrize("name", TABLES)
def test_a_network_of_any_model_delivers_the_same_over_the_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(name, False, 1, monkeypatch)


@pytest.mark.parametrize("name", ["covering", "mics", "dls"])
def test_advertisements_go_over_the_wire_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(name, True, 3, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_many_networks_deliver_the_same_over_the_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20, 40):
        play(name, bool(seed & 2), seed, monkeypatch)


READ_BACK = [
    " OR ".join("(" + " AND ".join(f"a{n} > {k}" for n in range(18)) + ")" for k in range(240)),
    "x IN (" + ", ".join(map(str, range(9_000))) + ")",
    " AND ".join(f'"a {n}" > 1' for n in range(2_000)),
    " AND ".join(f'"a {n}" > 1' for n in range(4_000)),
    " AND ".join(f"a{n} = TRUE" for n in range(2_000)),
    " OR ".join(f"a{n % 9} = TRUE" for n in range(4_500)),
    " OR ".join(f"a{n % 9} IS NOT NULL AND NOT (a{n} > 1 OR b LIKE '%{n}%')" for n in range(900)),
    " OR ".join(f"(a{n % 9} > {n} AND b) IS NOT TRUE" for n in range(1_500)),
    " OR ".join(f"a{n % 9} IS TRUE" for n in range(4_000)),
    " OR ".join(f"a{n % 9} LIKE '!%{n}' ESCAPE '!'" for n in range(1_500)),
]


@pytest.mark.parametrize("number", range(len(READ_BACK)))
def test_what_is_let_pass_without_reading_it_is_read_by_others(number: int) -> None:
    tree = parse(READ_BACK[number], limit=LIMITS.stored_text)
    try:
        FILTERS.refuse(tree)
    except FilterError:
        with pytest.raises((FilterError, RemoteProtocolError)):
            FILTERS.decode(FILTERS.encode(tree))
    else:
        assert FILTERS.decode(FILTERS.encode(tree)) == tree
