"""The choice of the dimensions, cells, caps and filters of a routing table, from samples."""

from weft.tuning.budget import CostBudget as CostBudget
from weft.tuning.choices import Options as Options
from weft.tuning.parameters import Tuned as Tuned
from weft.tuning.tuner import tune_dls as tune_dls
from weft.tuning.tuner import tune_mics as tune_mics
