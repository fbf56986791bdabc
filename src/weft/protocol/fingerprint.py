"""The fingerprint of a schema and of the names of custom predicates."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from weft.language.predicate import Predicates
from weft.language.predicate_modules import agreed_predicates
from weft.model.schema import Schema


def fingerprint(schema: Schema | None, predicates: Iterable[str] = ()) -> str:
    """A short text: a client and a broker with equal fingerprints read events and filters alike."""
    form = b"" if schema is None else msgspec.json.encode(schema.to_dict())
    names = sorted(agreed_predicates(predicates) if isinstance(predicates, Predicates) else predicates)
    if names:
        form += msgspec.json.encode(names)
    return blake2b(form, digest_size=8).hexdigest() if form else ""
