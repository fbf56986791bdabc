"""Items as MessagePack values, and their hashes. `decode(encode(item))` has the meaning and the hash of the item. An
item has the same hash in every process. Whatever `refuse` accepts can be encoded, and decoded elsewhere.

The model of a table determines the kind of its items, so the wire format does not state it. Advertisements are always
filters. Decoding raises RemoteProtocolError and nothing else, and uses memory in proportion to what was received.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Any, ClassVar, Protocol

from weft.algebra.box import Box, NormalForm
from weft.algebra.normalize import normalize
from weft.algebra.to_filter import values_to_filter
from weft.errors import FilterError, FilterTooComplexError, LocalProtocolError, RemoteProtocolError
from weft.language.ast import (
    FALSE,
    And,
    AttributeRef,
    Between,
    Call,
    Compare,
    Filter,
    Has,
    HasElement,
    In,
    Is,
    Like,
    Not,
    Or,
    conjunction,
)
from weft.language.constant import Constant
from weft.language.format import least_written
from weft.language.lexer import MAX_TEXT, is_longer, is_plain_name
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.limits import LIMITS, WRITTEN
from weft.model.schema import Schema
from weft.model.value import Type
from weft.routing.dls.items import LabelSet
from weft.routing.mics.items import CurveRange
from weft.routing.table import Item

MAX_WRITTEN = WRITTEN * MAX_TEXT  # bytes of the text of an admitted filter, as Weft writes it
MAX_INT = (1 << 63) - 1  # what both ends store in 64 bits
_REMEMBERED = 1_024  # characters; a longer text is kept until the next one is written
_LONG = MAX_TEXT // 8  # a longer text could exceed the limit when it is rewritten: no constant grows eightfold
_MAX_LABELS = MAX_TEXT  # bytes per label set


class ItemCodec(Protocol):
    """Converts items of one kind to values and back."""

    wire: ClassVar[Any]  # the type of a list of values, as msgspec decodes it

    def encode(self, item: Item) -> object:
        """The value of an item. Raises FilterTooComplexError, or LocalProtocolError for an item of another kind."""
        ...

    def decode(self, value: object) -> Item:
        """The item of a received value. Raises RemoteProtocolError."""
        ...

    def hash(self, item: Item) -> int:
        """64 bits of BLAKE2b over the value, the same on every machine. Raises as `encode` does."""
        ...

    def refuse(self, item: Item) -> None:
        """Raise FilterError, or FilterTooComplexError for its size, unless the item can be sent and read.

        Cost: that of encoding the item and decoding it again.
        """
        ...


class FilterItems:
    """Filters as their canonical text, normal forms as the text of the filter that expresses them.

    A normal form is decoded as that filter. Its boxes and their tests are written in a fixed order, so that the order
    in which they were found does not matter.

    >>> from weft import normalize
    >>> kind = FilterItems()
    >>> kind.encode(normalize(parse("y < 2 AND NOT x <= 5")))
    'x > 5 AND y < 2'
    >>> kind.decode("x > 5 AND y < 2") == parse("x > 5 AND y < 2"), hex(kind.hash(parse("x > 5")))
    (True, '0x46016c91a4f65f4c')
    """

    wire: ClassVar[Any] = list[str]

    def __init__(self, schema: Schema | None = None, predicates: Predicates = NO_PREDICATES) -> None:
        self._schema = schema
        self._predicates = predicates
        self._latest: tuple[Item | None, str] = None, ""  # a long item is written once for all neighbours

    def encode(self, item: Item) -> str:
        """The text of an item: at most 64 KiB for a normal form, and what an admitted filter can take for a filter."""
        if self._latest[0] is item:
            return self._latest[1]
        most = MAX_WRITTEN
        if isinstance(item, NormalForm):
            text, most = self._expressed(item), MAX_TEXT
        elif isinstance(item, Filter):
            text = str(item)
        else:
            raise _foreign(item, "a filter or a normal form")
        if is_longer(text, most):
            raise FilterTooComplexError(f"the filter's text is longer than {most} bytes; split the filter")
        if len(text) > _REMEMBERED:
            self._latest = item, text
        return text

    def decode(self, value: object) -> Filter:
        """The filter of a text."""
        if not isinstance(value, str):
            raise RemoteProtocolError(f"a filter must be sent as text, not {type(value).__name__}")
        try:
            found = parse(value, self._predicates)
        except FilterError as error:
            raise RemoteProtocolError(f"a received filter cannot be parsed: {error}") from None
        if _LONG < len(value) <= MAX_TEXT and str(found) != value:  # where it is longer, `parse` has compared
            raise RemoteProtocolError("a long filter was received that is not in canonical form")
        return found

    def hash(self, item: Item) -> int:
        """The hash of the text."""
        return _hashed(self.encode(item).encode())

    def refuse(self, item: Item) -> None:
        """Raise FilterError unless parsing the text gives the filter, or for a form one that normalizes again."""
        if isinstance(item, Filter) and (_is_short(item) or _most_bytes(item) <= MAX_TEXT):
            return
        text = self.encode(item)
        if isinstance(item, Filter) and _reads_back(item, is_longer(text, LIMITS.text), self._predicates):
            return
        try:
            again = parse(text, self._predicates)
        except FilterError as error:
            raise FilterError(f"the filter cannot be sent to other brokers: {error}") from None
        if isinstance(item, NormalForm):
            normalize(again, self._schema)
        elif again != item:
            raise FilterError(f"the filter cannot be sent to other brokers: they would read {again}; rewrite it")

    def _expressed(self, form: NormalForm) -> str:
        if form.schema != self._schema:
            raise LocalProtocolError("the normal form has another schema than this network; normalize it again")
        return " OR ".join(sorted(str(self._box(box)) for box in form.boxes)) or str(FALSE)

    def _box(self, box: Box) -> Filter:
        tests = [values_to_filter(name, box.sets[name], self._schema) for name in sorted(box.sets)]
        return conjunction(*tests, *sorted((s.to_filter(allowed) for s, allowed in box.residuals.items()), key=str))


class RangeItems:
    """Curve ranges as three integers.

    >>> RangeItems().encode(CurveRange(0, 17, 40))
    (0, 17, 40)
    """

    wire: ClassVar[Any] = list[tuple[int, int, int]]

    def encode(self, item: Item) -> tuple[int, int, int]:
        """Group, start and end."""
        if not isinstance(item, CurveRange):
            raise _foreign(item, "a curve range")
        if not _is_range(item):
            raise LocalProtocolError(f"{item} is not a range of curve points; use numbers from 0 to 2**63 - 1")
        return item.group, item.start, item.end

    def decode(self, value: object) -> CurveRange:
        """The range of three integers."""
        if isinstance(value, list | tuple) and len(value) == 3 and all(type(each) is int for each in value):
            item = CurveRange(*value)
            if _is_range(item):
                return item
        raise RemoteProtocolError("a curve range must be three nonnegative integers: group, start and end")

    def hash(self, item: Item) -> int:
        """The hash of the integers, as eight bytes each."""
        return _hashed(b"".join(each.to_bytes(8, "big") for each in self.encode(item)))

    def refuse(self, item: Item) -> None:
        """Every curve range can be sent; anything else raises LocalProtocolError."""
        self.encode(item)


class LabelItems:
    """Label sets as the first label and the gaps to the next ones, minus one; each in groups of 7 bits, lowest first.

    >>> LabelItems().encode(LabelSet((5, 6, 300)))
    b'\\x05\\x00\\xa5\\x02'
    >>> LabelItems().decode(b"\\x05\\x00\\xa5\\x02")
    LabelSet(labels=(5, 6, 300))
    """

    wire: ClassVar[Any] = list[bytes]

    def encode(self, item: Item) -> bytes:
        """The bytes of a label set, at most 64 KiB."""
        if not isinstance(item, LabelSet):
            raise _foreign(item, "a label set")
        labels = item.labels
        if not labels or labels[0] < 0 or labels[-1] > MAX_INT:
            raise LocalProtocolError("the label set is empty or has an invalid label; give labels of up to 63 bits")
        data = bytearray()
        before = -1
        for label in labels:
            gap = label - before - 1
            if gap < 0:
                raise LocalProtocolError("the labels of a set do not ascend; sort them and remove duplicates")
            while gap > 0x7F:
                data.append(gap & 0x7F | 0x80)
                gap >>= 7
            data.append(gap)
            before = label
        if len(data) > _MAX_LABELS:
            raise FilterTooComplexError(
                f"a label set of {len(data)} bytes exceeds the limit of {_MAX_LABELS}; split it"
            )
        return bytes(data)

    def decode(self, value: object) -> LabelSet:
        """The label set in bytes that `encode` may have written."""
        if not isinstance(value, bytes) or not 0 < len(value) <= _MAX_LABELS:
            raise RemoteProtocolError(f"a label set must be 1 to {_MAX_LABELS} bytes")
        labels: list[int] = []
        label, gap, shift = -1, 0, 0
        for byte in value:
            gap |= (byte & 0x7F) << shift
            if byte > 0x7F:
                shift += 7
                if shift > 56:
                    raise RemoteProtocolError("a label has more than 63 bits")
                continue
            if shift and not byte:
                raise RemoteProtocolError("a gap between labels is not in its shortest form")
            label += gap + 1
            labels.append(label)
            gap = shift = 0
        if shift:
            raise RemoteProtocolError("a label set ends within a label")
        if label > MAX_INT:
            raise RemoteProtocolError("a label has more than 63 bits")
        return LabelSet(tuple(labels))

    def hash(self, item: Item) -> int:
        """The hash of the bytes."""
        return _hashed(self.encode(item))

    def refuse(self, item: Item) -> None:
        """Raise FilterTooComplexError for a label set of more than 64 KiB."""
        self.encode(item)


def _is_short(item: Filter) -> bool:
    """Whether an item is certainly short: few tests of numbers, on attributes with short names. Most items are."""
    parts = item.operands if type(item) is And else (item,)
    if len(parts) > _FEW_TESTS:
        return False
    for part in parts:
        kind = type(part)
        if kind is Between:
            plain = type(part.low.value) in _NUMBERS and type(part.high.value) in _NUMBERS  # type: ignore[attr-defined]
        elif kind is Compare:
            right = part.right  # type: ignore[attr-defined]
            plain = type(right) is Constant and type(right.value) in _NUMBERS
        else:
            return False
        if not plain or len(part.left.name) > _SHORT_NAME:  # type: ignore[attr-defined]
            return False
    return True


def _most_bytes(node: Filter) -> float:
    """An upper bound of the text of common tests; infinity for others, and for texts that may not parse again."""
    kind = type(node)  # a chain of types is faster here than patterns, and every subscription passes through
    if kind is Between:
        assert isinstance(node, Between)
        return _of_text(node.left.name) + _of_constant(node.low) + _of_constant(node.high) + 14
    if kind is Compare:
        assert isinstance(node, Compare)
        right = node.right
        return _of_text(node.left.name) + _of_constant(right) + 4 if isinstance(right, Constant) else math.inf
    if kind is And or kind is Or:
        assert isinstance(node, And | Or)
        total: float = 7 * len(node.operands)  # " AND " and parentheses
        for each in node.operands:
            total += _most_bytes(each)
            if total > MAX_TEXT:
                return math.inf
        return total
    return math.inf


def _reads_back(root: Filter, is_long: bool, predicates: Predicates) -> bool:
    """Whether a neighbour surely reads the text of a filter as the same tree: plain constants, and few words and signs.

    A neighbour knows the same predicates.

    Cost: O(nodes), a quarter of what reading the text takes.
    """
    names: set[str] = set()
    tests = likes = calls = values = 0
    words = steps = 0  # as the grammar counts them, at most, and as `parse_long` does
    plain = True  # whether `parse_long` reads it
    stack = [root]
    while stack:
        node: Any = stack.pop()
        kind = type(node)  # as above: chains of types are fast
        steps += 1
        if kind is And or kind is Or:
            stack += node.operands
            words += 2 + len(node.operands)  # parentheses, and a word between any two
            steps += len(node.operands)
            continue
        if kind is Not or kind is Is:
            plain = plain and (kind is Not or node.value is None or type(node.operand) in (And, Or))
            stack.append(node.operand)
            words += 5
            continue
        if kind is Like:
            likes += 1
            plain = plain and node.escape is None
        elif kind is Has:
            plain = False
            tests += len(node.values) - 1
        elif kind is HasElement:
            plain = False
            names.add(node.left.name)
            stack.append(node.test)
            words += 5
            continue
        elif kind is Call:
            if predicates.get(node.predicate.name) is not node.predicate:
                return False  # it may be read as another one
            calls += 1
            plain = False
        attributes, constants = _parts(node, kind)
        if not attributes:
            return False  # nothing is tested
        names.update(attributes)
        for each in constants:
            if _PLAIN_TYPES.get(type(each.value)) is not each.type:
                if type(each.value) is not _PLAIN[each.type]:
                    return False
                plain = plain and each.type is not Type.BOOL
        words += 5 + 3 * len(constants)  # a sign, a comma or TIMESTAMP may come with a constant
        tests += 1
        values += len(constants)
    if len(names) > LIMITS.names or tests > LIMITS.tests or likes > LIMITS.likes or values > LIMITS.text // 2:
        return False
    if calls > LIMITS.calls:
        return False
    if is_long and least_written(root) > LIMITS.text:
        return False
    return words <= LIMITS.tokens or (plain and steps <= LIMITS.tokens and all(map(is_plain_name, names)))


def _parts(node: Any, kind: type) -> tuple[tuple[str, ...], tuple[Constant, ...]]:
    """The attributes and constants of a test; no attributes if nothing is tested."""
    if kind is Compare:
        right = node.right
        if type(right) is AttributeRef:
            return (node.left.name, right.name), ()
        return (node.left.name,), (right,)
    if kind is In or kind is Has:
        return (node.left.name,), node.values
    if kind is Between:
        return (node.left.name,), (node.low, node.high)
    if kind is Like:
        return (node.left.name,), ()
    if kind is Call:
        return (node.left.name,), node.arguments
    return ((node.name,), ()) if kind is AttributeRef else ((), ())


def _of_constant(constant: Constant) -> float:
    value = constant.value
    if type(value) is not _PLAIN[constant.type]:
        return math.inf
    return _of_text(value) if isinstance(value, str) else 48


def _of_text(text: str) -> int:
    return 4 * len(text) + 2  # UTF-8, or two characters for a doubled quote


_NUMBERS = (int, float)
_FEW_TESTS, _SHORT_NAME = 64, 128
_PLAIN_TYPES = {int: Type.INT, float: Type.FLOAT, str: Type.STRING}  # of constants that `parse_long` reads
_PLAIN = {Type.BOOL: bool, Type.INT: int, Type.FLOAT: float, Type.STRING: str, Type.TIMESTAMP: int}


def _hashed(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _is_range(item: CurveRange) -> bool:
    return 0 <= item.group <= MAX_INT and 0 <= item.start <= item.end <= MAX_INT


def _foreign(item: object, kind: str) -> LocalProtocolError:
    return LocalProtocolError(f"an item of this table must be {kind}, not a {type(item).__name__}")
