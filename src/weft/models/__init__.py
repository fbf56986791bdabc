"""Routing models compared on a user's own subscriptions and events."""

from weft.models.evidence import Data as Data
from weft.models.evidence import compare as compare
from weft.models.recommendation import Weights as Weights
from weft.models.recommendation import recommend as recommend
