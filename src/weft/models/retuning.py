"""Another label space for a network that runs (DLS 5.1), chosen by evidence.

The evidence is a sample of the subscriptions and of the stored events of a broker. The client gathers it and tunes, so
that the broker does nothing but answer. A space is proposed only if fewer unwanted events would pass.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from weft.algebra.bulk import columns_of_texts
from weft.algebra.relate import as_form
from weft.client.sync import SyncClient
from weft.errors import OptionError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.model.progress import RunProgress
from weft.model.rate import split_rate
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.tuning.tuner import tune_dls

SUBSCRIPTIONS, EVENTS = 2_000, 5_000
LEAST_UNWANTED = 0.01  # share of the events below which nothing is to be gained
LEAST_GAIN = 0.2  # of the unwanted events, that must go


class NetworkSample(NamedTuple):
    """What is subscribed to, and what was published."""

    texts: Sequence[str]
    events: Sequence[dict[str, Any]]


class Proposal(NamedTuple):
    """A label space, the shares of unwanted events with it and with the present one, and whether it is worth while."""

    space: LabelSpace
    now: float
    then: float

    @property
    def pays(self) -> bool:
        """Whether there are unwanted events to save, and enough of them are saved."""
        return self.now >= LEAST_UNWANTED and self.then <= (1 - LEAST_GAIN) * self.now


def gather(client: SyncClient, subscriptions: int = SUBSCRIPTIONS, events: int = EVENTS) -> NetworkSample:
    """Samples of all subscriptions, and of the latest events of this broker. Raises AccessError or RequestError."""
    brokers = [each.name for each in client.overlay() if not each.problem]
    wanted = chain.from_iterable(
        islice(client.subscriptions(broker=name), subscriptions // len(brokers)) for name in brokers
    )
    texts = [split_rate(each.filter)[0] for each in wanted][:subscriptions]
    status = client.status()
    happened: list[dict[str, Any]] = []
    for page in client.search("TRUE", since=max(status.first, status.end - events)):
        happened += [dict(event.attributes) for event in page.events]
    return NetworkSample(texts, happened)


def present_space(client: SyncClient) -> LabelSpace:
    """The label space of a broker. Raises RequestError if its model has none."""
    return LabelSpace.from_json(client.label_space())


def propose(
    evidence: NetworkSample, schema: Schema, present: LabelSpace, progress: RunProgress = lambda *_: None
) -> Proposal:
    """The label space that tuning chooses for the evidence. Raises OptionError if there is none, or TuningError."""
    if not evidence.texts or not evidence.events:
        missing = "events" if evidence.texts else "subscriptions"
        raise OptionError(f"the broker has no {missing} to tune by; name a file of `weft tune` instead")
    tuned = tune_dls(columns_of_texts(evidence.texts), evidence.events, schema, progress=progress)
    filters = [parse(text) for text in evidence.texts]
    return Proposal(
        tuned.space,
        unwanted_share(present, filters, evidence.events),
        unwanted_share(tuned.space, filters, evidence.events),
    )


def unwanted_share(space: LabelSpace, filters: Sequence[Filter], events: Sequence[dict[str, Any]]) -> float:
    """The share of events that have a label of some filter, and match none.

    >>> schema = Schema.from_dict({"attributes": {"x": {"type": "float", "bounds": [0, 100]}}})
    >>> events = [{"x": float(n)} for n in range(100)]
    >>> coarse, fine = (unwanted_share(LabelSpace.of(schema, n), [parse("x < 10")], events) for n in (4, 64))
    >>> coarse > fine
    True
    """
    forms = [form for each in filters if (form := as_form(each))]
    wanted = np.unique(np.concatenate([np.zeros(0, np.int64), *(space.labels(form) for form in forms)]))
    found = np.isin(space.of_events(events, space.levels(wanted)), wanted)
    passing: list[bool] = np.any(found, axis=1).tolist()
    unwanted = sum(
        1 for event, passes in zip(events, passing, strict=True) if passes and not any(event in form for form in forms)
    )
    return unwanted / max(1, len(events))


def read_retuning(text: str) -> LabelSpace:
    """The space of a tuning file, or of its parameters alone. Raises OptionError or SchemaError."""
    from weft.tuning.parameters import Tuned

    form = json.loads(text)
    if isinstance(form, dict):
        tuned = Tuned.from_json(text)
        if not isinstance(tuned.space, LabelSpace):
            raise OptionError(f"the tuning is for the model {tuned.model}; only label sets (dls) are re-tuned")
        return tuned.space
    return LabelSpace.from_json(text)
