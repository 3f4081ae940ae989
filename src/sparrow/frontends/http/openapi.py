"""The OpenAPI document, made of the table of routes, and the parts of which routes describe
themselves.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.version import VERSION
from sparrow.frontends.http.path_parameters import PathParameters
from sparrow.frontends.http.problems import MEDIA_TYPE
from sparrow.frontends.http.responses import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Struct

    from sparrow.frontends.http.queries import Parameter
    from sparrow.frontends.http.router import Route, Schema

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean", "default": False}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}
AS_STORED: Final[Schema] = {}
"""The value of a message of any content type, including JSON, so it need not be a string."""
PROBLEM: Final[Schema] = {"$ref": "#/components/schemas/Problem"}

PROBLEM_SCHEMA: Final[Schema] = {
    "title": "Problem",
    "description": "An error (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retriable"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:sparrow:error:unknown-topic"]},
        "title": {"type": "string", "examples": ["Unknown topic"]},
        "status": {"type": "integer", "examples": [404]},
        "detail": {"type": "string", "description": "A sentence for people: what failed, and what to do."},
        "instance": {"type": "string", "description": "The requested path."},
        "code": {"type": "string", "description": "Stable, for programs.", "examples": ["UNKNOWN_TOPIC"]},
        "retriable": {"type": "boolean", "description": "True if the same request may succeed later."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
}
_MEANING: Final[dict[int, str]] = {
    400: "The request is invalid.",
    401: "Login is required, or the credentials are wrong.",
    403: "You do not have the right to do this.",
    404: "It does not exist.",
    405: "The path does not support this method.",
    406: "No accepted content type is available.",
    408: "The request did not arrive in time.",
    409: "The state of the broker does not allow it.",
    413: "The body or a message is too large.",
    415: "The content type is not supported.",
    422: "The idempotency key was used for another request.",
    429: "Too many requests at a time.",
    431: "The head of the request is too large.",
    503: "The broker cannot do it now; retry later.",
    507: "The disk is full.",
}
ALWAYS: Final = (400, 401, 403, 408, 431, 503)
"""Problems of every route."""


def problems(*statuses: int) -> dict[int, Schema]:
    """Return the problems of a route, including those of every route."""
    return {
        status: {"description": _MEANING[status], "content": {MEDIA_TYPE: {"schema": PROBLEM}}}
        for status in sorted({*ALWAYS, *statuses})
    }


def response(text: str, media: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """Return the description of a response. `media` has a schema by content type, none without a
    body.
    """
    found: dict[str, Any] = {"description": text}
    if media:
        found["content"] = {kind: {"schema": schema} for kind, schema in media.items()}
    return found


def body(text: str, media: Mapping[str, Schema], *, is_required: bool = True) -> dict[str, Any]:
    """Return the description of a request's body: a schema by content type."""
    return {
        "description": text,
        "required": is_required,
        "content": {kind: {"schema": schema} for kind, schema in media.items()},
    }


def query_parameter(name: str, text: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema or TEXT}


def header_parameter(name: str, text: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema or TEXT}


def integer(default: int | None = None, least: int | None = None, most: int | None = None) -> Schema:
    """Return the schema of a whole number."""
    limits = {"default": default, "minimum": least, "maximum": most}
    return {"type": "integer", **{name: value for name, value in limits.items() if value is not None}}


def choice(default: str, *choices: str) -> Schema:
    """Return the schema of one of several words."""
    return {"type": "string", "enum": list(choices), "default": default}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def members(required: list[str] | None = None, /, **properties: Schema) -> Schema:
    """Return the schema of an object."""
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    return found


def reference(struct: type[Struct]) -> Schema:
    """Return the schema of a struct, by its name."""
    return {"$ref": _REFERENCE.format(name=struct.__name__)}


def body_of(struct: type[Struct], *, is_required: bool) -> Schema:
    """Return the description of a body of JSON."""
    schema = reference(struct)
    return {
        "content": {JSON: {"schema": schema if is_required else {"anyOf": [schema, {"type": "null"}]}}},
        "required": is_required,
    }


# ── the document ──────────────────────────────────────────────────────────────────────────────────

_REFERENCE: Final = "#/components/schemas/{name}"
_MODELS: Final = {
    "ConfigEntry": "SettingShown",
    "GroupDescription": "GroupShown",
    "GroupListing": "GroupListed",
    "GroupPosition": "LagShown",
    "MemberDescription": "MemberShown",
    "PartitionDescription": "PartitionShown",
    "QueueConsumerListing": "ConsumerShown",
    "QueueDescription": "QueueShown",
    "QueueStatistics": "StatisticsShown",
    "Quota": "QuotaShown",
    "RedriveProgress": "Progress",
    "ReloadedConfig": "ReloadedShown",
    "SubscriberStatistics": "LaneShown",
    "TopicDescription": "TopicShown",
    "TopicListing": "TopicListed",
    "WebhookDescription": "WebhookShown",
    "WebhookStatistics": "WebhookStatistics",
}
"""Schemas of `sparrow.model` by the names of the classes: generated clients have these names. A
response has all members of a model, so none of them has a default.
"""
_BODIES: Final = {"QuotaChanged": "Quota"}
_INFO: Final = {
    "title": "Sparrow",
    "description": """\
The message broker for Python and Spark, by HTTP.

Errors are problem details (RFC 9457) with a stable `code` and a flag `retriable`: the same request
may succeed later. Times are milliseconds since 1970, sizes are bytes, as their names say.
""",
}
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the configuration."},
    "basic": {"type": "http", "scheme": "basic", "description": "A user and a password."},
}


def document(routes: Sequence[Route]) -> Schema:
    """Return the OpenAPI document. May be called in any thread."""
    shown = [route for route in routes if route.tag]
    queries = [route.query for route in shown if route.query]
    structs = [each for route in shown for each in route.structs]
    _, schemas = msgspec.json.schema_components(
        list(dict.fromkeys([PathParameters, *queries, *structs])), ref_template=_REFERENCE
    )
    for name, schema in schemas.items():
        if name in _MODELS:
            schema.pop("description", None)
            schema["required"] = [*schema["properties"]]
            for each in schema["properties"].values():
                each.pop("default", None)
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    in_path = {each["name"]: each for each in _parameters("path", schemas.pop(PathParameters.__name__))}
    in_query = {query: list(_parameters("query", schemas[query.__name__])) for query in queries}
    for query in in_query:
        del schemas[query.__name__]
    paths: Schema = {}
    for route in shown:
        parameters = [in_path[name] for name in route.path_names]
        parameters += in_query[route.query] if route.query else map(_described, route.parameters)
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, parameters)
    named = {_schema_name(name): {**each, "title": _schema_name(name)} for name, each in schemas.items()}
    made = {
        "openapi": "3.1.0",
        "info": {**_INFO, "version": VERSION},
        "paths": paths,
        "components": {"schemas": {**named, "Problem": PROBLEM_SCHEMA}, "securitySchemes": _SECURITY},
        "security": [*({name: []} for name in _SECURITY), {}],
    }
    _finish(made)
    return made


def _described(parameter: Parameter | Schema) -> Schema:
    if isinstance(parameter, dict):
        return parameter
    return query_parameter(parameter.name, parameter.text, parameter.schema())


def _operation(route: Route, parameters: list[Schema]) -> Schema:
    found: Schema = {
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.text.strip(),
        "operationId": f"{route.tag}_{route.name}".replace(" ", "_"),
        "parameters": parameters,
        "requestBody": route.request_body,
        "responses": {str(status): route.responses[status] for status in sorted(route.responses)},
    }
    return {name: value for name, value in found.items() if value}


def _parameters(where: str, schema: Schema) -> Iterable[Schema]:
    """Yield the members of a struct as parameters."""
    for name, each in schema["properties"].items():
        kind = {key: value for key, value in each.items() if key != "description" and value is not None}
        text = {"description": each["description"]} if "description" in each else {}
        yield {"name": name, "in": where, "required": name in schema["required"], **text, "schema": kind}


def _finish(part: Any) -> None:
    """Name the models, and declare all integers as 64-bit: generators of clients assume 32 bits,
    and offsets and times have more.
    """
    if isinstance(part, dict):
        if "$ref" in part:
            part["$ref"] = _REFERENCE.format(name=_schema_name(part["$ref"].rpartition("/")[2]))
        if "integer" in (part.get("type"), *_listed(part.get("type"))):
            part.setdefault("format", "int64")
        part = list(part.values())
    for each in _listed(part):
        _finish(each)


def _schema_name(name: str) -> str:
    return _MODELS.get(name) or _BODIES.get(name, name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
