"""What two neighbours must agree on. Law: brokers that would understand an item or an event differently are refused,
with one sentence that says what differs.
"""

from __future__ import annotations

import json
from typing import Any

from weft.broker.link_messages import LinkHello
from weft.broker.messages import VERSION
from weft.errors import AccessError
from weft.routing.table import Role

CONVERSE = {Role.PEER: Role.PEER, Role.MASTER: Role.SLAVE, Role.SLAVE: Role.MASTER}
_MOVING = ("space", "side")  # what a table of labels may change while it runs


def check_hello(mine: LinkHello, theirs: LinkHello) -> None:
    """Raise AccessError unless two brokers understand each other."""
    oldest, newest = theirs.versions
    if not oldest <= VERSION <= newest:
        raise AccessError(f"{mine.name} speaks version {VERSION} of the protocol, {theirs.name} {oldest} to {newest}")
    if theirs.to != mine.name:
        raise AccessError(f"{theirs.name} expects {theirs.to} here, but this broker is {mine.name}; check its address")
    if theirs.role not in {role.value for role in Role} or theirs.role != CONVERSE[Role(mine.role)].value:
        raise AccessError(
            f"{theirs.name} is attached as {mine.role} here, and attaches {mine.name} as {theirs.role}; "
            f"it must be {CONVERSE[Role(mine.role)].value}"
        )
    if mine.predicates != theirs.predicates:
        odd = sorted({*mine.predicates} ^ {*theirs.predicates})
        raise AccessError(
            f"{mine.name} and {theirs.name} have different predicates: only one of them has {', '.join(odd)}"
        )
    if mine.fingerprint != theirs.fingerprint:
        differing = difference(mine, theirs)
        if differing:
            raise AccessError(f"{mine.name} and {theirs.name} differ: {differing}; configure both in the same way")


def difference(mine: LinkHello, theirs: LinkHello) -> str:
    """What differs between two tables; empty if it is only that one of them is further in a re-tuning."""
    try:
        one, other = json.loads(mine.fingerprint), json.loads(theirs.fingerprint)
    except ValueError:
        return "the fingerprint of a table cannot be read"
    found = _first(one, other, "")
    if found is None:
        return ""
    path, a, b = found
    if path.rsplit(".", 1)[-1].split("[")[0] in _MOVING and _moves(mine.settings, theirs.settings):
        return ""
    return f"{path} is {_short(a)} at {mine.name} and {_short(b)} at {theirs.name}"


def _first(one: Any, other: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first difference between two JSON values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=lambda key: (key != "model", key)):
            found = _first(one.get(key), other.get(key), f"{path}.{key}" if path and key not in _MOVING else key)
            if found is not None:
                return found
        return None
    return None if one == other else (path or "the table", one, other)


def _moves(mine: str, theirs: str) -> bool:
    """Whether one table is about to change to the label space that the other one has already."""
    try:
        one, other = json.loads(mine or "{}"), json.loads(theirs or "{}")
    except ValueError:
        return False
    for early, late in ((one, other), (other, one)):
        coming = early.get("coming")
        if coming is not None and coming == late.get("space") and early.get("side") != late.get("side"):
            return True
    return False


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else text[:57] + "..."
