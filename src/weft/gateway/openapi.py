"""The description of the gateway (OpenAPI 3.1), made from its routes and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from weft import __version__
from weft.gateway.cloud_http import BATCH, MOST_EVENTS, STRUCTURED
from weft.gateway.frames import NDJSON, SSE
from weft.gateway.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from weft.gateway.calls import GatewayRoute

_REF = "#/components/schemas/{name}"
CLOUD_EVENT = {
    "type": "object",
    "description": "A CloudEvent 1.0 in JSON. Extensions are booleans, integers or text; floats are accepted, too.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "subject": {"type": "string", "minLength": 1},
        "dataschema": {"type": "string", "minLength": 1},
        "datacontenttype": {"type": "string", "minLength": 1},
        "time": {"type": "string", "format": "date-time"},
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
    "propertyNames": {"pattern": "^([a-z0-9]+|data_base64)$"},
    "additionalProperties": {"type": ["boolean", "number", "string", "null"]},
}
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "column": {"type": "integer"},
        "length": {"type": "integer"},
        "hint": {"type": "string"},
        "nearest_rule": {"type": "string"},
        "limit": {"type": "integer"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def description(routes: Iterable[GatewayRoute]) -> dict[str, Any]:
    """The whole description. Cost: that of the schemas; make it once."""
    every = list(routes)
    types = {each for route in every for each in (route.body, route.answer) if each is not None}
    _, found = msgspec.json.schema_components(sorted(types, key=lambda each: each.__name__), ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in every:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    of_one = {each.name: each for each in every if "id" in each.names}
    links = {
        name: {"operationId": name, "parameters": {"id": "$response.body#/id"}}
        for name in sorted(of_one)
        if of_one[name].gives != "stream"
    }
    paths["/subscriptions"]["post"]["responses"]["201"]["links"] = links
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weft HTTP gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {"CloudEvent": CLOUD_EVENT, "Problem": PROBLEM, **found},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(route: GatewayRoute) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done."}
    cloud = {"$ref": "#/components/schemas/CloudEvent"}
    if route.answer is not None:
        schema = {"$ref": _REF.format(name=route.answer.__name__)}
        answer["content"] = {"application/json": {"schema": schema}}
    elif route.gives == "stream":
        answer["content"] = {SSE: {"schema": {"type": "string"}}, NDJSON: {"schema": {"type": "string"}}}
    elif route.gives == "batch":
        answer["content"] = {BATCH: {"schema": {"type": "array", "items": cloud}}}
    elif route.gives:
        answer["content"] = {route.gives: {"schema": {}}}
    problems = {"description": "A problem.", "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}}
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {str(route.status): answer, **{str(each): problems for each in sorted(route.problems)}},
    }
    if route.method == "PUT":
        found["responses"] = {"201": {**answer, "description": "Created."}, **found["responses"]}
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,64}$"},
        }
        for name in route.names
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()]
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        kinds = ["application/json", *(["application/merge-patch+json"] if route.method == "PATCH" else [])]
        schema = {"$ref": _REF.format(name=route.body.__name__)}
        found["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}
    elif route.takes_events:
        batch = {"type": "array", "maxItems": MOST_EVENTS, "items": cloud}
        content = {STRUCTURED: {"schema": cloud}, BATCH: {"schema": batch}}
        found["requestBody"] = {"required": True, "content": content}
    return found
