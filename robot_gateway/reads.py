"""Reads from the projections for HTTP: in threads, bounded, in HTTP units, with the position they are true for.

Whatever is refused is raised as `RefusedRequest`: filters, cursors, positions, tables that cannot be read.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from pydantic_core import from_json

from commands.events import EVENT_TYPES
from commands.reasons import Refusal
from projections.answers import Answer, Page
from projections.cursors import make_cursor, read_cursor
from projections.filters import Filter, Subject, parse_filter
from projections.queries import Tables
from projections.store import StoreFault, StoreMissing
from robot_gateway.ended_watch import EndedWatch, has_ended
from robot_gateway.event_views import EventView, now_ms, without_bodies
from robot_gateway.problems import RefusedRequest, refuse
from robot_gateway.schedules import next_firings, schedule_resource
from robot_gateway.tokens import Principal
from robot_gateway.wire import to_http
from streams.port import LogReader, Topic, partition_of
from streams.position import Position, parse_position

THREADS: Final = 4
WAITING_MAX: Final = 512
SELECTED_AT_ONCE: Final = 1000
LOOK_EVERY_S: Final = 0.025
POOL_WAIT_S: Final = 2.0
RETRY_MS: Final = 1000
_TYPE_NAMES: Final = frozenset(name.partition(".")[0] for name in EVENT_TYPES)

T = TypeVar("T")
Resource = dict[str, Any]


class SeenPools(Collection[str]):
    """The pools that a token is for, as far as its globs say."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def __contains__(self, pool: object) -> bool:
        return isinstance(pool, str) and self._principal.covers_pool(pool)

    def __iter__(self) -> Iterator[str]:
        return iter(self._principal.pools)

    def __len__(self) -> int:
        return len(self._principal.pools)


class Reads:
    """Asks the tables. `after_wait_s`: how long an answer waits for a position that the tables have not reached."""

    def __init__(self, tables: Tables, log: LogReader, after_wait_s: float) -> None:
        self._tables, self._log, self._after_wait_s = tables, log, after_wait_s
        self._threads = ThreadPoolExecutor(THREADS, "tables")
        self._waiting = 0
        self._closed = False
        self._ended_watch = EndedWatch(tables, self.run)

    def end_waiting(self) -> None:
        """Whoever waits for the end of a task is answered with the task as it stands."""
        self._ended_watch.stop()

    def close(self) -> None:
        """Ends the threads; waits for what they read now."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)

    def problem(self) -> str | None:
        """Why the tables cannot be read, or None. Reads them."""
        try:
            self._tables.positions()
        except StoreFault as fault:
            return str(fault)
        return None

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Does `work` in a thread. Raises RefusedRequest: gateway_busy, not_ready."""
        if self._closed:
            raise RefusedRequest(Refusal("not_ready", "the gateway is stopping", retry_after_ms=RETRY_MS))
        if self._waiting >= WAITING_MAX:
            text = f"{WAITING_MAX} reads wait already"
            raise RefusedRequest(Refusal("gateway_busy", text, retry_after_ms=RETRY_MS))
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except StoreMissing as fault:
            raise RefusedRequest(Refusal("not_ready", str(fault), retry_after_ms=RETRY_MS)) from None
        except StoreFault as fault:
            raise RefusedRequest(Refusal("not_ready", str(fault), retry_after_ms=5 * RETRY_MS)) from None
        finally:
            self._waiting -= 1

    # ---- positions ----

    async def reach(self, after: str | None) -> None:
        """Waits until the tables include the position `after`. Raises RefusedRequest: unknown_position, behind."""
        if after is None:
            return
        wanted = parse_position(after)
        if wanted is None:
            raise refuse("unknown_position", "this is not a position that Fleetlog gave", "/after")
        give_up = time.monotonic() + self._after_wait_s
        while (found := await self.run(self._tables.reached, wanted)) is None:
            if time.monotonic() >= give_up:
                raise RefusedRequest(await self.run(self._tables.behind, wanted))
            await asyncio.sleep(LOOK_EVERY_S)
        if isinstance(found, Refusal):
            raise RefusedRequest(found)

    async def offsets_of(self, text: str, partitions: list[int]) -> dict[int, int]:
        """From which offset of `events` on, per partition, somebody who has seen position `text` goes on."""
        wanted = parse_position(text)
        if wanted is None or wanted.log[:8] != self._log.log_id[:8]:
            raise refuse("unknown_position", "this position is not one of this log", "/Last-Event-ID")
        if wanted.sequences:
            await self.reach(text)
        return await self.run(self._offsets_of, wanted, partitions)

    def _offsets_of(self, wanted: Position, partitions: list[int]) -> dict[int, int]:
        offsets = dict(wanted.offsets)
        for pool, sequence in wanted.sequences.items():
            found = self._tables.offset_of(pool, sequence).value
            if found is None:
                raise refuse("unknown_position", f"pool {pool} has no event {sequence} in the tables", "/Last-Event-ID")
            offsets[partition_of(pool, self._log.partitions)] = found + 1
        starts = {}
        for partition in partitions:
            end = self._log.end(Topic.EVENTS, partition)
            start = offsets.get(partition, end)
            if not self._log.beginning(Topic.EVENTS, partition) <= start <= end:
                raise refuse("unknown_position", "this log does not reach that position", "/Last-Event-ID")
            starts[partition] = start
        return starts

    # ---- tasks ----

    async def card(self, pool: str, task: str) -> Mapping[str, Any] | None:
        """The card of a task, in log units."""
        found = await self.run(self._tables.task, pool, task)
        return found.value

    async def card_when_there(self, pool: str, task: str) -> Mapping[str, Any] | None:
        """The card of a task that was probably just submitted: waits a little for the tables."""
        give_up = time.monotonic() + self._after_wait_s
        while (found := await self.card(pool, task)) is None and time.monotonic() < give_up:
            await asyncio.sleep(LOOK_EVERY_S)
        return found

    async def task(self, pool: str, task: str) -> Resource | None:
        """A task as it stands."""
        return resource(await self.run(self._tables.task, pool, task))

    async def task_when_ended(self, pool: str, task: str, wait_s: float) -> Resource | None:
        """A task as it stands when it has ended, or after `wait_s`."""
        found: Answer[Any] = await self.run(self._tables.task, pool, task)
        if not has_ended(found):
            ended: Answer[Any] | None = await self._ended_watch.wait(pool, task, wait_s)
            found = await self.run(self._tables.task, pool, task) if ended is None else ended
        return resource(found)

    async def body(self, pool: str, task: str, which: str) -> tuple[Any, str]:
        """The payload or result of a task, and the position. Raises RefusedRequest: no_such_task."""
        work = self._tables.payload if which == "payload" else self._tables.result
        found = await self.run(work, pool, task)
        if found.value is None and (await self.run(self._tables.task, pool, task)).value is None:
            raise refuse("no_such_task", f"there is no task {task} in pool {pool}")
        return unpacked(found.value), str(found.position)

    async def checkpoint(self, pool: str, task: str, number: int) -> tuple[Any, str]:
        """The value of one checkpoint, and the position; waits a little for the tables."""
        give_up = time.monotonic() + self._after_wait_s
        while True:
            found = await self.run(self._tables.checkpoints, pool, task)
            for saved in found.value:
                if saved["number"] == number:
                    return unpacked(saved["checkpoint"]), str(found.position)
            newest = found.value[-1]["number"] if found.value else 0
            if newest >= number or time.monotonic() >= give_up:
                raise refuse("no_such_task", f"task {task} has no checkpoint {number} in the tables")
            await asyncio.sleep(LOOK_EVERY_S)

    async def history(
        self, pool: str, task: str, limit: int, cursor: str | None, *, with_bodies: bool
    ) -> tuple[list[bytes], str | None, str]:
        """A task's events as stored, the cursor of what follows, and the position."""
        listing, behind = f"history\n{pool}\n{task}", 0
        if cursor is not None:
            key = read_cursor(listing, cursor, (int,), now_ms())
            if isinstance(key, Refusal):
                raise RefusedRequest(key)
            behind = key[0]
        if behind < 0:
            raise refuse("bad_cursor", "this is not a cursor of this list")
        found = await self.run(self._tables.history, pool, task, behind, limit)
        values = [record.value for record in found.value]
        if not values and behind == 0:
            raise refuse("no_such_task", f"there is no task {task} in pool {pool}")
        full = len(values) == limit
        follows = make_cursor(listing, [from_json(values[-1])["sequence"]], now_ms()) if full else None
        return values if with_bodies else [without_bodies(v) for v in values], follows, str(found.position)

    # ---- lists ----

    async def tasks(
        self, principal: Principal, where: str, sort: str | None, limit: int, cursor: str | None, dead: bool = False
    ) -> Resource:
        """A page of tasks, or of dead letters; a submitter sees its own."""
        filtered = _filter(where, "task")
        if not principal.may("read"):
            filtered = filtered.adding("actor", principal.name)
        work = self._tables.dead_letters if dead else self._tables.tasks
        return page(await self.run(work, filtered, sort or "-submitted", limit, cursor, _pools(principal)))

    async def count(self, principal: Principal, where: str) -> Resource:
        """How many tasks match; `complete` is false where the counting ended early."""
        filtered = _filter(where, "task")
        if not principal.may("read"):
            filtered = filtered.adding("actor", principal.name)
        found = await self.run(self._tables.count, filtered, _pools(principal))
        if isinstance(found, Refusal):
            raise RefusedRequest(found)
        return {"count": found.value.count, "complete": found.value.complete, "position": str(found.position)}

    async def selecting(self, principal: Principal, filtered: Filter, cursor: str | None) -> Page[Any]:
        """The next tasks that match, oldest first, as cards. Raises RefusedRequest."""
        found = await self.run(self._tables.tasks, filtered, "submitted", SELECTED_AT_ONCE, cursor, _pools(principal))
        if isinstance(found, Refusal):
            raise RefusedRequest(found)
        return found

    async def robots(self, principal: Principal, where: str, limit: int, cursor: str | None) -> Resource:
        """A page of robots."""
        filtered = _filter(where, "robot")
        return page(await self.run(self._tables.robots, filtered, limit, cursor, _pools(principal)))

    async def robot_card(self, pool: str, robot: str) -> Mapping[str, Any] | None:
        """The card of a robot, in log units."""
        return (await self.run(self._tables.robot, pool, robot)).value

    async def robot(self, pool: str, robot: str) -> Resource | None:
        """One robot."""
        return resource(await self.run(self._tables.robot, pool, robot))

    async def targets(self, pool: str, limit: int, cursor: str | None) -> Resource:
        """A page of targets."""
        return page(await self.run(self._tables.targets, pool, limit, cursor))

    async def target(self, pool: str, target: str) -> Resource | None:
        """One target."""
        return resource(await self.run(self._tables.target, pool, target))

    async def limits(self, pool: str) -> Resource:
        """All limits of a pool."""
        found = await self.run(self._tables.limits, pool)
        items = [to_http(limit) for limit in found.value]
        return {"items": items, "next": None, "position": str(found.position)}

    # ---- schedules ----

    async def schedules(self, pool: str, limit: int, cursor: str | None, *, with_bodies: bool) -> Resource:
        """A page of schedules, each with its next firing."""
        found = await self.run(self._tables.schedules, pool, limit, cursor)
        if isinstance(found, Refusal):
            raise RefusedRequest(found)
        items = await self.run(lambda: [schedule_resource(card, now_ms(), with_bodies) for card in found.items])
        return {"items": items, "next": found.next, "position": str(found.position)}

    async def schedule(self, pool: str, schedule: str, *, with_bodies: bool) -> Resource:
        """One schedule. Raises RefusedRequest: no_such_schedule."""
        card, position = await self._schedule(pool, schedule)
        shown = await self.run(schedule_resource, card, now_ms(), with_bodies)
        return shown | {"position": position}

    async def next_firings(self, pool: str, schedule: str, count: int, after: int | None) -> Resource:
        """The next `count` instants of a schedule, later than `after`. Raises RefusedRequest: no_such_schedule."""
        card, position = await self._schedule(pool, schedule)
        items = await self.run(next_firings, card, now_ms() if after is None else after, count)
        zone = {"zone": card["zone"]} if "zone" in card else {}
        return {"items": items, **zone, "paused": "paused" in card, "next": None, "position": position}

    async def _schedule(self, pool: str, schedule: str) -> tuple[Any, str]:
        found = await self.run(self._tables.schedule, pool, schedule)
        if found.value is None:
            raise refuse("no_such_schedule", f"there is no schedule {schedule} in pool {pool}")
        return found.value, str(found.position)

    # ---- pools ----

    async def pools(self, principal: Principal, limit: int, cursor: str | None) -> Resource:
        """A page of pools, by name, without the figures of each kind."""
        behind = ""
        if cursor is not None:
            key = read_cursor("pools", cursor, (str,), now_ms())
            if isinstance(key, Refusal):
                raise RefusedRequest(key)
            behind = key[0]
        found = await self.run(self._tables.pools, _pools(principal))
        names = [overview for overview in found.value if overview["progress"]["pool"] > behind]
        items = [pool_resource(overview, with_kinds=False) for overview in names[:limit]]
        follows = make_cursor("pools", [items[-1]["pool"]], now_ms()) if len(names) > limit else None
        return {"items": items, "next": follows, "position": str(found.position)}

    async def pool(self, pool: str) -> Resource | None:
        """One pool with settings, figures and limits."""
        found = await self.run(self._tables.pool, pool)
        if found.value is None:
            return None
        return pool_resource(found.value, with_kinds=True) | {"position": str(found.position)}

    async def stats(self, pool: str, start: int, end: int, step_ms: int) -> Answer[Any]:
        """Figures of a pool over a time (ms since 1970), as the tables give them."""
        return await self.run(self._tables.stats, pool, start, end, step_ms)

    async def pool_refusal(self, pool: str) -> Refusal | None:
        """Why nothing can begin in `pool`: it does not exist. Waits a little for the tables."""
        give_up = time.monotonic() + POOL_WAIT_S
        try:
            while (await self.run(self._tables.pool, pool)).value is None:
                if time.monotonic() >= give_up:
                    return Refusal("no_such_pool", f"there is no pool {pool}")
                await asyncio.sleep(4 * LOOK_EVERY_S)
        except RefusedRequest as refused:
            return refused.refusal
        return None

    # ---- events ----

    def event_view(
        self, principal: Principal, where: str, types: str | None, from_ms: int | None, to_ms: int | None
    ) -> EventView:
        """What a reader of events sees, and in which partitions it lies. Raises RefusedRequest."""
        filtered = _filter(where, "event")
        named = frozenset(filter(None, (name.strip().partition(".")[0] for name in (types or "").split(","))))
        for name in named - _TYPE_NAMES:
            near = get_close_matches(name, _TYPE_NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise refuse("invalid_field", f"there is no event type {name[:100]!r}{hint}", "/types")
        only = filtered.only("pool")
        count = self._log.partitions
        partitions = list(range(count)) if only is None else [partition_of(only, count)]
        return EventView(principal, partitions, filtered, named, from_ms, to_ms)


# ---- shapes ----


def resource(answer: Answer[Any]) -> Resource | None:
    """A card in HTTP units with its position."""
    return None if answer.value is None else to_http(answer.value) | {"position": str(answer.position)}


def page(found: Page[Any] | Refusal) -> Resource:
    """A page in HTTP units. Raises RefusedRequest."""
    if isinstance(found, Refusal):
        raise RefusedRequest(found)
    return {"items": [to_http(card) for card in found.items], "next": found.next, "position": str(found.position)}


def pool_resource(overview: Any, *, with_kinds: bool) -> Resource:
    """A pool: its card, and what waits and runs in it."""
    shown = to_http(overview["card"])
    shown |= {name: overview[name] for name in ("tasks", "robots")}
    shown["sequence"] = overview["progress"]["sequence"]
    if "oldest_waiting_at" in overview:
        shown |= to_http({"oldest_waiting_at": overview["oldest_waiting_at"]})
    if with_kinds:
        shown["kinds"] = [to_http(kind) for kind in overview["kinds"]]
        shown["limits"] = [to_http(limit) for limit in overview["limits"]]
    return shown


def unpacked(body: Any) -> Any:
    """The JSON of a body; a sealed one as it is."""
    return body["json"] if isinstance(body, dict) and "json" in body else body


def _filter(where: str, subject: Subject) -> Filter:
    found = parse_filter(where, subject)
    if isinstance(found, Refusal):
        raise RefusedRequest(found)
    return found


def _pools(principal: Principal) -> SeenPools | None:
    return None if principal.everywhere else SeenPools(principal)
