"""What filters mean as sets: normal form, covering, overlap, merging, subtraction.

Functions that bear the name of their module (`merge`, `normalize`, `subtract`, `to_filter`) are exported by `weft`.
"""

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
