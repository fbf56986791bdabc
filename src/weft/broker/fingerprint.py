"""Whether a client and its broker read events and filters alike. Law: equal fingerprints mean the same schema, and
predicates of the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from weft.model.schema import Schema


def fingerprint(schema: Schema | None, predicates: Iterable[str] = ()) -> str:
    """One short text for a schema and the names of predicates: clients and brokers that have the same agree on what
    events and filters mean.
    """
    form = b"" if schema is None else msgspec.json.encode(schema.to_dict())
    names = sorted(predicates)
    if names:
        form += msgspec.json.encode(names)
    return blake2b(form, digest_size=8).hexdigest() if form else ""
