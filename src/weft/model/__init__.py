"""The model of events: values, schemas, events, and their CloudEvents and Arrow forms."""

from weft.model.batch import batch_from_events as batch_from_events
from weft.model.batch import events_from_batch as events_from_batch
from weft.model.cloudevents import from_cloudevent as from_cloudevent
from weft.model.cloudevents import to_cloudevent as to_cloudevent
from weft.model.event import Event as Event
from weft.model.limits import LIMITS as LIMITS
from weft.model.schema import Attribute as Attribute
from weft.model.schema import Schema as Schema
from weft.model.value import Type as Type
