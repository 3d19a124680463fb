"""docs/reference/http.md: paths and request bodies, from the gateway's own OpenAPI description."""

from types import SimpleNamespace
from typing import Any, Final, cast

from commands.messages import PROTOCOL
from docs.generators.markdown import code, page, table
from robot_gateway.app import create_app
from robot_gateway.gateway import Gateway
from robot_gateway.settings import GatewaySettings
from robot_gateway.submit import SUBMIT_PROTOCOL

TAGS: Final = ("tasks", "lists", "bulk", "robots", "pools", "schedules", "events", "system")
"""The order of the sections; every tag of the description has one."""

INTRODUCTION: Final = """
Every path and every field of a request, from the description that a running gateway serves at `/docs` (for people) and
`/openapi.json` (for programs). How commands, positions, lists, filters, refusals and access work:
[the HTTP format](../formats/http.md). Reasons: [reasons.md](reasons.md).

Durations are seconds (`_s`), instants RFC 3339 with a zone.
"""
WEBSOCKETS: Final = f"""
| path | subprotocol | |
|---|---|---|
| `/v1/pools/{{pool}}/robots/{{robot}}/session` | `{PROTOCOL}` | a robot's session, see [protocol.md](protocol.md) |
| `/v1/submit` | `{SUBMIT_PROTOCOL}` | many submissions in flight, see [its format](../formats/http.md#v1submit) |
"""


def openapi() -> dict[str, Any]:
    """The description of all paths. Nothing is served for it, so the gateway is its settings alone."""
    return create_app(cast(Gateway, SimpleNamespace(settings=GatewaySettings()))).openapi()


def http_page() -> str:
    """docs/reference/http.md."""
    description = openapi()
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag: [] for tag in TAGS}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method.upper(), path, operation))
    parts = [INTRODUCTION]
    for tag, operations in by_tag.items():
        rows = [_operation(method, path, operation) for method, path, operation in operations]
        parts += [f"## {tag.capitalize()}", table(("path", "", "parameters", "body"), rows)]
    parts += ["## WebSockets", WEBSOCKETS, "## Request bodies", BODIES_NOTE]
    schemas = description["components"]["schemas"]
    parts += [_model(name, schemas[name]) for name in sorted(schemas) if schemas[name].get("properties")]
    return page("HTTP", *parts)


BODIES_NOTE: Final = "A field with `?` may be left out: then the default holds, of the pool where there is one."


def _operation(method: str, path: str, operation: dict[str, Any]) -> tuple[str, str, str, str]:
    parameters = [code(p["name"]) for p in operation.get("parameters", []) if p["in"] == "query"]
    text = f"**{operation['summary']}.** {operation.get('description', '')}"
    return f"{method} {code(path)}", text, ", ".join(parameters), _body(operation)


def _body(operation: dict[str, Any]) -> str:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return " or ".join(_kind(one) for one in schema.get("oneOf", [schema] if schema else []))


def _model(name: str, schema: dict[str, Any]) -> str:
    rows = [
        (code(field) + ("" if field in schema.get("required", []) else "?"), _kind(inner), _note(inner))
        for field, inner in schema["properties"].items()
    ]
    return "\n\n".join(
        (f"### {name}", " ".join(schema.get("description", "").split()), table(("field", "type", ""), rows))
    )


def _note(schema: dict[str, Any]) -> str:
    notes = [schema.get("description", "").replace("<", "{").replace(">", "}")]
    if schema.get("default") not in (None, [], {}):
        notes.append(f"default {code(str(schema['default']).lower())}")
    return "; ".join(filter(None, notes))


def _kind(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_kind(one) for one in schema[several] if one.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return " or ".join(code(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any JSON")
    if "patternProperties" in schema:
        return f"object of {_kind(next(iter(schema['patternProperties'].values())))}"
    if kind == "array":
        kind = f"list of {_kind(schema.get('items', {}))}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_kind(schema['additionalProperties'])}"
    elif schema.get("format") == "date-time":
        kind = "instant"
    limits = ", ".join(_limits(schema))
    return f"{kind} ({limits})" if limits else kind


def _limits(schema: dict[str, Any]) -> list[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    limits = []
    if "exclusiveMinimum" in schema:
        limits.append(f"above {schema['exclusiveMinimum']:g}")
    if low is not None and high is not None:
        limits.append(f"{low:g} to {high:,}")
    elif low is not None or high is not None:
        limits.append(f"from {low:g}" if low is not None else f"up to {high:,}")
    if "maxLength" in schema:
        limits.append(f"at most {schema['maxLength']:,} characters")
    if "maxItems" in schema:
        limits.append(f"at most {schema['maxItems']:,}")
    return limits
