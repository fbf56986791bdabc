"""The measurement of the house: its counters are right, and its walk is whole."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parent.parent / "tools" / "house.py"


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module
    spec.loader.exec_module(module)
    return module


def test_a_change_of_module_is_counted_in_each_thread_by_itself(house: ModuleType) -> None:
    walked = [("t 1", "a", "f"), ("t 2", "b", "f"), ("t 1", "a", "g"), ("t 1", "b", "f"), ("t 2", "b", "f")]
    calls = [house.Call(*call) for call in walked]
    assert house.figures(calls) == {"modules": 2, "functions": 3, "changes of module": 3, "calls": 5}


def test_public_types_are_found_however_they_are_defined(house: ModuleType) -> None:
    text = """
class Deliver: pass
class _Hidden: pass
Offset = NewType("Offset", int)
Key = TypeVar("Key")
Slot = int
AnyOf = Deliver | Offset | None
Ids = tuple[int, ...]
LIMIT = 5
Default = Deliver()
"""
    module = house.Module("m", PATH, ast.parse(text))
    assert [*house.type_names(module)] == ["Deliver", "Offset", "Key", "Slot", "AnyOf", "Ids"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    match x:\n        case Persist(): pass",
        "def f(x): return isinstance(x, Persist)",
        "def f(x): return isinstance(x, Send | Persist)",
    ],
)
def test_a_driver_is_found_by_what_it_looks_for(house: ModuleType, text: str) -> None:
    module = house.Module("m", PATH, ast.parse(text))
    assert house.tests_for(module, "Persist")
    assert not house.tests_for(module, "Welcome")


CLIENT = """
def f(message):
    match message:
        case Welcome(): return Hello()
"""
NETWORK = """
def exchange(self, tells):
    for tell in tells:
        self.tables[tell.link].learn(self.link, tell.update)
"""


def test_who_is_welcomed_and_receives_events_is_a_client(house: ModuleType) -> None:
    assert not house.is_client(house.Module("m", PATH, ast.parse(CLIENT))), "a peer that receives no event is none"
    assert house.is_client(house.Module("m", PATH, ast.parse(CLIENT + "        case Deliver(): pass")))
    assert house.is_client(house.Module("m", PATH, ast.parse(CLIENT + "    return type(message) is Deliver")))


def test_faults_that_are_planted_into_the_driver_are_no_driver(house: ModuleType) -> None:
    text = "def f(self, ticket): self.do(self.core.committed, ticket)"
    assert house.is_driver(house.Module("m", PATH, ast.parse(text)))
    patched = f"{text}\ndef plant(patch): patch.setattr(Driver, 'end_commit', f)"
    assert not house.is_driver(house.Module("m", PATH, ast.parse(patched)))


def test_a_process_in_a_simulation_is_no_network(house: ModuleType) -> None:
    tree = ast.parse("def dial(self, peer): self.driver.dialled(1, peer)")
    assert house.is_network_of_brokers(house.Module("m", PATH, tree))
    for name in (*house.PROCESSES, "weft.server.node"):
        assert not house.is_network_of_brokers(house.Module(name, PATH, tree))
    assert {each.name for each in house.modules_in(house.SOURCE, house.SOURCE)} >= house.PROCESSES


def test_a_network_of_tables_hands_on_what_tables_return(house: ModuleType) -> None:
    assert house.is_network_of_tables(house.Module("m", PATH, ast.parse(NETWORK)))
    unpacked = NETWORK.replace("for tell in", "for link, update in").replace("tell.", "")
    assert house.is_network_of_tables(house.Module("m", PATH, ast.parse(unpacked)))
    alone = "def cost(table): table.learn(LINK, Update(add={}))\ndef other(found): found.update({})"
    assert not house.is_network_of_tables(house.Module("m", PATH, ast.parse(alone)))


def test_a_method_that_hands_a_call_on_is_no_network(house: ModuleType) -> None:
    texts = "def dial(self): self.core.dialled(1)", "def dialled(self): self.core.dialled(1)", "def f(s): s.dialled(1)"
    modules = [house.Module("m", PATH, ast.parse(text)) for text in texts]
    assert [house.uses_method(module, "dialled", "core$") for module in modules] == [True, False, False]


def test_the_source_is_counted(house: ModuleType) -> None:
    found = house.structure()
    assert "weft.client.session" in found["clients"]
    assert "weft.routing.table" in found["docstrings with a law"]
    assert found["packages"]["weft.broker"]["modules"] > 10
    assert 0 < len(found["one importer"]) < found["modules"]


def test_an_event_walks_through_both_brokers(house: ModuleType) -> None:
    found = house.walked(house.walk(events=1))
    threads = found["threads"]
    assert {"MainThread 1", "weft-broker 1", "weft-broker 2"} < threads.keys(), "and committers and a client's network"
    assert {"broker", "client", "log", "server"} <= found["by package"].keys()
    assert all(each["calls"] for each in threads.values())


def test_a_filter_reaches_the_bytes_for_a_neighbour_through_few_modules(house: ModuleType) -> None:
    walked = house.filter_walk()
    assert {"language/text.py", "routing/engine.py", "routing/codec.py"} <= {*walked}
    assert len(walked) <= house.BOUNDS["filter to bytes"]
