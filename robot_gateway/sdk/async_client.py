"""The client for programs with an event loop: the same as Client, to be awaited."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

import httpx

from robot_gateway.sdk import calls
from robot_gateway.sdk.calls import Call, Retries, Submitted
from robot_gateway.sdk.client import DEFAULT_GATEWAY, MAP_WINDOW, REQUEST_TIMEOUT_S, RETRY_FOR_S, STREAM_SILENCE_S
from robot_gateway.sdk.errors import FleetlogError, WaitTimeout
from robot_gateway.sdk.resources import Event, Submission, SubmitOptions, Task
from robot_gateway.sdk.sse import EventLines
from robot_gateway.sdk.websocket import bearer

Answer = TypeVar("Answer")


class AsyncTaskHandle:
    """A submitted task. `error`: why it was refused, for one of many."""

    def __init__(
        self, client: AsyncClient, pool: str, task_id: str, task: Task | None, error: FleetlogError | None
    ) -> None:
        self._client = client
        self.pool: Final = pool
        self.id: Final = task_id
        self.submitted: Final = task
        self.error: Final = error

    async def task(self) -> Task:
        """The task as it stands now."""
        return await self._client.task(self.id, pool=self.pool)

    async def wait(self, timeout_s: float | None = None) -> Task:
        """The task when it has ended. Raises WaitTimeout after `timeout_s` seconds (None: waits for ever)."""
        if self.error is not None:
            raise self.error
        return await self._client.wait(self.id, timeout_s=timeout_s, pool=self.pool)

    async def result(self, timeout_s: float | None = None) -> Any:
        """The result when the task is completed (JSON).

        Raises TaskDead, TaskCancelled, TaskDiscarded, or WaitTimeout after `timeout_s` seconds; for a refused one of
        many its error.
        """
        ended = await self.wait(timeout_s)
        error = calls.ended_otherwise(ended)
        if error is not None:
            raise error
        return await self._client.result(self.id, pool=self.pool)

    async def cancel(self, reason: str | None = None) -> Task:
        """Say that nobody wants the task any more."""
        return await self._client.cancel(self.id, reason=reason, pool=self.pool)

    def __repr__(self) -> str:
        return f"AsyncTaskHandle({self.pool}/{self.id})"


class AsyncClient:
    """Submits to `pool` at `gateway` (http(s)://HOST:PORT), within one event loop.

    What is retryable is sent again by itself, with the same command id, for up to `retry_for_s` seconds. What is read
    of a task includes what this client did in its pool before. Every error is a FleetlogError, one class per reason.
    """

    def __init__(
        self,
        gateway: str = DEFAULT_GATEWAY,
        *,
        pool: str = "default",
        token: str | None = None,
        retry_for_s: float = RETRY_FOR_S,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.gateway: Final = gateway.rstrip("/")
        self.pool: Final = pool
        self._retry_for_s = retry_for_s
        self._seen: dict[str, str] = {}
        self._http = httpx.AsyncClient(base_url=self.gateway, headers=bearer(token), timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # ---- submit ----

    async def submit(
        self,
        kind: str,
        payload: Any = None,
        *,
        pool: str | None = None,
        command_id: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncTaskHandle:
        """Submit one task; returns when it is in the log. See SubmitOptions for the options.

        The same `command_id` (a UUID) or the same task `id` with the same content gives the same task.
        """
        pool = pool or self.pool
        task = await self._ask(calls.submit(pool, {"kind": kind, "payload": payload, **options}, command_id))
        return AsyncTaskHandle(self, pool, task.id, task, None)

    async def submit_many(
        self,
        submissions: Iterable[Submission],
        *,
        pool: str | None = None,
        all_or_none: bool = False,
        command_id: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> list[AsyncTaskHandle]:
        """Submit many tasks, 1,000 a request; one handle each, in order.

        A refused one has its `error`; with `all_or_none` (for each 1,000) the error is raised instead. `progress` is
        told after each request how many were answered. The same submissions under the same `command_id` (a UUID) are
        the same tasks, so a program that crashed says all of it again.
        """
        pool = pool or self.pool
        handles: list[AsyncTaskHandle] = []
        for number, group in enumerate(calls.in_requests(submissions)):
            command = calls.numbered(command_id, number)
            handles += [_handle(self, pool, s) for s in await self._submit_group(pool, group, all_or_none, command)]
            if progress is not None:
                progress(len(handles))
        return handles

    async def _submit_group(
        self, pool: str, group: Sequence[Mapping[str, Any]], all_or_none: bool, command_id: str | None = None
    ) -> list[Submitted]:
        call = calls.submit_many(pool, group, command_id, all_or_none=all_or_none)
        retries = Retries(self._retry_for_s)
        while True:
            answers = await self._ask(call)
            error = calls.worst_retryable(answers)
            pause = None if error is None else retries.pause(error)
            if pause is None:
                return answers
            await asyncio.sleep(pause)

    async def map(
        self,
        kind: str,
        payloads: Iterable[Any],
        *,
        timeout_s: float | None = None,
        pool: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> AsyncIterator[Any]:
        """The results for `payloads`, in their order; at most 2,000 tasks are open at once.

        Raises as AsyncTaskHandle.result does, for the first task that has no result; `timeout_s` counts for each.
        """
        groups = calls.in_requests({"kind": kind, "payload": payload, **options} for payload in payloads)
        open_tasks: deque[AsyncTaskHandle] = deque()
        wanted = pool or self.pool
        for group in groups:
            while len(open_tasks) > MAP_WINDOW:
                yield await open_tasks.popleft().result(timeout_s)
            open_tasks += [_handle(self, wanted, answer) for answer in await self._submit_group(wanted, group, False)]
        while open_tasks:
            yield await open_tasks.popleft().result(timeout_s)

    # ---- look ----

    async def task(self, task_id: str, *, pool: str | None = None, after: str | None = None) -> Task:
        """The task as it stands (at least as of the position `after`)."""
        return await self._ask(calls.task(pool or self.pool, task_id, after=after))

    async def tasks(
        self, where: str | None = None, *, sort: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Task]:
        """Tasks that match `where` (like `state=DEAD kind=weld* older=2h`), at most `limit`."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = await self._ask(calls.tasks(where, sort, min(left or 1000, 1000), cursor))
            for item in page.items:
                yield item
            left = None if left is None else left - len(page.items)
            cursor = page.cursor
            if cursor is None:
                return

    async def wait(self, task_id: str, *, timeout_s: float | None = None, pool: str | None = None) -> Task:
        """The task when it has ended, however. Raises WaitTimeout after `timeout_s` seconds."""
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = calls.WAIT_S_MAX if ends is None else ends - time.monotonic()
            task = await self._ask(calls.task(pool or self.pool, task_id, wait_s=left), ends)
            if task.ended:
                return task
            if ends is not None and time.monotonic() >= ends:
                raise WaitTimeout(f"task {task_id} is {task.state} after {timeout_s:g} s")

    async def result(self, task_id: str, *, pool: str | None = None) -> Any:
        """The result (JSON) of a completed task."""
        return await self._ask(calls.result(pool or self.pool, task_id))

    async def why(self, task_id: str, *, pool: str | None = None) -> dict[str, Any]:
        """Why the task is where it is."""
        return await self._ask(calls.why(pool or self.pool, task_id))

    async def history(self, task_id: str, *, pool: str | None = None) -> list[dict[str, Any]]:
        """All events of the task, as stored."""
        events: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._ask(calls.history(pool or self.pool, task_id, cursor))
            events += page.items
            cursor = page.cursor
            if cursor is None:
                return events

    async def stream(
        self, where: str | None = None, *, types: Iterable[str] | None = None, after: str | None = None
    ) -> AsyncIterator[Event]:
        """Events as they happen, from now on or from the position `after`, without a gap or a repeat.

        A broken connection is opened again where it broke off; give `event.position` as `after` to go on another day.
        """
        params = calls.stream_params(where, types)
        position = after
        retries = Retries(self._retry_for_s)
        while True:
            headers = {"Accept": "text/event-stream"} | ({} if position is None else {"Last-Event-ID": position})
            lines = EventLines()
            lines.last_id = position
            try:
                async with self._http.stream(
                    "GET", "/v1/stream", params=params, headers=headers, timeout=STREAM_SILENCE_S
                ) as response:
                    if response.status_code != 200:
                        await response.aread()
                        raise calls.error_from(response)
                    async for line in response.aiter_lines():
                        event = lines.feed(line)
                        if event is not None:
                            retries = Retries(self._retry_for_s)
                            yield event
                problem = calls.no_answer(ConnectionError("the stream ended"), self.gateway)
            except httpx.TransportError as broken:
                problem = calls.no_answer(broken, self.gateway)
            except FleetlogError as refused:
                problem = refused
            position = lines.last_id
            pause = retries.pause(problem)
            if pause is None:
                raise problem
            await asyncio.sleep(pause)

    # ---- mend ----

    async def cancel(self, task_id: str, *, reason: str | None = None, pool: str | None = None) -> Task:
        """Nobody wants the task any more; a running one is asked to end and may still complete."""
        return await self._verb("cancel", task_id, pool, reason=reason)

    async def redrive(
        self,
        task_id: str,
        *,
        reason: str | None = None,
        changed: Mapping[str, Any] | None = None,
        pool: str | None = None,
    ) -> Task:
        """Put a dead letter back, its counters at 0, with other fields if `changed` says so."""
        return await self._verb("redrive", task_id, pool, reason=reason, changed=changed)

    async def discard(self, task_id: str, *, reason: str, pool: str | None = None) -> Task:
        """Give a dead letter up."""
        return await self._verb("discard", task_id, pool, reason=reason)

    async def resolve(self, task_id: str, *, reason: str, result: Any = None, pool: str | None = None) -> Task:
        """Say that a LOST or DEAD task is done, with its result."""
        return await self._verb("resolve", task_id, pool, reason=reason, result=result)

    async def release(self, task_id: str, *, reason: str, force: bool = False, pool: str | None = None) -> Task:
        """End the lease of a task; with `force` slot and target are free at once, whatever the robot does."""
        return await self._verb("release", task_id, pool, reason=reason, force=force or None)

    async def _verb(self, name: str, task_id: str, pool: str | None, **body: Any) -> Task:
        return await self._ask(calls.verb(pool or self.pool, task_id, name, body, None))

    # ---- asking ----

    async def _ask(self, call: Call[Answer], ends: float | None = None) -> Answer:
        """Send a request until it has an answer; raises what is not retryable, or still there after `retry_for_s`."""
        retries = Retries(self._retry_for_s, ends)
        while True:
            try:
                return await self._once(call)
            except FleetlogError as error:
                pause = retries.pause(error)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _once(self, call: Call[Answer]) -> Answer:
        try:
            response = await self._http.request(
                call.method,
                call.path,
                params=call.query(self._seen.get(call.pool or "")),
                content=call.body,
                headers=call.headers,
            )
        except httpx.TransportError as problem:
            raise calls.no_answer(problem, self.gateway) from None
        if response.is_error:
            raise calls.error_from(response)
        if call.pool is not None and call.method != "GET" and calls.POSITION_HEADER in response.headers:
            self._seen[call.pool] = response.headers[calls.POSITION_HEADER]
        return call.read(response)


def _handle(client: AsyncClient, pool: str, submitted: Submitted) -> AsyncTaskHandle:
    task = submitted.task
    return AsyncTaskHandle(client, pool, "" if task is None else task.id, task, submitted.error)
