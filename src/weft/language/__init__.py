"""The filter language: its tree, text, JSON dialects, EventBridge patterns, Python builder, and meaning."""

from weft.language.ast import Filter as Filter
from weft.language.builder import F as F
from weft.language.builder import Field as Field
from weft.language.dialects import from_json as from_json
from weft.language.dialects import to_json as to_json
from weft.language.eventbridge import from_eventbridge as from_eventbridge
from weft.language.meaning import matches as matches
from weft.language.meaning import truth as truth
from weft.language.predicate import Predicate as Predicate
from weft.language.predicate import Predicates as Predicates
from weft.language.taxonomy import IsA as IsA
from weft.language.taxonomy import Taxonomy as Taxonomy
from weft.language.text import parse as parse
from weft.language.text import parse_many as parse_many
from weft.language.trace import Trace as Trace
