"""Schemas as files. What is written is read back. Whatever is wrong is named with its file and place.

[attributes.magnitude]
type = "float"
bounds = [-1.0, 10.0]       # or low = ..., high = ... where there is only one
precision = 0.01
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from weft.errors import SchemaError
from weft.model.door import shown
from weft.model.schema import Attribute, did_you_mean, repeated
from weft.model.value import Type, format_timestamp, from_micros, parse_timestamp, to_micros

_KEYS = ("type", "bounds", "low", "high", "precision", "categories", "data")


def read_form(form: Mapping[str, Any]) -> tuple[Attribute, ...]:
    """The attributes of a file form."""
    declared = _table(form, "the schema")
    _check_keys(declared, ("attributes",), "the schema")
    if "attributes" not in declared:
        raise SchemaError("the schema has no table 'attributes'; add one")
    forms = _table(declared["attributes"], "'attributes'")
    return tuple(_attribute(name, form) for name, form in forms.items())


def form_of(attributes: Iterable[Attribute]) -> dict[str, Any]:
    """The file form of attributes."""
    return {"attributes": {attribute.name: _form(attribute) for attribute in attributes}}


def read_file(path: Path) -> tuple[Attribute, ...]:
    """The attributes in a file."""
    try:
        return read_form(_read(path))
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise SchemaError(f"{path}: cannot be read: {said}") from error
    except RecursionError:
        raise SchemaError(f"{path}: cannot be read: nested too deep") from None


def write_file(path: Path, attributes: Iterable[Attribute]) -> None:
    """Write attributes as JSON."""
    if path.suffix != ".json":
        raise SchemaError(f"{path}: a schema is saved as JSON; choose a name that ends in .json")
    path.write_text(json.dumps(form_of(attributes), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _attribute(name: str, form: object) -> Attribute:
    """One attribute of the file form."""
    if isinstance(form, str):
        form = {"type": form}
    place = f"attribute {shown(name)}"
    form = _table(form, place)
    _check_keys(form, _KEYS, place)
    if "type" not in form:
        raise SchemaError(f"{place} has no type; add one of {', '.join(Type)}")
    if "categories" in form and not form["categories"]:
        raise SchemaError(f"{place} has an empty list of categories; add some or leave the list out")
    low, high = form.get("low"), form.get("high")
    if "bounds" in form:
        bounds = form["bounds"]
        if low is not None or high is not None:
            raise SchemaError(f"{place} has both bounds and low or high; keep one of them")
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise SchemaError(f"{place} has the bounds {shown(bounds)}; write [low, high]")
        low, high = bounds
    if form["type"] == Type.TIMESTAMP:
        low, high = _moment(low, place), _moment(high, place)
    rest = {key: form[key] for key in ("precision", "categories", "data") if key in form}
    return Attribute(name, form["type"], low, high, **rest)


def _form(attribute: Attribute) -> dict[str, Any]:
    """The file form of one attribute."""
    low, high = (
        format_timestamp(to_micros(bound)) if isinstance(bound, datetime) else bound
        for bound in (attribute.low, attribute.high)
    )
    form: dict[str, Any] = {"type": str(attribute.type)}
    if low is not None and high is not None:
        form["bounds"] = [low, high]
    else:
        form |= {key: bound for key, bound in (("low", low), ("high", high)) if bound is not None}
    if attribute.precision is not None:
        form["precision"] = attribute.precision
    if attribute.categories:
        form["categories"] = list(attribute.categories)
    if attribute.data is not None:
        form["data"] = attribute.data
    return form


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text(encoding="utf-8"))
    if path.suffix == ".json":
        form: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
        return form
    raise SchemaError("a schema must be a .toml or .json file")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := repeated(name for name, _ in pairs)) is not None:
        raise SchemaError(f"{twice!r} appears twice; keep one")
    return dict(pairs)


def _table(form: object, place: str) -> Mapping[str, Any]:
    if not isinstance(form, Mapping):
        raise SchemaError(f"{place} is not a table of names and values")
    return form


def _check_keys(form: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key, value in form.items():
        if key not in known:
            other = "quote a dotted name" if isinstance(value, Mapping) else f"it may have {', '.join(known)}"
            hint = did_you_mean(key, known) or f": {other}"
            raise SchemaError(f"{place} has the unknown key {key!r}{hint}")


def _moment(bound: object, place: str) -> object:
    """A timestamp as files have it: TOML's own, or text."""
    if isinstance(bound, str):
        try:
            return from_micros(parse_timestamp(bound))
        except ValueError as error:
            raise SchemaError(f"{place} has the bound {shown(bound)}, which is not a timestamp: {error}") from None
    if isinstance(bound, date) and not isinstance(bound, datetime):
        return datetime(bound.year, bound.month, bound.day, tzinfo=UTC)
    return bound
