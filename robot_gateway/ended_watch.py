"""Waiting for the end of tasks (`wait_s`)."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from commands.reasons import Refusal
from commands.vocabulary import ENDED_STATES
from projections.answers import Answer
from projections.queries import Tables
from robot_gateway.problems import RefusedRequest
from streams.position import Position

LOOK_EVERY_S: Final = 0.025
WAITING_MAX: Final = 4096
RETRY_MS: Final = 1000

Run = Callable[..., Any]


class EndedWatch:
    """Looks for all tasks whose end somebody waits for, together, and only when the tables have changed."""

    def __init__(self, tables: Tables, run: Run) -> None:
        """`run(work, ...)` does work on the tables in a thread."""
        self._tables, self._run = tables, run
        self._waiting: dict[tuple[str, str], list[asyncio.Future[Answer[Any] | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._seen: Position | None = None

    async def wait(self, pool: str, task: str, wait_s: float) -> Answer[Any] | None:
        """The task when it has ended; None when that did not happen in time."""
        future: asyncio.Future[Answer[Any] | None] = asyncio.get_running_loop().create_future()
        if sum(map(len, self._waiting.values())) >= WAITING_MAX:
            raise RefusedRequest(Refusal("gateway_busy", "too many wait for tasks here", retry_after_ms=RETRY_MS))
        self._waiting.setdefault((pool, task), []).append(future)
        self._seen = None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_until_nobody_waits())
        try:
            return await asyncio.wait_for(future, wait_s)
        except TimeoutError:
            return None
        finally:
            left = [other for other in self._waiting.get((pool, task), []) if other is not future]
            if left:
                self._waiting[pool, task] = left
            else:
                self._waiting.pop((pool, task), None)

    def stop(self) -> None:
        """Everybody goes on with what is true now."""
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def _look_until_nobody_waits(self) -> None:
        while self._waiting:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._look()
            except RefusedRequest:
                continue  # the tables cannot be read now; who waits is answered when its time is over

    async def _look(self) -> None:
        here = await self._run(self._tables.positions)
        if here == self._seen:
            return
        asked = list(self._waiting)
        answers = await self._run(lambda: [self._tables.task(*key) for key in asked])
        self._seen = here
        for key, answer in zip(asked, answers, strict=True):
            if has_ended(answer):
                for future in self._waiting.get(key, []):
                    if not future.done():
                        future.set_result(answer)


def has_ended(answer: Answer[Any]) -> bool:
    """Whether the card is that of a task for which nothing follows by itself."""
    return answer.value is not None and answer.value["state"] in ENDED_STATES
