"""Life, readiness, figures, version, the list of reasons, and the documentation pages."""

import asyncio
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from commands.messages import PROTOCOL
from commands.reasons import REASONS
from robot_gateway.docs_page import docs_page
from robot_gateway.http import Calling, json_response
from robot_gateway.problems import refuse
from robot_gateway.submit import SUBMIT_PROTOCOL
from robot_gateway.version import VERSION

router = APIRouter(tags=["system"])


@router.get("/healthz", summary="Alive")
async def healthz(caller: Calling) -> Response:
    """200 as long as the process answers; `degraded` where `/readyz` has something to say."""
    worse = caller.gateway.degraded_parts()
    return PlainTextResponse(f"alive, degraded: {', '.join(worse)}; see /readyz\n" if worse else "alive\n")


@router.get("/readyz", summary="Ready")
async def readyz(caller: Calling) -> Response:
    """200 when every part is ready, else 503; one line for each part, which says what to do about it.

    A degraded part works, but is not as it should be. Pools are named to those who may read all of them.
    """
    with_names = caller.principal.everywhere and caller.principal.may("read")
    parts = await asyncio.to_thread(partial(caller.gateway.readiness, with_names=with_names))
    status = 200 if all(part.ready for part in parts) else 503
    return PlainTextResponse("".join(f"{part}\n" for part in parts), status)


@router.get("/metrics", summary="Figures for Prometheus")
async def metrics(caller: Calling) -> Response:
    """Prometheus' text format; needs a token that may read, and shows the pools that it is for."""
    caller.need("read")
    return Response(caller.gateway.figures(caller.principal), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/version", summary="Version and log")
async def version(caller: Calling) -> Response:
    """Software, protocols, and the log that this gateway stands before."""
    log = caller.gateway.log
    return json_response(
        {
            "software": VERSION,
            "protocols": [PROTOCOL, SUBMIT_PROTOCOL],
            "log_id": log.log_id,
            "format": log.format,
            "partitions": log.partitions,
            "payload_max_bytes": caller.gateway.settings.payload_max_bytes,
        }
    )


@router.get("/v1/problems/{reason}", summary="What a reason means")
async def problem(reason: str) -> Response:
    """HTTP status, whether asking again may help, and what to do."""
    found = REASONS.get(reason)
    if found is None:
        raise refuse("no_such_route", "there is no such reason")
    return json_response(
        {
            "reason": found.word,
            "status": found.status or None,
            "retryable": found.retryable,
            "remedy": found.remedy,
        }
    )


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The paths as one page, which needs nothing from elsewhere."""
    return HTMLResponse(docs_page(request.app.openapi()))
