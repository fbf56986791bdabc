"""Mergers of filters: which filters merge, into what, and what neighbours are then told."""

from weft.merging.aggregate_merging import AggregateMerging as AggregateMerging
from weft.merging.local_merging import LocalMerging as LocalMerging
from weft.merging.mergeability import FilterMerging as FilterMerging
from weft.merging.mergeability import MergeBudget as MergeBudget
from weft.merging.mergeability import Merging as Merging
from weft.merging.root_merging import RootMerging as RootMerging
