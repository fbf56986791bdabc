"""Peer-to-peer rendezvous: interest is placed on a Chord ring by hashing, and events visit where it may be."""

from weft.ring.chord import ChordNode, quiet_ring
from weft.ring.filter_semantics import general_filter, partial_filter, range_filter, ranged_event
from weft.ring.group_placement import GroupTree, GroupView
from weft.ring.group_state import GroupRule
from weft.ring.identifiers import IdSpace, Key
from weft.ring.intervals import Intervals
from weft.ring.key_mapping import KeyMapping, Selection, Semantics
from weft.ring.load_sharing import Sharing, SharingRule
from weft.ring.rendezvous import RendezvousNode
from weft.ring.ring_settings import RingSettings
from weft.ring.topics import SuperTopics, TopicAttribute, TopicTree

__all__ = [
    "ChordNode",
    "GroupRule",
    "GroupTree",
    "GroupView",
    "IdSpace",
    "Intervals",
    "Key",
    "KeyMapping",
    "RendezvousNode",
    "RingSettings",
    "Selection",
    "Semantics",
    "Sharing",
    "SharingRule",
    "SuperTopics",
    "TopicAttribute",
    "TopicTree",
    "general_filter",
    "partial_filter",
    "quiet_ring",
    "range_filter",
    "ranged_event",
]
