"""Weft: content-based publish/subscribe for Python and Spark.

>>> from weft import Index, matches
>>> matches("magnitude >= 5 AND depth < 70", {"magnitude": 6.1, "depth": 12})
True
>>> index = Index({"strong": "magnitude >= 5", "deep": "depth > 300"})
>>> index.match({"magnitude": 6.1, "depth": 12})
['strong']
"""

# The layers, each importing only those above it:
#   errors    the error tree
#   kernels   loops over arrays
#   model     values, schemas, events, CloudEvents, Arrow
#   language  filters: tree, text, JSON dialects, builder, meaning
#   algebra   filters as sets: normal form, covers, overlaps, merge, subtract, profiles
#   lint      filters that are probably mistakes
#   workloads seeded generators of subscriptions and events
#   index     which subscriptions an event matches: tree, counting, scan
#   order     filters in their covering order: posets, forests, forwards sets
#   merging   filters merged into fewer
#   profiles  profiles and queries, and which of them match
#   drawing   orders as text and pictures
#   space     cells of the content space, and curves through them
#   demand    what subscriptions ask for, counted
#   routing   what neighbours must hear, and where an event goes; a folder for each model
#   tuning    dimensions, cells and sizes chosen by samples
#   recording runs of simulators in files, step by step
#   tables    the look of tables of figures
#   log       events and state that survive a restart
#   protocol  what clients, brokers and neighbours say to each other, as messages and as bytes
#   broker    one broker: messages in, effects out; and its driver
#   ring      peer-to-peer rendezvous over Chord: messages in, effects out
#   network   networks in memory: one of routing tables, one of brokers
#   client    clients: a session without sockets, and the faces for asyncio and threads
#   server    a broker as a process: sockets, clocks, threads, settings, security
#   gateway   HTTP for every language: an ordinary client with doors for CloudEvents
#   console   web pages around the gateway: operate a network, and see why it does what it does
#   models    routing models compared on a user's own data
#   pipeline  matching from files to files, for any engine and on one machine
#   spark     tables of events against tables of subscriptions, through PySpark
#   testing   a broker in the same process, for users' tests
#   warm      kernels compiled ahead
#   cli       commands
# A second package, weftlab, has the simulators, the benchmarks and the demo; weft never imports it.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft._version import __version__

if TYPE_CHECKING:
    from weft.algebra.box import Box as Box
    from weft.algebra.box import NormalForm as NormalForm
    from weft.algebra.merge import merge as merge
    from weft.algebra.normalize import normalize as normalize
    from weft.algebra.profile import Profile as Profile
    from weft.algebra.relate import covers as covers
    from weft.algebra.relate import equivalent as equivalent
    from weft.algebra.relate import intersect as intersect
    from weft.algebra.relate import is_empty as is_empty
    from weft.algebra.relate import overlaps as overlaps
    from weft.algebra.subtract import subtract as subtract
    from weft.algebra.to_filter import to_filter as to_filter
    from weft.client.client import connect as connect
    from weft.client.sync import connect_sync as connect_sync
    from weft.errors import EventError as EventError
    from weft.errors import FilterError as FilterError
    from weft.errors import FilterSyntaxError as FilterSyntaxError
    from weft.errors import SchemaError as SchemaError
    from weft.errors import SnapshotError as SnapshotError
    from weft.errors import SubscriptionError as SubscriptionError
    from weft.errors import WeftError as WeftError
    from weft.index.base import Matches as Matches
    from weft.index.batch_matches import BatchMatches as BatchMatches
    from weft.index.index import Index as Index
    from weft.index.tree import TreeIndex as TreeIndex
    from weft.language.ast import Filter as Filter
    from weft.language.builder import F as F
    from weft.language.dialects import from_json as from_json
    from weft.language.dialects import to_json as to_json
    from weft.language.eventbridge import from_eventbridge as from_eventbridge
    from weft.language.meaning import matches as matches
    from weft.language.predicate import Predicates as Predicates
    from weft.language.text import parse as parse
    from weft.language.text import parse_many as parse_many
    from weft.lint import lint_filters as lint_filters
    from weft.model.cloudevents import from_cloudevent as from_cloudevent
    from weft.model.cloudevents import to_cloudevent as to_cloudevent
    from weft.model.event import Event as Event
    from weft.model.schema import Attribute as Attribute
    from weft.model.schema import Schema as Schema
    from weft.model.value import Type as Type

_HOMES = {
    "Attribute": "weft.model.schema",
    "BatchMatches": "weft.index.batch_matches",
    "Box": "weft.algebra.box",
    "Event": "weft.model.event",
    "EventError": "weft.errors",
    "F": "weft.language.builder",
    "Filter": "weft.language.ast",
    "FilterError": "weft.errors",
    "FilterSyntaxError": "weft.errors",
    "Index": "weft.index.index",
    "Matches": "weft.index.base",
    "NormalForm": "weft.algebra.box",
    "Predicates": "weft.language.predicate",
    "Profile": "weft.algebra.profile",
    "Schema": "weft.model.schema",
    "SchemaError": "weft.errors",
    "SnapshotError": "weft.errors",
    "SubscriptionError": "weft.errors",
    "TreeIndex": "weft.index.tree",
    "Type": "weft.model.value",
    "WeftError": "weft.errors",
    "connect": "weft.client.client",
    "connect_sync": "weft.client.sync",
    "covers": "weft.algebra.relate",
    "equivalent": "weft.algebra.relate",
    "from_cloudevent": "weft.model.cloudevents",
    "from_eventbridge": "weft.language.eventbridge",
    "from_json": "weft.language.dialects",
    "intersect": "weft.algebra.relate",
    "is_empty": "weft.algebra.relate",
    "lint_filters": "weft.lint",
    "matches": "weft.language.meaning",
    "merge": "weft.algebra.merge",
    "normalize": "weft.algebra.normalize",
    "overlaps": "weft.algebra.relate",
    "parse": "weft.language.text",
    "parse_many": "weft.language.text",
    "subtract": "weft.algebra.subtract",
    "to_cloudevent": "weft.model.cloudevents",
    "to_filter": "weft.algebra.to_filter",
    "to_json": "weft.language.dialects",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - a list of names, and a test imports each


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
