"""Profiles and queries: which queries match which profiles, kept up to date."""

from weft.profiles.directory import Directory as Directory
from weft.profiles.directory import Notification as Notification
from weft.profiles.double_forest import DoubleForest as DoubleForest
from weft.profiles.two_sets import TwoSets as TwoSets
