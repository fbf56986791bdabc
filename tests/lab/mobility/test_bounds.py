"""Tables 5.1 to 5.3, with the letters of the thesis."""

from __future__ import annotations

import pytest

from weftlab.mobility.bounds import CostRow, Measures, cost_bounds, generic_phases

n, k, P, K, RP = 12, 4, 3, 2, 5
GIVEN = Measures(n, k, P, K, RP, 2 * RP + 2)


@pytest.mark.parametrize(
    ("row", "publisher", "complete", "incomplete"),
    [
        (CostRow.GENERIC, False, (4 * (n - 2) + (P + 2) * (n - 2), 2 * (n - 2) + 4 * k), None),
        (CostRow.GENERIC_RP, False, (2 * RP + (P + 4) * (n - 2), 2 * RP + 4 * k), None),
        (CostRow.ACYCLIC, False, (n - 2, 0), ((P + 1) * (n - 2), k)),
        (CostRow.ACYCLIC, True, (2 * (n - 2), 0), (2 * (n - 2), 2 * k)),
        (CostRow.CYCLIC_RP, False, (K * RP, 0), (2 * K * RP, 0)),
        (CostRow.CYCLIC_RP, True, (2 * K * RP, 0), (3 * K * RP, 0)),
        (CostRow.ACYCLIC_RP, False, (min(K * RP, n - 2), 0), (min(2 * K * RP, 2 * (n - 2)), 0)),
        (CostRow.ACYCLIC_RP, True, (min(2 * K * RP, 2 * (n - 2)), 0), (min(3 * K * RP, 3 * (n - 2)), 0)),
    ],
)
def test_the_bounds_are_those_of_the_tables(
    row: CostRow, publisher: bool, complete: tuple[int, int], incomplete: tuple[int, int] | None
) -> None:
    assert cost_bounds(row, True, publisher, GIVEN) == complete
    assert cost_bounds(row, False, publisher, GIVEN) == (incomplete or complete)


def test_the_phases_of_the_generic_protocol_are_those_of_table_5_1() -> None:
    assert dict(generic_phases(GIVEN))["advertisements of ping"] == n - 1
    assert dict(generic_phases(GIVEN))["subscriptions of pong"] == k + 1
