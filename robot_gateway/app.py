"""The HTTP application: routes, middleware, and the one shape of errors. WebSockets are in `websocket.py`."""

from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from robot_gateway.edge import REQUEST_ID_HEADER, Edge, no_unknown_query, on_http, on_invalid, on_log_fault, on_refused
from robot_gateway.gateway import Gateway
from robot_gateway.http import BODY_MODELS, COMMAND_HEADER, POSITION_HEADER
from robot_gateway.problems import RefusedRequest
from robot_gateway.routes import (
    bulk,
    clock,
    events,
    limits,
    lists,
    log,
    pools,
    robots,
    schedules,
    stats,
    system,
    task_verbs,
    tasks,
)
from robot_gateway.version import VERSION
from streams.port import LogFault

DESCRIPTION = (
    "Hands tasks to robots, never loses one, never does one twice without saying so, and shows why. "
    "Durations are seconds, instants RFC 3339 with Z. Errors are problem details with a reason word; "
    "/v1/problems/{reason} says what to do."
)


def create_app(gateway: Gateway) -> FastAPI:
    """The application that serves `gateway`; start and stop of the gateway are the caller's."""
    app = FastAPI(
        title="Fleetlog",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(no_unknown_query)],
        exception_handlers={
            RefusedRequest: on_refused,
            LogFault: on_log_fault,
            RequestValidationError: on_invalid,
            HTTPException: on_http,
        },
    )
    for part in (tasks, task_verbs, lists, bulk, stats, pools, limits, schedules, robots, events, clock, log, system):
        app.include_router(part.router)
    app.add_middleware(Edge, gateway=gateway)
    if gateway.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=gateway.settings.origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", COMMAND_HEADER, REQUEST_ID_HEADER, "Last-Event-ID"],
            expose_headers=[POSITION_HEADER, COMMAND_HEADER, REQUEST_ID_HEADER, "Retry-After"],
        )
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign]
    return app


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, made once; request bodies are described by the models that read them."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, definitions = models_json_schema(
            [(model, "validation") for model in BODY_MODELS], ref_template="#/components/schemas/{model}"
        )
        components = schema.setdefault("components", {}).setdefault("schemas", {})
        components |= definitions.get("$defs", {})
        # The framework describes an error of its own that never leaves this server.
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        for methods in schema["paths"].values():
            for operation in methods.values():
                _describe_errors(operation)
        components["Problem"] = PROBLEM_SCHEMA
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_errors(operation: dict[str, Any]) -> None:
    operation["responses"].pop("422", None)
    operation["responses"]["default"] = {
        "description": "a refusal",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Why the answer is no (RFC 9457); further members belong to the reason.",
    "required": ["type", "title", "status", "detail", "reason", "retryable", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "/v1/problems/<reason>"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "a sentence for people"},
        "reason": {"type": "string", "description": "a word of the closed list"},
        "field": {"type": "string", "description": "a JSON pointer to what is wrong"},
        "retryable": {"type": "boolean", "description": "whether the same request may succeed later"},
        "retry_after_s": {"type": "number"},
        "command_id": {"type": "string"},
        "request_id": {"type": "string"},
    },
}
