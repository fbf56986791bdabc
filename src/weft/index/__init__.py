"""Indexes: which subscriptions an event matches, among very many."""

from weft.index.base import Matches as Matches
from weft.index.base import MatchIndex as MatchIndex
from weft.index.base import SubId as SubId
from weft.index.batch_matches import BatchMatches as BatchMatches
from weft.index.counting import CountingIndex as CountingIndex
from weft.index.index import Index as Index
from weft.index.scan import ScanIndex as ScanIndex
from weft.index.tree import TreeIndex as TreeIndex
