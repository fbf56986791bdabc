"""Lists of objects by their numbers: the same objects as indexing gives, with references that are counted."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from weft.kernels import objects

OBJECTS = np.full(9, None, object)
OBJECTS[:8] = [f"rule-{n}" * 9 for n in range(6)] + [2**70, -1]
ADDRESS = OBJECTS.ctypes.data


def object_list(numbers: NDArray[np.int64], count: int, address: int, size: int) -> list[Any]:
    listed: list[Any] = objects.object_list(numbers.ctypes.data, count, address, size)
    return listed


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 5))
def test_a_list_has_the_objects_of_its_numbers(numbers: list[int], more: int) -> None:
    found = object_list(np.array(numbers + more * [99], np.int64), len(numbers), ADDRESS, 9)
    assert type(found) is list
    assert [id(each) for each in found] == [id(OBJECTS[number]) for number in numbers]


def test_references_are_counted() -> None:
    numbers = np.array([3, 3, 5], np.int64)
    before = [sys.getrefcount(OBJECTS[at]) for at in (3, 5)]
    lists = [object_list(numbers, 3, ADDRESS, 9) for _ in range(10)]
    assert [sys.getrefcount(OBJECTS[at]) for at in (3, 5)] == [before[0] + 20, before[1] + 10]
    lists.clear()
    assert [sys.getrefcount(OBJECTS[at]) for at in (3, 5)] == before


def test_a_list_outlives_the_array() -> None:
    passing = np.full(2, None, object)
    passing[:] = ["a" * 99, "b" * 99]
    found = object_list(np.array([1, 0], np.int64), 2, passing.ctypes.data, 2)
    del passing
    assert found == ["b" * 99, "a" * 99]


@pytest.mark.parametrize("number", [-1, 9, 2**62])
def test_a_number_outside_the_array_is_refused(number: int) -> None:
    with pytest.raises(SystemError):
        object_list(np.array([0, number], np.int64), 2, ADDRESS, 9)
