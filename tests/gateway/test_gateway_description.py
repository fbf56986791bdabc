"""The description of the gateway: it is valid, whole, and what schemathesis makes of it is answered as described."""

from __future__ import annotations

import json
import re
from collections import Counter

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import (
    content_type_conformance,
    load_all_checks,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from strategies import EXAMPLES
from weft.gateway.openapi import description
from weft.gateway.routes import ROUTES
from weft.testing import broker

STREAMS = {"stream_events", "stream_subscription"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
few = settings(
    max_examples=5 * EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
)


def test_the_description_has_every_route_and_only_existing_types():
    about = description(ROUTES)
    assert about["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, each in about["paths"].items() for method in each}
    assert operations == {(route.method, route.path) for route in ROUTES}
    assert len({each["operationId"] for path in about["paths"].values() for each in path.values()}) == len(ROUTES)
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(about)))
    assert named <= set(about["components"]["schemas"])
    for path in about["paths"].values():
        for operation in path.values():
            assert operation["summary"]


@pytest.fixture(scope="module")
def running():
    with broker(gateway=True) as local:
        yield local


def described(address: str):
    load_all_checks()
    found = schemathesis.openapi.from_dict(httpx.get(f"{address}/openapi.json", trust_env=False).json())
    found.config.update(base_url=address)
    return found.exclude(operation_id=sorted(STREAMS))


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
OPERATIONS = [
    (route.name, mode)
    for route in ROUTES
    for mode in (POSITIVE, NEGATIVE)
    if route.name not in STREAMS and (mode is POSITIVE or route.body or route.names or route.takes_events)
]


@pytest.mark.parametrize(("name", "mode"), OPERATIONS)
def test_requests_made_from_the_description_are_answered_as_described(running, name, mode):
    operation = described(running.gateway).find_operation_by_id(name)

    @few
    @given(operation.as_strategy(generation_mode=mode))
    def asked(case):
        case.call_and_validate(checks=CHECKS, timeout=60)

    asked()


def test_subscriptions_are_made_read_changed_and_ended_as_described(running):
    """What one request answers is used in the next: schemathesis follows the links of the description."""
    load_all_checks()
    off, on = {"enabled": False}, {"enabled": True}
    asked = {
        "base-url": running.gateway,
        "seed": 1,
        "request-timeout": 60,
        "generation": {"max-examples": 10 * EXAMPLES, "deterministic": True, "database": "none"},
        "phases": {"examples": off, "coverage": off, "fuzzing": off, "stateful": {"enabled": True, "max-steps": 6}},
        "checks": {"enabled": False, "use_after_free": on, **{check.__name__: on for check in CHECKS}},
        "operations": [{"include-operation-id": sorted(STREAMS), "enabled": False}],
    }
    about = httpx.get(f"{running.gateway}/openapi.json", trust_env=False).json()
    schema = schemathesis.openapi.from_dict(about, config=SchemathesisConfig.from_dict(asked))
    failures, answers = [], Counter()
    for happened in from_schema(schema).execute():
        if isinstance(happened, events.NonFatalError | events.FatalError):
            failures.append(str(happened))
        elif isinstance(happened, events.ScenarioFinished):
            for checks in happened.recorder.checks.values():
                failures += [str(each.failure_info.failure) for each in checks if each.failure_info]
            for each in happened.recorder.interactions.values():
                answers[each.request.method, each.response and each.response.status_code] += 1
    assert failures == []
    assert answers["POST", 201]
    assert answers["GET", 200]
    assert answers["DELETE", 204]
    assert answers["POST", 422]
