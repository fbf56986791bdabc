"""Faults planted into profiles: each leaves out one rule, and the simulation must notice it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from weft.broker.links.links import Links
from weft.broker.profiles import notices
from weft.broker.profiles.home import HomeProfiles
from weft.broker.profiles.notices import EndProof, ProfileNotices
from weft.broker.profiles.profile_table import ProfileTable
from weft.log.base import ProfileRow

Patch = pytest.MonkeyPatch
PROFILE_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    PROFILE_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


@mutant
def ended_before_the_query_is_complete(patch: Patch) -> None:
    real = ProfileNotices._notices

    def at_once(self, query, identity, meets, proof, written):  # noqa: PLR0917 - as the method
        certain = EndProof.CERTAIN if proof is EndProof.OPEN else proof
        return real(self, query, identity, meets, certain, written)

    patch.setattr(ProfileNotices, "_notices", at_once)


@mutant
def expiry_by_local_receipt(patch: Patch) -> None:
    real = ProfileNotices._heard

    def later(self, link, gone, came):
        shift = lambda item: replace(item, expires=self._journal.at + item.expires - item.version)
        read = notices.read_profile
        patch.setattr(notices, "read_profile", lambda item: shift(read(item)))
        try:
            real(self, link, gone, came)
        finally:
            patch.setattr(notices, "read_profile", read)

    patch.setattr(ProfileNotices, "_heard", later)


@mutant
def a_version_that_goes_back(patch: Patch) -> None:
    real, keep = ProfileNotices._renew, ProfileNotices._keep

    def forgetful(self, identity, certain=False):
        if identity in self._highest:
            self._highest[identity] = 0
        real(self, identity, certain)

    def kept(self, query, identity, row, proof, written):  # noqa: PLR0917 - as the method
        keep(self, query, identity, None if row is not None and not row.expires else row, proof, written)

    patch.setattr(ProfileNotices, "_renew", forgetful)
    patch.setattr(ProfileNotices, "_keep", kept)


@mutant
def a_profile_survives_its_withdrawal_across_a_restart(patch: Patch) -> None:
    real = HomeProfiles.withdraw

    def in_memory_only(self, connection, message, now):
        real(self, connection, message, now)
        write = self._journal.write
        write.changes = [each for each in write.changes if getattr(each, "table", None) is not ProfileRow]

    patch.setattr(HomeProfiles, "withdraw", in_memory_only)


@mutant
def restored_profiles_count_at_once(patch: Patch) -> None:
    real = ProfileTable.restore

    def trusting(self, kept):
        real(self, kept)
        for link in kept.links:
            self.confirm(link)

    patch.setattr(ProfileTable, "restore", trusting)


@mutant
def withdrawn_before_others_are_known(patch: Patch) -> None:
    patch.setattr(Links, "_withdraws", lambda *_: (True, True))


@mutant
def a_repeated_request_is_a_new_version(patch: Patch) -> None:
    real = HomeProfiles.publish
    patch.setattr(
        HomeProfiles,
        "publish",
        lambda self, connection, message, now: real(self, connection, replace(message, token=0), now),
    )
