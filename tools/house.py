"""How hard the messaging code is to find one's way in, measured: `make house`.

The walk is one durable event from `publish` through two linked brokers, each with a log on disk, to the subscriber's
acknowledgement. A profiler counts the modules of the package that it runs through, the functions, and how often a call
goes into another module than the call before it in the same thread. Everything else is counted in the syntax trees of
the source: modules and their importers, type names that several modules define, clients, drivers and networks beside
the one that users run, and module docstrings that state a law.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGES = ("weft", "weftlab")
MESSAGING = (
    *(f"weft.{name}" for name in ("protocol", "client", "broker", "log", "server", "ring", "network", "testing")),
    "weftlab.faults",
)
BOUNDS = {
    "modules": 45,
    "functions": 180,
    "changes of module": 350,
    "filter to bytes": 22,
    "type names defined twice": 0,
    "clients": 1,
    "drivers": 1,
    "networks of brokers": 1,
    "networks of tables": 1,
}
PROCESSES = {"weftlab.faults.broker_process"}  # that are simulated: their wires take time, lose data and are cut
RAW_CLIENTS = {"tests.broker.moving"}  # raw messages in exact interleavings, and two connections of one session at once
QUIET = 0.3  # seconds without a call after which an event is done with
PATIENCE = 30.0  # seconds for an event, or for the brokers to link

Figures = dict[str, int]

_TYPE_NAME = re.compile(r"[A-Z]\w*[a-z]")
_BUILT_IN = {"bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple", "type"}


# -- the walk -------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of a function of the package."""

    thread: str
    module: str
    function: str


class Profiler:
    """Notes calls of functions of the package, in all threads that are started while it is installed.

    Threads are named in the order of their starts, so that those of the first broker can be told from the second's.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.on = False
        self.last = 0.0
        self._names: dict[int, str] = {}
        self._numbers: Counter[str] = Counter()

    def install(self) -> None:
        """Watch this thread and all later ones."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def remove(self) -> None:
        """Watch nothing."""
        threading.setprofile(None)
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        ident = threading.get_ident()
        if ident not in self._names:
            name = threading.current_thread().name
            self._numbers[name] += 1
            self._names[ident] = f"{name} {self._numbers[name]}"
        if event != "call" or not self.on:
            return
        place = frame.f_code.co_filename.replace("\\", "/").partition("/src/weft/")[2]
        if place:
            self.last = time.monotonic()
            self.calls.append(Call(self._names[ident], place, frame.f_code.co_qualname))

    def record(self, what: Callable[[], None]) -> list[Call]:
        """The calls of something and of all that comes of it, until no thread calls anything any more."""
        self.calls, self.last, self.on = [], time.monotonic(), True
        what()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() - self.last < QUIET:
            if time.monotonic() > deadline:
                often = Counter(f"{call.module} {call.function}" for call in self.calls[-1000:]).most_common(5)
                raise TimeoutError(f"the brokers did not come to rest in {PATIENCE:.0f} seconds; called last: {often}")
            time.sleep(0.01)
        self.on = False
        return self.calls


def walk(events: int) -> list[list[Call]]:
    """The calls of each of some events that cross two brokers and are acknowledged.

    Raises AssertionError if one of them was not stored as acknowledged: the walk was not whole.
    """
    profiler = Profiler()
    profiler.install()
    from weft.kernels.jit import load
    from weft.server.config import BrokerConfig, LinkConfig
    from weft.testing.local_broker import LocalBroker

    load()  # kernels are compiled, as in `weft serve`

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def broker(name: str, neighbour: str, address: str) -> LocalBroker:
            config = BrokerConfig(name=name, links={neighbour: LinkConfig(address=address)})
            config = replace(config, data=directory / name, listen=("weft://127.0.0.1:0",))
            return stack.enter_context(LocalBroker(config))

        near = broker("near", "far", "")
        far = broker("far", "near", near.address)
        subscriber = stack.enter_context(far.connect_sync(name="subscriber"))
        publisher = stack.enter_context(near.connect_sync(name="publisher"))
        subscription = subscriber.subscribe("x > 5", name="alerts")
        subscription.complete(PATIENCE)

        def one_event() -> None:
            publisher.publish({"x": 7, "y": "a"}, timeout=PATIENCE)
            subscription.receive(PATIENCE).ack()

        for _ in range(3):  # what is done once is done
            profiler.record(one_event)
        walks = [profiler.record(one_event) for _ in range(events)]
        profiler.remove()
        subscription.close()
        again = subscriber.subscribe("x > 5", name="alerts")
        publisher.publish({"x": 8}, timeout=PATIENCE)
        if again.receive(PATIENCE)["x"] != 8:
            raise AssertionError("an event was delivered again: its acknowledgement had not arrived")
    return walks


def filter_walk(text: str = "magnitude >= 5 AND depth < 70") -> list[str]:
    """The modules that a filter of a new shape runs through, from its text to the bytes for a neighbour.

    The table is that of a new broker: covering, with some subscriptions and one link.
    """
    from weft.index.base import SubId
    from weft.kernels.jit import load
    from weft.language.text import parse
    from weft.routing import Link, make_table

    load()
    table = make_table("covering")
    table.attach(Link("north"))

    def subscribe(number: int, wanted: str) -> None:
        for tell in table.change({SubId(number): parse(wanted)}, ()):
            table.codec.encode(tell.update)

    for number in range(20):  # the index has more than its first rows
        subscribe(number, f"price > {number} AND symbol = 'A{number}'")
    profiler = Profiler()
    profiler.on = True
    sys.setprofile(profiler._profile)
    subscribe(20, text)
    sys.setprofile(None)
    return sorted({call.module for call in profiler.calls})


def figures(calls: list[Call]) -> Figures:
    """Modules, functions and changes of module."""
    return {
        "modules": len({call.module for call in calls}),
        "functions": len({(call.module, call.function) for call in calls}),
        "changes of module": sum(1 for _ in transitions(calls)),
        "calls": len(calls),
    }


def transitions(calls: list[Call]) -> Iterator[str]:
    """Each change of module: from which to which."""
    last: dict[str, str] = {}
    for call in calls:
        before = last.get(call.thread, "")
        last[call.thread] = call.module
        if before != call.module:
            yield f"{before} -> {call.module}"


def middle(each: list[Figures]) -> Figures:
    """The median of each figure."""
    names = dict.fromkeys(name for some in each for name in some)
    return {name: median_low([some.get(name, 0) for some in each]) for name in names}


def walked(walks: list[list[Call]]) -> dict[str, Any]:
    """The figures of an event, in all and by thread, and the modules that most events run through."""
    threads = sorted({call.thread for calls in walks for call in calls})
    seen = Counter(module for calls in walks for module in {call.module for call in calls})
    pairs = Counter(pair for calls in walks for pair in transitions(calls))
    often = sorted(module for module, times in seen.items() if 2 * times > len(walks))
    return {
        "events": len(walks),
        "all": middle([figures(calls) for calls in walks]),
        "threads": {
            thread: middle([figures([call for call in calls if call.thread == thread]) for calls in walks])
            for thread in threads
        },
        "by package": dict(Counter(module.partition("/")[0] for module in often).most_common()),
        "module names": often,
        "changes": {pair: round(times / len(walks), 1) for pair, times in pairs.most_common(40)},
    }


# -- the source -----------------------------------------------------------------------------------------------


class Module(NamedTuple):
    """A file of Python."""

    name: str  # as it is imported, or its path outside the packages
    path: Path
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Its length."""
        return len(self.path.read_text().splitlines())


def modules_in(folder: Path, base: Path) -> list[Module]:
    """All modules below a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(path.read_text())))
    return found


def imported(module: Module, known: set[str]) -> set[str]:
    """The modules that one imports, at any place, or names in a text for a later import."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {
                longer if (longer := f"{node.module}.{alias.name}") in known else node.module for alias in node.names
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return (found & known) - {module.name}


def type_names(module: Module) -> Iterator[str]:
    """The public classes, new types, type variables and aliases that a module defines."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_type(node.value):
            name = node.targets[0].id
        else:
            continue
        if _TYPE_NAME.match(name):
            yield name


def _is_type(value: ast.expr) -> bool:
    """Whether the right side of an assignment is a type: an alias, or a NewType."""
    match value:
        case ast.Name(id=name):
            return bool(_TYPE_NAME.match(name)) or name in _BUILT_IN
        case ast.Call(func=ast.Name(id=name)):
            return name in {"NewType", "TypeVar", "TypedDict", "NamedTuple"}
        case ast.Subscript(value=ast.Name(id=name)):
            return name[0].isupper() or name in _BUILT_IN
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return all(isinstance(side, ast.Constant) or _is_type(side) for side in (left, right))
    return False


def tests_for(module: Module, name: str) -> bool:
    """Whether a module looks for values of a type, by `match`, `isinstance` or `type(value) is`."""
    for node in ast.walk(module.tree):
        match node:
            case ast.MatchClass(cls=ast.Name(id=found)) if found == name:
                return True
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(kinds)):
                    return True
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[ast.Name(id=found)]):
                if found == name:
                    return True
    return False


def names(module: Module, name: str) -> bool:
    """Whether a module has a name anywhere."""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(module.tree))


def uses_method(module: Module, method: str, receiver: str = "") -> bool:
    """Whether a module calls a method or passes it on, other than in a method of the same name."""
    for function in ast.walk(module.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name == method:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr == method and re.search(receiver, ast.unparse(node.value)):
                return True
    return False


def is_client(module: Module) -> bool:
    """Whether a module keeps a session with a broker: it says hello, is welcomed, and receives events.

    A peer that is welcomed and never receives an event is not a client: `weftlab.faults.rude_peer` says a few raw
    messages, which the client never sends, and is refused.
    """
    if module.name in RAW_CLIENTS:
        return False
    return tests_for(module, "Welcome") and tests_for(module, "Deliver") and names(module, "Hello")


def is_driver(module: Module) -> bool:
    """Whether a module carries out effects: it looks for groups to store, or tells a core what became of them.

    A module that patches methods of `Driver` plants faults into the one driver, and is not a second one.
    """
    if any(uses_method(module, method, r"\bcore$") for method in ("committed", "rejected")):
        return not patches(module, "Driver")
    return tests_for(module, "Persist") and not patches(module, "Driver")


def is_network_of_brokers(module: Module) -> bool:
    """Whether a module connects brokers with each other: it opens the connection of one to another.

    The owner of a driver that has wires and a clock of its own is a process, not a network in memory: `weft.server`
    over sockets, and `PROCESSES` in simulations.
    """
    if module.name.startswith("weft.server.") or module.name in PROCESSES:
        return False
    return uses_method(module, "dialled", r"(core|driver|broker)$")


def is_network_of_tables(module: Module) -> bool:
    """Whether a module hands what one table sends to another.

    A measurement of one table calls `learn` with updates of its own making, and hands on nothing that a table returns.
    """
    return uses_method(module, "learn", r"table(s\[.*\])?$") and hands_updates_on(module)


def hands_updates_on(module: Module) -> bool:
    """Whether a module takes the update out of a `Tell`: as `tell.update`, or by unpacking one into two names."""
    called = {id(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(attr="update") if id(node) not in called:
                return True
            case ast.Tuple(ctx=ast.Store(), elts=[_, ast.Name(id=name)]) if name.startswith("update"):
                return True
    return False


def patches(module: Module, name: str) -> bool:
    """Whether a module replaces methods of a class, as faults are planted."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Name(id=found), *_]) if found == name:
                return True
    return False


def structure() -> dict[str, Any]:
    """What is counted in the source."""
    modules = [module for package in PACKAGES for module in modules_in(SOURCE / package, SOURCE)]
    around = [module for folder in ("tests", "fuzz", "examples") for module in modules_in(ROOT / folder, ROOT)]
    around = [
        module for module in around if not module.path.name.startswith("test_")
    ]  # tests assert, they do not drive
    known = {module.name for module in modules}
    importers = Counter(name for module in modules for name in imported(module, known))
    leaves = [each.name for each in modules if each.path.name not in {"__init__.py", "__main__.py"}]
    lonely = sorted(name for name in leaves if importers[name] == 1)
    defined: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name in dict.fromkeys(type_names(module)):
            defined[name].append(module.name)
    outside = [each for each in modules if not each.name.startswith(("weft.broker.", "weft.protocol."))]
    everywhere = [*outside, *around]
    drivers = [*(each for each in modules if each.name == "weft.broker.driver"), *everywhere]
    laws = [each.name for each in modules if re.search(r"\bLaws?(:|,| of )", ast.get_docstring(each.tree) or "")]
    packages = {
        package: {"modules": len(some), "lines": sum(each.lines for each in some)}
        for package in MESSAGING
        if (some := [each for each in modules if each.name == package or each.name.startswith(f"{package}.")])
    }
    return {
        "packages": packages,
        "messaging": {what: sum(each[what] for each in packages.values()) for what in ("modules", "lines")},
        "modules": len(leaves),
        "lines": sum(each.lines for each in modules),
        "one importer": lonely,
        "one importer, share": round(len(lonely) / len(leaves), 3),
        "type names defined twice": {name: places for name, places in sorted(defined.items()) if len(places) > 1},
        "clients": [each.name for each in everywhere if is_client(each)],
        "drivers": [each.name for each in drivers if is_driver(each)],
        "networks of brokers": [each.name for each in everywhere if is_network_of_brokers(each)],
        "networks of tables": [each.name for each in everywhere if is_network_of_tables(each)],
        "docstrings with a law": laws,
    }


# -- the report -----------------------------------------------------------------------------------------------


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The table: a figure, its value, and its bound."""

    def row(name: str, value: int | list[str] | dict[str, Any], title: str = "") -> tuple[str, str, str]:
        number = value if isinstance(value, int) else len(value)
        bound = BOUNDS.get(name)
        verdict = "" if bound is None else f"<= {bound}" + ("" if number <= bound else ", missed")
        return title or name, f"{number:,}", verdict

    if "walk" in found:
        for name, value in found["walk"]["all"].items():
            yield row(name, value, f"walk: {name}")
        for thread, each in found["walk"]["threads"].items():
            numbers = [str(each[name]) for name in ("modules", "functions", "changes of module")]
            yield f"  {thread}", " / ".join(numbers), ""
    if "structure" in found:
        counted = found["structure"]
        for package, each in counted["packages"].items():
            yield f"{package}: modules / lines", f"{each['modules']} / {each['lines']:,}", ""
        total = counted["messaging"]
        yield "messaging: modules / lines", f"{total['modules']} / {total['lines']:,}", ""
        yield "all: modules / lines", f"{counted['modules']} / {counted['lines']:,}", ""
        share = f"{len(counted['one importer'])} ({counted['one importer, share']:.0%})"
        yield "modules with one importer", share, ""
        yield row("filter to bytes", found["filter"], "filter to bytes: modules")
        for name in (*list(BOUNDS)[4:], "docstrings with a law"):
            yield row(name, counted[name])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=9, help="events whose median is taken; 0 for no walk")
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON, with the names of what is counted"
    )
    parser.add_argument("--list", action="store_true", help="print the names of what is counted too")
    given = parser.parse_args()
    found: dict[str, Any] = {"walk": walked(walk(given.events))} if given.events else {}
    found["structure"] = structure()
    found["filter"] = filter_walk()
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, value, verdict in rows(found):
        print(f"{name:<34} {value:>16}  {verdict}")
    if given.list and given.events:
        print("\nmodules of the walk:")
        print(*(f"  {name}" for name in found["walk"]["module names"]), sep="\n")
        print("\nmost frequent changes of module, per event:")
        print(*(f"  {times:5} {pair}" for pair, times in found["walk"]["changes"].items()), sep="\n")
    if given.list:
        print("\nmodules from a text filter to a neighbour's bytes:")
        print(*(f"  {name}" for name in found["filter"]), sep="\n")
        for name in list(BOUNDS)[4:]:
            print(f"\n{name}:")
            counted = found["structure"][name]
            for each in counted:
                print(f"  {each}: {', '.join(counted[each])}" if isinstance(counted, dict) else f"  {each}")


if __name__ == "__main__":
    main()
