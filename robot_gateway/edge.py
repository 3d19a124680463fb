"""What happens around every HTTP request: its id, who sent it, how long it took, and the one shape of errors."""

import logging
import re
import time
import uuid
from difflib import get_close_matches
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commands.reasons import Refusal
from robot_gateway.gateway import Gateway, refusal_for
from robot_gateway.problems import RefusedRequest, problem_response, refuse
from robot_gateway.reading import pointer
from robot_gateway.wording import plain
from streams.port import LogFault

logger = logging.getLogger("fleetlog.gateway")

REQUEST_ID_HEADER: Final = "X-Request-Id"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_FRAMEWORK: Final = {
    400: "malformed_json",
    404: "no_such_route",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}


class Edge:
    """ASGI middleware. Puts `gateway`, `principal` and `request_id` into the request's state."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        began, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                told = MutableHeaders(scope=message)
                told[REQUEST_ID_HEADER] = request_id
                told["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            response = self._enter(scope, headers, request_id)
            if response is not None:
                await response(scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # whoever asked has gone, in the middle of its body: there is nobody to answer, and nothing is wrong
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if status:
                raise
            text = "a fault inside the gateway; it is in the log under this request id"
            await problem_response(Refusal("internal", text), request_id=request_id)(scope, receive, send_with_id)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _enter(self, scope: Scope, headers: Headers, request_id: str) -> Response | None:
        """Who asks; or the answer that nobody may ask like this."""
        found = self._gateway.access.enter(headers.get, scope["path"])
        if isinstance(found, Refusal):
            return problem_response(found, request_id=request_id)
        scope.setdefault("state", {})
        scope["state"] |= {"gateway": self._gateway, "principal": found, "request_id": request_id}
        return None

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        metrics = self._gateway.metrics
        method = scope["method"] if scope["method"] in _METHODS else "other"
        metrics.requests.labels(method, route, str(status)).inc()
        metrics.request_seconds.observe(seconds)


def _request_id(headers: Headers) -> str:
    """The caller's own id where it is a decent one, else a new one."""
    sent = headers.get(REQUEST_ID_HEADER)
    return sent if sent and _REQUEST_ID.match(sent) else uuid.uuid4().hex


def no_unknown_query(request: Request) -> None:
    """A misspelt query parameter is refused, with the nearest known name."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None:
        return
    known = [field.alias for field in dependant.query_params]
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise refuse("unknown_field", f"there is no parameter {name[:100]!r} here{hint}", pointer([name[:100]]))


# ---- handlers of exceptions ----


def refused(request: Request, refusal: Refusal, command_id: str | None = None, headers: Any = None) -> Response:
    """The problem response for this request."""
    request_id = request.scope.get("state", {}).get("request_id")
    return problem_response(refusal, command_id=command_id, request_id=request_id, headers=headers)


async def on_refused(request: Request, error: Exception) -> Response:
    """A route refused."""
    assert isinstance(error, RefusedRequest)  # noqa: S101
    return refused(request, error.refusal, error.command_id, error.headers)


async def on_log_fault(request: Request, error: Exception) -> Response:
    """The log did not answer a read."""
    assert isinstance(error, LogFault)  # noqa: S101
    return refused(request, refusal_for(error))


async def on_invalid(request: Request, error: Exception) -> Response:
    """A path or query parameter is not what the route says."""
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    return refused(request, Refusal("invalid_field", plain(first), pointer(first["loc"][1:])))


async def on_http(request: Request, error: Exception) -> Response:
    """The framework's own errors, in our words."""
    assert isinstance(error, HTTPException)  # noqa: S101
    reason = _FRAMEWORK.get(error.status_code, "internal")
    texts = {
        "no_such_route": f"there is nothing at {request.url.path[:200]}",
        "method_not_allowed": f"{request.method} is not a method of this path",
    }
    return refused(request, Refusal(reason, texts.get(reason, str(error.detail))), headers=error.headers)
