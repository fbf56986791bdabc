"""Another label space for a network that runs (DLS 5.1), chosen by evidence.

The evidence is a sample of the subscriptions and of the stored events of a broker. A client gathers it and tunes, so
that the broker does nothing but answer: `weft retune`, or a process that a broker starts now and then. A space is
proposed only if fewer unwanted events would pass.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from itertools import chain, islice
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from weft.algebra.bulk import columns_of_texts
from weft.algebra.relate import as_form
from weft.client.sync import SyncClient, connect_sync
from weft.errors import OptionError, WeftError
from weft.language.ast import Filter
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.predicate_modules import filter_predicates
from weft.language.text import parse
from weft.model.progress import RunProgress
from weft.model.rate import split_rate
from weft.model.schema import Schema
from weft.routing.dls.space import LabelSpace
from weft.server.config import BrokerConfig
from weft.server.log_lines import LogLines
from weft.tuning.tuner import tune_dls

SUBSCRIPTIONS, EVENTS = 2_000, 5_000
LEAST_UNWANTED = 0.01  # share of the events below which nothing is to be gained
LEAST_GAIN = 0.2  # of the unwanted events, that must go
_ATTEMPTS = 3  # at reaching all brokers, each of which may take some seconds
_NICE = 19  # of the process beside a broker, which nobody waits for
_PATIENCE = 30.0  # seconds that it tries to reach the broker


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


def proposal_for(
    client: SyncClient, schema: Schema, predicates: Predicates = NO_PREDICATES, progress: RunProgress = lambda *_: None
) -> Proposal:
    """The label space that tuning chooses for the network of a broker, by samples.

    Raises AccessError, RequestError, FilterError if a filter calls an unknown predicate, OptionError if there is no
    evidence, or TuningError.
    """
    progress("reading subscriptions and events", 0, 0)
    evidence, present = _sample(client), LabelSpace.from_json(client.label_space())
    if not evidence.texts or not evidence.events:
        missing = "events" if evidence.texts else "subscriptions"
        raise OptionError(f"the broker has no {missing} to tune by; name a file of `weft tune` instead")
    columns = columns_of_texts(evidence.texts, predicates=predicates)
    tuned = tune_dls(columns, evidence.events, schema, progress=progress)
    filters = [parse(text, predicates) for text in evidence.texts]
    return Proposal(
        tuned.space,
        unwanted_share(present, filters, evidence.events),
        unwanted_share(tuned.space, filters, evidence.events),
    )


def _sample(client: SyncClient) -> NetworkSample:
    """Subscriptions of all brokers, and the latest events of this one."""
    brokers = _brokers(client)
    wanted = chain.from_iterable(
        islice(client.subscriptions(broker=name), SUBSCRIPTIONS // len(brokers)) for name in brokers
    )
    texts = [split_rate(each.filter)[0] for each in wanted][:SUBSCRIPTIONS]
    status = client.status()
    happened: list[dict[str, Any]] = []
    for page in client.search("TRUE", since=max(status.first, status.end - EVENTS)):
        happened += [dict(event.attributes) for event in page.events]
    return NetworkSample(texts, happened)


def _brokers(client: SyncClient) -> list[str]:
    """The names of all brokers. Raises OptionError if one does not answer: what it wants would not count."""
    for _ in range(_ATTEMPTS):
        summaries = client.overlay()
        silent = [each for each in summaries if each.problem]
        if not silent:
            return [each.name for each in summaries]
    raise OptionError(f"{silent[0].name} does not answer ({silent[0].problem}); re-tune when all brokers do")


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


# -- the process beside a broker -----------------------------------------------------------------------------


def run_child() -> None:
    """Re-tune once, as a process that a broker has started: its settings come from standard input, which ends with the
    broker.
    """
    config, address = pickle.load(sys.stdin.buffer)
    assert isinstance(config, BrokerConfig)
    assert config.schema is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends this process
    Thread(target=_end_with_broker, daemon=True).start()
    os.nice(_NICE)
    logging.getLogger("weft").setLevel(logging.ERROR)  # that the connection ends with the broker is nothing new
    lines = LogLines(config.logging.format, config.logging.level)
    try:
        predicates = filter_predicates(config.predicates, config.taxonomy)
        with connect_sync(address, retry_for=_PATIENCE) as client:
            found = proposal_for(client, Schema.load(config.schema), predicates)
            shares = {"unwanted": round(found.now, 4), "unwanted_then": round(found.then, 4)}
            if found.pays:
                client.retune(found.space.to_json())
                lines.info("re-tuned", **shares)
            else:
                lines.debug("not re-tuned", **shares)
    except (WeftError, TimeoutError) as error:
        lines.info("not re-tuned", reason=error)


def _end_with_broker() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when this process ends by itself
        pass
    os._exit(1)
