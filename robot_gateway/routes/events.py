"""Events: those in the log a page at a time, and those that happen now as a stream (SSE)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from commands.reasons import Refusal
from projections.cursors import make_cursor, read_cursor
from robot_gateway.event_views import EventView, now_ms
from robot_gateway.gateway import Gateway
from robot_gateway.http import Calling, stored_events
from robot_gateway.past_events import first_offset_at, read_page
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.stream import Reader, ReaderEnded, SlowReader, TooManyReaders
from robot_gateway.wire import instant_ms
from streams.port import LogFault, LogUnavailable, Topic
from streams.position import Position

logger = logging.getLogger("fleetlog.gateway")

router = APIRouter(prefix="/v1", tags=["events"])

COMMENT_EVERY_S: Final = 15.0
SENT_WITHIN_S: Final = 30.0

Where = Annotated[str, Query(max_length=2000, description="the filter of lists, on the event and the task it is about")]
Types = Annotated[str | None, Query(max_length=2000, description="event types, by commas: TaskAssigned,TaskCompleted")]
Moment = Annotated[str | None, Query(max_length=64, description="RFC 3339, with a zone")]


@router.get("/events", summary="Events in the log")
async def events(
    caller: Calling,
    where: Where = "",
    types: Types = None,
    from_: Annotated[str | None, Query(alias="from", max_length=64, description="RFC 3339, with a zone")] = None,
    to: Moment = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """As stored, byte for byte; each pool in its order. A page may be short, or empty, before the last one."""
    caller.need("read")
    view = caller.gateway.reads.event_view(caller.principal, where, types, _ms(from_, "/from"), _ms(to, "/to"))
    log = caller.gateway.log
    listing = repr(("events", where, types, from_, to, view.partitions))
    if cursor is not None:
        state = read_cursor(listing, cursor, (dict, dict), now_ms())
        if isinstance(state, Refusal):
            raise RefusedRequest(state)
        starts, ends = _offsets(state[0], view), _offsets(state[1], view)
    else:
        starts, ends = await asyncio.to_thread(_bounds, log, view)
    try:
        page = await asyncio.to_thread(read_page, log, starts, ends, limit, view)
    except LogUnavailable:
        raise
    except LogFault:
        raise refuse("bad_cursor", "the cursor points to where this log has nothing") from None
    if view.asks_tasks:
        card_of = caller.gateway.reads.card
        page.items = [value for value in page.items if await view.confirms(value, card_of)]
    following = make_cursor(listing, [_named(page.rest), _named(ends)], now_ms()) if page.rest else None
    position = str(Position(log.log_id, {p: page.rest.get(p, end) for p, end in ends.items()}))
    return stored_events(page.items, following, position)


@router.get("/stream", summary="Events as they happen (SSE)")
async def stream(caller: Calling, where: Where = "", types: Types = None) -> Response:
    """From now on, or from after `Last-Event-ID`. `id` is a position, `event` the type, `data` the event as stored."""
    caller.need("read")
    gateway = caller.gateway
    view = gateway.reads.event_view(caller.principal, where, types, None, None)
    resume = caller.request.headers.get("last-event-id")
    starts = None
    if resume:
        starts = await gateway.reads.offsets_of(resume, view.partitions)
    source = gateway.hub.read(starts, view.partitions, view, COMMENT_EVERY_S)
    try:
        # The first step is taken here, so that what is wrong with the log becomes an answer and not a broken stream.
        first = asyncio.ensure_future(anext(source))
        done, _ = await asyncio.wait([first], timeout=0.05)
        if done:
            first.result()
    except TooManyReaders:
        raise refuse("gateway_busy", "too many streams read the past now; come back in a moment") from None
    except StopAsyncIteration:
        raise refuse("not_ready", "the gateway is stopping") from None
    return EventStream(
        _as_sse(gateway, view, first, source),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


class EventStream(StreamingResponse):
    """A response whose reader is cut off when it takes nothing for a while."""

    async def stream_response(self, send: Send) -> None:
        """As the framework does it, with a time limit on every piece."""

        async def timely(message: Message) -> None:
            await asyncio.wait_for(send(message), SENT_WITHIN_S)

        try:
            await super().stream_response(timely)
        except TimeoutError:
            logger.info("an event stream was cut: its reader took nothing for %g s", SENT_WITHIN_S)


async def _as_sse(gateway: Gateway, view: EventView, first: Any, source: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """The stream in the format of server-sent events. It opens with a comment, so that proxies pass it on at once."""
    yield b": events\n\n"
    try:
        item = await first
        while True:
            reader, record, value = item
            if record is None:
                yield b": nothing new\n\n"
            elif not view.asks_tasks or await view.confirms(value, gateway.reads.card):
                yield _entry(gateway.log.log_id, reader, record.header("type"), value)
            item = await anext(source)
    except SlowReader:
        yield _dropped("the reader did not keep up")
    except ReaderEnded:
        yield _dropped("the gateway stops")
    except LogFault:
        yield _dropped("the log does not answer")
    except StopAsyncIteration:
        return
    finally:
        await source.aclose()  # type: ignore[attr-defined]


def _entry(log_id: str, reader: Reader, kind: bytes | None, value: bytes) -> bytes:
    position = str(Position(log_id, reader.offsets)).encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position, kind or b"event", value)


def _dropped(text: str) -> bytes:
    return b"event: dropped\ndata: %b\n\n" % to_json({"text": f"{text}: resume from the last id"})


def _bounds(log: Any, view: EventView) -> tuple[dict[int, int], dict[int, int]]:
    """Where to begin and to end, per partition."""
    ends = {p: log.end(Topic.EVENTS, p) for p in view.partitions}
    begin: Callable[[int], int] = lambda p: (  # noqa: E731
        log.beginning(Topic.EVENTS, p) if view.from_ms is None else first_offset_at(log, p, view.from_ms)
    )
    return {p: begin(p) for p in view.partitions}, ends


def _offsets(named: dict[str, Any], view: EventView) -> dict[int, int]:
    """Offsets by partition. A client may make cursors up, so nothing in them is trusted."""
    known = {str(partition): partition for partition in view.partitions}
    if not named.keys() <= known.keys() or any(type(offset) is not int for offset in named.values()):
        raise refuse("bad_cursor", "this is not a cursor that a list gave")
    return {known[name]: offset for name, offset in named.items()}


def _named(offsets: dict[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _ms(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ms(text)
    except ValueError:
        raise refuse("invalid_field", "an instant is written like 2026-11-30T09:15:00Z", field) from None
