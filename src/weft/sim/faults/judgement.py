"""Whether an answer to a request is right. Law: a request is granted only within limits and access rules, and refused
for good only because of one of them.

A client does not know when exactly its broker decided. What it asked for earlier may be there or not, and the rules may
have changed on the way: an answer is right if it was at some time since it was asked.
"""

from __future__ import annotations

from weft.broker.messages import Advertise, ClientMessage, Replace, Subscribe
from weft.sim.faults.client_state import ClientState, ClientWorld
from weft.sim.faults.consumer import SHARED
from weft.sim.faults.violation import require

FINAL = ("access", "limit")  # codes of refusals that asking again does not help against


class Judgement:
    """Judges the answers to one client."""

    def __init__(self, world: ClientWorld, state: ClientState) -> None:
        self._world, self._state = world, state

    def accepted(self, asked: ClientMessage, rules: int) -> None:
        """A request was granted; `rules` are those that held when it was made."""
        world = self._world
        what = f"{world.name}: {type(asked).__name__} {getattr(asked, 'number', '')} is accepted"
        if isinstance(asked, Subscribe | Replace):
            covered = world.book.covers(world.principal, asked.filter, rules)
            require(covered, f"{what}, and the rules do not allow {asked.filter}")
        if isinstance(asked, Subscribe):
            surely = [
                sub for sub in self._state.subs.values() if sub.stays and sub.number not in (asked.number, SHARED)
            ]
            most = world.limits.subscriptions
            require(len(surely) < most, f"{what} in addition to {len(surely)}, and {most} are allowed")

    def failed(self, asked: ClientMessage, code: str, rules: int) -> None:
        """A request was refused for good."""
        world, state = self._world, self._state
        what = f"{world.name}: {type(asked).__name__} {getattr(asked, 'number', '')} failed: {code}"
        if code == "limit":
            subs = [sub for sub in state.subs.values() if not sub.gone]  # with the one that is asked for
            adverts = [advert for advert in state.adverts.values() if not advert.gone]
            reached = len(subs) > world.limits.subscriptions or len({sub.queue for sub in subs}) > world.limits.queues
            if isinstance(asked, Advertise):
                reached = len(adverts) > world.limits.adverts
            require(reached, f"{what}, and the limit is not reached")
            return
        book, who = world.book, world.principal
        if isinstance(asked, Advertise):
            require(book.forbids_all(who, asked.filter, rules), f"{what}, and the rules allow some of it")
            return
        assert isinstance(asked, Subscribe | Replace)
        older = isinstance(asked, Subscribe) and (asked.since is not None or asked.since_time is not None)
        right = book.leaves_out(who, asked.filter, rules) or (older and book.lacks(who, "history", rules))
        require(right, f"{what}, and the rules allow {asked.filter}")
