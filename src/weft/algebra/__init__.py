"""The algebra of filters as sets: normal form, covering, overlap, merging, subtraction.

Functions that bear the name of their module (`merge`, `normalize`, `subtract`, `to_filter`) are exported by `weft`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.algebra.box import Box as Box
from weft.algebra.box import NormalForm as NormalForm
from weft.algebra.budget import Budget as Budget
from weft.algebra.profile import Meeting as Meeting
from weft.algebra.profile import Profile as Profile
from weft.algebra.relate import covers as covers
from weft.algebra.relate import equivalent as equivalent
from weft.algebra.relate import intersect as intersect
from weft.algebra.relate import is_empty as is_empty
from weft.algebra.relate import overlaps as overlaps

if TYPE_CHECKING:
    from weft.algebra.columns import BoxColumns as BoxColumns


def __getattr__(name: str) -> Any:
    if name != "BoxColumns":  # numpy is imported with it
        raise AttributeError(f"module 'weft.algebra' has no attribute {name!r}")
    return getattr(import_module("weft.algebra.columns"), name)
