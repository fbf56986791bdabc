"""The documentation of what `weft` exports, and of its clients: a doctest and a cost wherever a user looks.

The doctests themselves are run by `--doctest-modules`.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

import weft
from weft.client.async_subscription import Subscription
from weft.client.broker_view import BrokerView
from weft.client.client import Client
from weft.client.dead_letters import DeadLetterQueue
from weft.client.events import ReceivedEvent, SyncReceivedEvent
from weft.client.sync import SyncClient, SyncDeadLetterQueue, SyncSubscription
from weft.language.builder import Field

CLIENTS = (Client, BrokerView, Subscription, DeadLetterQueue, SyncClient, SyncSubscription, SyncDeadLetterQueue)
RECEIVED = (ReceivedEvent, SyncReceivedEvent)  # of which one doctest shows many properties: each needs a broker


def has_doctest(text: str | None) -> bool:
    """Whether a docstring has an example that doctest finds."""
    return bool(doctest.DocTestParser().get_examples(text or ""))


def has_cost(text: str | None) -> bool:
    return "Cost: " in (text or "")


def methods(kind: type) -> Iterator[tuple[str, str | None]]:
    """The public methods and properties that a class of ours and its private bases define, with their docstrings.

    Fields of dataclasses, structs and tuples are data: neither they nor what is generated for them is listed.
    """
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("weft.") and base.__name__[0] == "_"]
    for name, member in (pair for each in (kind, *bases) for pair in vars(each).items()):
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not name.startswith("_") and (isinstance(plain, property | cached_property) or inspect.isfunction(plain)):
            yield name, plain.__doc__


def faults(name: str, thing: Any, *, shown_by_class: bool = False) -> list[str]:
    """What the docstrings of a function, or of a class and its methods, lack.

    A class has a doctest of its own, and each method has one; with `shown_by_class`, the first is enough.
    """
    parts = [(name, thing.__doc__)]
    found = []
    if not inspect.isfunction(thing):
        kind = thing if inspect.isclass(thing) else type(thing)
        parts = [(f"{name}.{method}", text) for method, text in methods(kind)]
        if not has_doctest(kind.__doc__):
            found.append(f"{name} lacks a doctest")
    for part, text in parts:
        if not shown_by_class and not has_doctest(text):
            found.append(f"{part} lacks a doctest")
        if not has_cost(text):
            found.append(f"{part} lacks a cost")
    return found


@pytest.mark.parametrize("name", [name for name in weft.__all__ if name != "__version__"])
def test_an_exported_name_has_a_doctest_and_costs(name: str) -> None:
    assert faults(name, getattr(weft, name)) == []


@pytest.mark.parametrize("kind", [*CLIENTS, Field], ids=lambda kind: kind.__name__)
def test_a_client_and_what_it_returns_have_doctests_and_costs(kind: type) -> None:
    assert faults(kind.__name__, kind) == []


@pytest.mark.parametrize("kind", RECEIVED, ids=lambda kind: kind.__name__)
def test_a_received_event_has_a_doctest_and_costs(kind: type) -> None:
    assert len([*methods(kind)]) > 10
    assert faults(kind.__name__, kind, shown_by_class=True) == []


def test_what_is_missing_is_noticed() -> None:
    class Half:
        """No example."""

        size = 3

        @staticmethod
        def of() -> None:
            """Cost: O(1)."""

        @property
        def first(self) -> int:
            """
            >>> Half().first
            1
            """
            return 1

        @cached_property
        def second(self) -> int:
            return 2

        @classmethod
        def third(cls) -> None: ...

        def whole(self) -> None:
            """Does nothing. Cost: O(1).

            >>> Half().whole()
            """

        def _private(self) -> None: ...

    assert faults("Half", Half) == [
        "Half lacks a doctest",
        "Half.of lacks a doctest",
        "Half.first lacks a cost",
        "Half.second lacks a doctest",
        "Half.second lacks a cost",
        "Half.third lacks a doctest",
        "Half.third lacks a cost",
    ]
    assert faults("Half", Half, shown_by_class=True) == [
        "Half lacks a doctest",
        "Half.first lacks a cost",
        "Half.second lacks a cost",
        "Half.third lacks a cost",
    ]
    assert faults("whole", Half.whole) == []
    assert faults("_private", Half._private) == ["_private lacks a doctest", "_private lacks a cost"]
