"""Rings under simulated faults keep their promise, and broken nodes are noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.ring.chord import ChordNode
from weft.ring.key_copies import KeyCopies
from weft.ring.keys_in_hand import GapSearch, KeysInHand, Life
from weft.ring.messages import ChordEffect, NodeRef
from weft.ring.rendezvous_messages import Handover, JoinedRing, Recalled, RingEffect, WorkAnswer
from weftlab.ring.ring_faults import MODES, plan_of, run_ring


@pytest.mark.parametrize("mode", MODES)
def test_a_ring_keeps_its_promise_under_faults(mode: str) -> None:
    outcome = run_ring(plan_of(3, mode, steps=25))
    assert outcome.failure == ""
    assert outcome.events > 10


def test_a_seed_always_gives_the_same_run() -> None:
    one, other = (run_ring(plan_of(5, "direct", steps=8)).trace.digest() for _ in range(2))
    assert one == other


def takes_over_without_handover(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer answers for all keys after the predecessor that Chord names."""
    wait = KeysInHand._wait

    def at_once(self: KeysInHand, now: int) -> list[RingEffect]:
        before = self._chord.predecessor
        if self.life is not Life.WAITING or before is None:
            return wait(self, now)
        self._set_after(before.id)
        self.to(Life.SERVING)
        return [JoinedRing()]

    monkeypatch.setattr(KeysInHand, "_wait", at_once)


def forgets_the_leaver(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node hands over when it leaves is acknowledged, and not kept."""

    def forgetful(self: KeysInHand, sender: NodeRef, message: Handover, now: int) -> bool:
        self._chord.has_left(sender)
        if message.upto == self.after:
            self._set_after(message.after)
        return True

    monkeypatch.setattr(KeysInHand, "_handed_by_leaver", forgetful)


def trusts_an_empty_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer to a recall is taken for everything, also if it is empty."""

    def first(  # noqa: PLR0917 - as it is called
        self: KeysInHand, work: GapSearch, node: NodeRef, answer: WorkAnswer, tries: int, now: int
    ) -> list[RingEffect]:
        if isinstance(answer, Recalled) and answer.records is not None:
            self._records.take(answer.records, now)
            self._states.take(answer.groups)
            work.complete = True
        return self._recalled_all(work, now)

    monkeypatch.setattr(KeyCopies, "covers", lambda self, after, upto: False)
    monkeypatch.setattr(KeysInHand, "_recalled", first)


def never_looks_for_other_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not look for members that they have known."""

    def blind(self: ChordNode, now: int) -> list[ChordEffect]:
        self._look_at = now + 1_000_000
        return []

    monkeypatch.setattr(ChordNode, "_look_around", blind)


Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "seed"),
    [
        (takes_over_without_handover, 9),
        (forgets_the_leaver, 7),
        (trusts_an_empty_copy, 24),
        (never_looks_for_other_rings, 10),
    ],
)
def test_a_broken_node_is_noticed(monkeypatch: pytest.MonkeyPatch, mutate: Mutant, seed: int) -> None:
    mutate(monkeypatch)
    assert any(run_ring(plan_of(each, "direct")).failure for each in (seed, *range(60)))
