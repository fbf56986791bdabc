"""A broker's log with events in it, written as the broker writes them."""

from __future__ import annotations

import numpy as np

from weft.broker.admission import Admission
from weft.log.base import Events, Group, Offset
from weft.log.opening import LogOptions, open_log
from weft.protocol.messages import Publish


class WrittenLog:
    """A log in a directory; `append` stores events with these attributes as one group."""

    def __init__(self, directory, schema=None):
        self.log = open_log(directory, LogOptions(schema=schema)).log
        self.door = Admission(schema)
        self.next = int(self.log.restore().next)
        self.at = 1_700_000_000_000_000

    def append(self, *attributes, payload=b"", content_type="", heads=None):
        admitted = [
            self.door.admit(Publish.of(self.next + place, each, payload, content_type), 0)[1]
            for place, each in enumerate(attributes)
        ]
        heads = heads or admitted
        origins = np.array([(77, 2, self.next + place) for place in range(len(heads))], np.int64)
        starts = np.zeros(len(heads) + 1, np.uint32)
        events = Events(Offset(self.next), origins, heads, [payload] * len(heads), starts, np.zeros(0, np.uint32))
        self.at += 1
        self.log.commit([Group(self.at, events)])
        self.next += len(heads)

    def close(self):
        self.log.close()
