"""Settings from a TOML file, the environment and flags, read into frozen dataclasses.

An unknown name is an error that suggests the nearest known one, and every error says where the value came from. A text
is accepted wherever a number of bytes ("10 GiB") or a duration ("1.5 s") is expected. Relative paths in a file are
relative to the file.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from weft.errors import OptionError
from weft.model.schema import did_you_mean

C = TypeVar("C")

Bytes = Annotated[int, "bytes"]
Duration = Annotated[int, "microseconds"]
Units = Mapping[type, Mapping[str, Any]]  # what a plain int means, by class and field

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]*)\s*")
_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BINARY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_BYTES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_TIMES = {"us": 1, "µs": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3_600 * 10**6, "d": 86_400 * 10**6}
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
PREFIX = "WEFT_"


class Loaded(NamedTuple, Generic[C]):
    """What was read, where each setting that was given came from, and which settings were given by an old name."""

    config: C
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()


class SettingSource(NamedTuple):
    """Where a setting comes from; relative paths are relative to the folder."""

    name: str
    folder: Path | None = None


def load(  # noqa: PLR0913, PLR0917 - the sources of settings
    default: C,
    units: Units,
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    renamed: Mapping[str, str] | None = None,
    short: Mapping[str, str] | None = None,
) -> Loaded[C]:
    """The default with everything that was given. Also by names in `renamed`, `short`. Raises OptionError."""
    reader = _Reader(default, units, renamed, short)
    if file is not None:
        reader.take(_read(file), SettingSource(str(file), file.parent))
    names = {variable(path): path for path in (*(renamed or ()), *(short or ()), *reader.leaves)}
    for name, path in names.items():
        if name in environment:
            reader.give(path, environment[name], SettingSource(name))
    _check_environment(names, environment)
    for path, value in flags.items():
        reader.give(path, value, SettingSource("the command line"))
    return Loaded(reader.build(default), reader.sources, tuple(reader.notes))


def variable(path: str) -> str:
    """The environment's name of a setting."""
    return PREFIX + path.upper().replace(".", "_").replace("-", "_")


def _check_environment(names: Iterable[str], environment: Mapping[str, str]) -> None:
    """Raise OptionError for a variable that is nearly one of ours; others may begin alike."""
    from difflib import get_close_matches

    known = {name: name.removeprefix(PREFIX) for name in names}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = get_close_matches(name.removeprefix(PREFIX), known.values(), n=1, cutoff=0.85)
            if near:
                raise OptionError(
                    f"the environment has {name}, which is not a setting: did you mean {PREFIX}{near[0]}?"
                )


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also numbers of very many digits
        raise OptionError(f"{file} is not valid TOML: {error}") from None


def _settings(config: Any, units: Units, at: str) -> Iterator[tuple[str, Any, Any]]:
    """Every setting of a dataclass: its path, its kind, and its value. A map of tables is one setting."""
    hints = get_type_hints(type(config), include_extras=True) | dict(units.get(type(config), {}))
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            yield from _settings(value, units, f"{at}{each.name}.")
        else:
            yield f"{at}{each.name}", hints[each.name], value


class _Reader:
    """Collects values by path, then builds the dataclasses."""

    def __init__(
        self,
        default: Any,
        units: Units,
        renamed: Mapping[str, str] | None = None,
        short: Mapping[str, str] | None = None,
    ) -> None:
        self._units = units
        self._renamed = renamed or {}
        self._short = short or {}
        self.notes: list[str] = []
        self._kinds = {path: kind for path, kind, _ in _settings(default, units, "")}
        self.leaves = [path for path, kind in self._kinds.items() if get_origin(kind) is not Mapping]
        self._values: dict[str, Any] = {}  # of leaves, and of whole maps of tables
        self.sources: dict[str, str] = {}

    def take(self, table: Mapping[str, Any], source: SettingSource, at: str = "") -> None:
        """Add everything in a table."""
        known = dict.fromkeys(path.removeprefix(at).split(".")[0] for path in self._kinds if path.startswith(at))
        for key, value in table.items():
            path = f"{at}{key}"
            if path in self._renamed:
                self.give(path, value, source)
                continue
            if key not in known:
                raise OptionError(f"{source.name}: {path} is not a setting{did_you_mean(key, known)}")
            if path in self.leaves or (path in self._short and not isinstance(value, dict)):
                self.give(path, value, source)
            elif path in self._kinds:
                self._values[path] = self._tables(
                    get_args(self._kinds[path])[1], _table(value, source, path), source, path
                )
                self.sources[path] = source.name
            else:
                self.take(_table(value, source, path), source, f"{path}.")

    def give(self, path: str, value: Any, source: SettingSource) -> None:
        """Add one setting by its path, or by the path that it had."""
        path = self._short.get(path, path)
        if path in self._renamed:
            self.notes.append(f"{source.name}: {path} is now called {self._renamed[path]}")
            path = self._renamed[path]
        if path not in self.leaves:
            raise OptionError(f"{source.name}: {path} is not a setting{did_you_mean(path, self.leaves)}")
        self._values[path] = _value(self._kinds[path], value, f"{source.name}: {path}", source.folder)
        self.sources[path] = source.name

    def _tables(self, kind: Any, table: Mapping[str, Any], source: SettingSource, at: str) -> dict[str, Any]:
        """The dataclasses of tables of one kind, by name."""
        built = {}
        for name, inner in table.items():
            reader = _Reader(kind(), self._units)
            reader.take(_table(inner, source, f"{at}.{name}"), source)
            try:
                built[name] = reader.build(kind())
            except OptionError as error:
                raise OptionError(f"{source.name}: {at}.{name}: {error}") from None
        return built

    def build(self, default: C, at: str = "") -> C:
        """The dataclass with what was given."""
        changed = {}
        for each in fields(default):  # type: ignore[arg-type]
            path, value = f"{at}{each.name}", getattr(default, each.name)
            if is_dataclass(value):
                changed[each.name] = self.build(value, f"{path}.")
            elif path in self._values:
                changed[each.name] = self._values[path]
        return replace(default, **changed)  # type: ignore[type-var]


def leaves(config: Any, units: Units, at: str = "") -> list[tuple[str, Any, str]]:
    """Every setting of a dataclass: its path, its value, and the value as one would write it."""
    found: list[tuple[str, Any, str]] = []
    for path, kind, value in _settings(config, units, at):
        if isinstance(value, Mapping):
            for name, table in value.items():
                found += leaves(table, units, f"{path}.{name}.")
        else:
            found.append((path, value, _written(kind, value)))
    return found


def _written(kind: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind in (Bytes, Duration) and value:
        units = _BINARY if kind == Bytes else _TIMES
        name, unit = max(((n, u) for n, u in units.items() if not value % u), key=lambda pair: pair[1])
        return f"{value // unit:,} {name}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def _table(value: Any, source: SettingSource, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(f"{source.name}: {path} is a table; write [{path}] and its settings below")
    return value


def _value(kind: Any, value: Any, place: str, folder: Path | None) -> Any:
    """A value of a kind. Raises OptionError."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _value(next(each for each in get_args(kind) if each is not type(None)), value, place, folder)
    if origin is Literal:
        if value not in get_args(kind):
            raise OptionError(f"{place} is {value!r}; choose one of {', '.join(get_args(kind))}")
        return value
    if origin is tuple:
        texts = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
            raise OptionError(f"{place} is {value!r}; write a list of strings")
        if get_args(kind)[0] is Path:
            return tuple((folder or Path()) / Path(each).expanduser() for each in texts)
        return tuple(texts)
    if kind is Path and isinstance(value, str) and folder is not None:
        return folder / Path(value).expanduser()
    read, wanted = _KINDS[kind]
    found = read(value)
    if found is None:
        raise OptionError(f"{place} is {value!r}; write {wanted}")
    return found


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None


def _int(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _float(value: Any) -> float | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}(\.\d{1,18})?", value):
        return float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def read_bytes(value: Any) -> int | None:
    """A number of bytes, None if it is not one.

    >>> read_bytes("1.5 KiB"), read_bytes("8MB"), read_bytes(7), read_bytes("much")
    (1536, 8000000, 7, None)
    """
    return _measured(value, _BYTES, 1)


def read_duration(value: Any) -> int | None:
    """Microseconds of a duration; a bare number is in seconds.

    >>> read_duration("1.5 min"), read_duration("200ms"), read_duration(2), read_duration("soon")
    (90000000, 200000, 2000000, None)
    """
    return _measured(value, _TIMES, 10**6)


def _measured(value: Any, units: Mapping[str, int], bare: int) -> int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 53:
        return round(value * bare)
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    unit = units.get(found[2].lower()) if found[2] else bare
    return None if unit is None else round(float(found[1]) * unit)


_KINDS: dict[Any, tuple[Callable[[Any], Any], str]] = {  # how a kind is read, and what to write
    str: (lambda value: value if isinstance(value, str) else None, "a text"),
    bool: (_bool, "true or false"),
    int: (_int, "a whole number that is not negative"),
    float: (_float, "a number that is not negative"),
    Bytes: (read_bytes, 'a number of bytes, such as "10 GiB"'),
    Duration: (read_duration, 'a duration, such as "30 s"'),
    Path: (lambda value: Path(value).expanduser() if isinstance(value, str | Path) else None, "the path of a file"),
}
