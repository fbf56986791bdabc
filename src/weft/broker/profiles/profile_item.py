"""A profile as an item of a routing table: its region, and one condition that says the rest.

The condition is on an attribute that no event and no other filter has, so a query overlaps the item if and only if it
overlaps the region. Two versions of a profile are different items.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from weft.errors import FilterError, RemoteProtocolError
from weft.language.ast import And, AttributeRef, Compare, Filter, Operator, Truth, attributes
from weft.language.constant import Constant
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.value import Type

ATTRIBUTE = "weft.profile"
ProfileIdentity = tuple[str, str]  # the publisher's session, and its id of the profile

_Time = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class ProfileTag(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an item says besides the region."""

    source: str
    name: str
    version: _Time
    expires: _Time  # UTC microseconds
    payload: str = ""  # base64


class LivingProfile(msgspec.Struct, frozen=True, eq=False):
    """One version of a profile, until it ends."""

    source: str
    name: str
    version: int
    expires: int
    payload: bytes
    region: Filter

    @property
    def identity(self) -> ProfileIdentity:
        """What identifies it, whatever its version."""
        return self.source, self.name


_read = msgspec.json.Decoder(ProfileTag)
_write = msgspec.json.Encoder()


def identity_hash(identity: ProfileIdentity) -> int:
    """63 bits by which a log knows a profile.

    >>> identity_hash(("station", "7")) == identity_hash(("station", "7")) != identity_hash(("station7", ""))
    True
    """
    return _hash(_write.encode(identity))


def filter_hash(text: str) -> int:
    """63 bits by which a log knows the filter of a subscription; they are the same at every broker."""
    return _hash(text.encode())


def _hash(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little") >> 1


def profile_item(profile: LivingProfile, predicates: Predicates = NO_PREDICATES) -> Filter:
    """The item of a profile. Raises FilterError if its text is longer than a filter may be.

    >>> storm = LivingProfile("station", "7", 1, 600, b"stay inside", parse("wind BETWEEN 30 AND 50"))
    >>> str(profile_item(storm))
    'wind BETWEEN 30 AND 50 AND weft.profile = \\'["station","7",1,600,"c3RheSBpbnNpZGU="]\\''
    """
    tag = ProfileTag(
        profile.source, profile.name, profile.version, profile.expires, b64encode(profile.payload).decode()
    )
    text = _write.encode(tag).decode()
    condition = Compare(AttributeRef(ATTRIBUTE), Operator.EQ, Constant(Type.STRING, text))
    region = profile.region
    item = And((*(region.operands if isinstance(region, And) else (region,)), condition))
    parse(str(item), predicates=predicates)  # raises for what could not be read back
    return item


def read_profile(item: object) -> LivingProfile:
    """The profile of an item. Raises RemoteProtocolError if it is not a profile's."""
    if isinstance(item, And) and item.operands:
        *region, last = item.operands
        if isinstance(last, Compare) and last.left.name == ATTRIBUTE and isinstance(last.right, Constant):
            try:
                tag = _read.decode(str(last.right.value))
                payload = b64decode(tag.payload, validate=True)
            except (msgspec.DecodeError, Base64Error, ValueError) as error:
                raise RemoteProtocolError(f"a profile that was received cannot be read: {error}") from None
            left = Truth(True) if not region else region[0] if len(region) == 1 else And(tuple(region))
            return LivingProfile(tag.source, tag.name, tag.version, tag.expires, payload, left)
    raise RemoteProtocolError("an item of the table of profiles is not a profile")


def check_region(region: Filter) -> None:
    """Raise FilterError if a region uses the names that notices have."""
    for name in sorted(attributes(region)):
        if name.startswith(ATTRIBUTE):
            raise FilterError(f"attributes whose names begin with {ATTRIBUTE} are reserved; use another name")
