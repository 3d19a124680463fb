"""Client and AsyncClient against the whole product: each test plays both."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from robot_gateway.sdk import AsyncClient, Client, Fatal, Robot, TaskContext, errors
from robot_gateway.sdk.client import soon
from robot_gateway.sdk.resources import task_body
from tests.support.fleet import CEILING_S, Fleet, until
from tests.support.site import Site

BOUND_S = 20
"""Far above what is asked for, far below what a client asks again for."""


class Awaited:
    """An object whose coroutines are run to their end when called, and whose async generators become iterators."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            answer = found(*given, **named)
            if inspect.isasyncgen(answer):
                return self._iterate(answer)
            return self._wrap(self._runner.run(answer) if inspect.iscoroutine(answer) else answer)

        return call

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(items))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(items.aclose())  # type: ignore[attr-defined]

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrap(item) for item in value]
        return Awaited(value, self._runner) if type(value).__name__ == "AsyncTaskHandle" else value


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, fleet: Fleet, pool: str) -> Iterator[Any]:
    """Client, or AsyncClient behind a face that awaits."""
    if request.param == "sync":
        with fleet.client(pool) as made:
            yield made
        return
    with asyncio.Runner() as runner:
        made_async = AsyncClient(fleet.url, pool=pool)
        yield Awaited(made_async, runner)
        runner.run(made_async.close())


@pytest.fixture
def robot(fleet: Fleet, pool: str) -> Iterator[Robot]:
    """A robot that echoes, fails as asked, or waits."""
    robot = Robot("r1", pool=pool, gateway=fleet.url, slots=8)

    @robot.task("echo")
    def echo(ctx: TaskContext, payload: Any) -> Any:
        return payload

    @robot.task("fail")
    def fail(ctx: TaskContext, payload: str) -> None:
        raise Fatal(payload)

    @robot.task("slow")
    def slow(ctx: TaskContext, payload: Any) -> None:
        ctx.cancelled_event.wait(CEILING_S)
        raise ctx.Stopped

    with robot:
        yield robot


# ---- submit ----


@pytest.mark.parametrize("payload", [None, {"a": [None, "é"]}, "text", 0, []])
def test_submit_and_result(client: Any, robot: Robot, payload: Any) -> None:
    """The handle's result is what the handler returned."""
    handle = client.submit("echo", payload)
    assert handle.submitted.state == "WAITING"
    assert handle.result(CEILING_S) == payload
    assert handle.task().state == "COMPLETED"


def test_what_was_submitted_can_be_read_at_once(client: Any) -> None:
    """Reads include what this client did before: no `no_such_task` after an accepted submission."""
    for _ in range(20):
        handle = client.submit("echo")
        assert client.task(handle.id).state == "WAITING"
        assert handle.cancel("not needed").state == "CANCELLED"
        assert client.task(handle.id).state == "CANCELLED"


def test_all_options_arrive(client: Any) -> None:
    """Each option of a submission stands in the task."""
    later = soon(3600)
    handle = client.submit(
        "echo",
        {"x": 1},
        id="seam-7",
        requirement=["gpu", "gpu_mem>=24"],
        prefer=["fast"],
        slot_cost=2,
        target="dock-7",
        priority=7,
        not_before=later,
        deadlines={"end": {"at": datetime(2099, 1, 1, tzinfo=UTC), "then": "cancel"}, "run": {"s": 60, "then": "dead"}},
        lease_s=20,
        accept_s=2,
        retry={"failures_max": 5, "first_s": 2, "factor": 3, "max_s": 60},
        lost_max=2,
        on_lost="never",
        passing="all",
        late="record",
        labels={"line": "3"},
    )
    raw = handle.task().raw
    assert handle.id == "seam-7"
    assert (raw["requirement"], raw["prefer"], raw["slot_cost"]) == (["gpu", "gpu_mem>=24"], ["fast"], 2)
    assert (raw["target"], raw["priority"], raw["labels"]) == ("dock-7", 7, {"line": "3"})
    assert raw["not_before"][:16] == later.isoformat()[:16]
    assert raw["deadlines"]["end"]["then"] == "cancel"
    assert raw["deadlines"]["run"] == {"s": 60, "then": "dead"}
    assert (raw["lease_s"], raw["accept_s"], raw["lost_max"]) == (20, 2, 2)
    assert raw["retry"] == {"failures_max": 5, "first_s": 2, "factor": 3, "max_s": 60}
    assert (raw["on_lost"], raw["pass"], raw["late_policy"]) == ({"policy": "never"}, "all", "record")


def test_bodies_of_submissions() -> None:
    """`wait_s` belongs to on_lost; None is left out; datetimes become RFC 3339 in UTC."""
    at = datetime(2026, 11, 30, 9, 15, tzinfo=UTC)
    body = task_body({"kind": "k", "payload": None, "on_lost": "wait", "wait_s": 5, "not_before": at, "passing": "all"})
    assert body == {
        "kind": "k",
        "on_lost": {"policy": "wait", "wait_s": 5},
        "not_before": "2026-11-30T09:15:00+00:00",
        "pass": "all",
    }


def test_the_same_submission_twice_is_one_task(client: Any) -> None:
    """By task id or by command id; with other content it is refused."""
    first = client.submit("echo", 1, id="a")
    again = client.submit("echo", 1, id="a")
    assert (first.id, again.submitted.changed) == (again.id, False)
    with pytest.raises(errors.IdConflict):
        client.submit("echo", 2, id="a")
    command = str(uuid.uuid4())
    assert client.submit("echo", 3, command_id=command).id == client.submit("echo", 3, command_id=command).id
    with pytest.raises(errors.CommandIdConflict):
        client.submit("echo", 4, command_id=command)


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        ({"kind": "no spaces"}, errors.InvalidField, "/kind"),
        ({"priority": 10}, errors.InvalidField, "/priority"),
        ({"colour": "red"}, errors.UnknownField, "/colour"),
        ({"lease_s": 2}, errors.LeaseTooShort, None),
        ({"payload": "x" * 300_000}, errors.TooLarge, None),
    ],
)
def test_refusals_are_errors_with_reason_and_field(client: Any, options: Any, error: Any, field: str | None) -> None:
    """One class per reason; not sent again."""
    with pytest.raises(error) as raised:
        client.submit(**({"kind": "echo"} | options))
    assert raised.value.reason == error.reason
    assert not raised.value.retryable
    if field is not None:
        assert raised.value.field == field


def test_many(client: Any, robot: Robot) -> None:
    """1,100 in two requests, in order; one that is refused has its error, the others their results."""
    client.submit("echo", "other content", id="taken")
    submissions = [{"kind": "echo", "payload": n} for n in range(1100)]
    submissions[1050]["id"] = "taken"
    handles = client.submit_many(submissions)
    assert len(handles) == 1100
    assert handles[1050].error.reason == "id_conflict"
    with pytest.raises(errors.IdConflict):
        handles[1050].result(CEILING_S)
    assert [handles[n].result(CEILING_S) for n in (0, 999, 1000, 1099)] == [0, 999, 1000, 1099]


def test_many_again_under_the_same_command_id(client: Any) -> None:
    """A program that crashed in the middle says all of it again: the same tasks; progress is told by the request."""
    command, told = str(uuid.uuid4()), list[int]()
    submissions = [{"kind": "nobody", "payload": n} for n in range(1100)]
    first = client.submit_many(submissions[:1000], command_id=command)
    whole = client.submit_many(submissions, command_id=command, progress=told.append)
    other = client.submit_many(submissions[:2], command_id=str(uuid.uuid4()))

    assert told == [1000, 1100]
    assert [handle.id for handle in whole[:1000]] == [handle.id for handle in first]
    assert len({handle.id for handle in [*whole, *other]}) == 1102
    client.task(other[-1].id)
    assert len(list(client.tasks(f"kind=nobody pool={client.pool}"))) == 1102


def test_all_or_none(client: Any) -> None:
    """One conflict, and none of them is there."""
    client.submit("echo", "other content", id="taken")
    with pytest.raises(errors.IdConflict):
        client.submit_many([{"kind": "echo", "id": "free"}, {"kind": "echo", "id": "taken"}], all_or_none=True)
    with pytest.raises(errors.NoSuchTask):
        client.task("free")


def test_map(client: Any, robot: Robot) -> None:
    """Results in the order of the payloads, whatever order they came in; the first failure is raised in its place."""
    assert list(client.map("echo", range(30), timeout_s=CEILING_S)) == list(range(30))
    results = client.map("fail", ["so"], timeout_s=CEILING_S)
    with pytest.raises(errors.TaskDead, match="Fatal: so"):
        next(iter(results))


# ---- ends ----


def test_a_dead_letter(client: Any, robot: Robot) -> None:
    """TaskDead with why; redrive, discard, resolve."""
    handle = client.submit("fail", "so")
    with pytest.raises(errors.TaskDead, match=r"dead letter \(fatal\): Fatal: so") as dead:
        handle.result(CEILING_S)
    assert (dead.value.reason, dead.value.task.id) == ("fatal", handle.id)
    assert client.redrive(handle.id, reason="try again", changed={"priority": 3}).state in ("WAITING", "ASSIGNED")
    assert handle.wait(CEILING_S).raw["priority"] == 3
    assert client.discard(handle.id, reason="hopeless").state == "DISCARDED"
    with pytest.raises(errors.TaskDiscarded, match="hopeless"):
        handle.result(CEILING_S)
    with pytest.raises(errors.WrongState):
        client.redrive(handle.id)
    other = client.submit("fail", "so")
    other.wait(CEILING_S)
    assert client.resolve(other.id, reason="by hand", result={"ok": 1}).state == "COMPLETED"
    assert other.result(CEILING_S) == {"ok": 1}


def test_a_cancelled_task(client: Any, robot: Robot) -> None:
    """TaskCancelled; the running handler was told."""
    handle = client.submit("slow")
    until(lambda: handle.task().state == "RUNNING", "the start")
    handle.cancel("no longer wanted")
    with pytest.raises(errors.TaskCancelled):
        handle.result(CEILING_S)


def test_release(client: Any, robot: Robot) -> None:
    """The lease ends, the robot is told, the task goes on with the next attempt."""
    handle = client.submit("slow")
    until(lambda: handle.task().state == "RUNNING", "the start")
    client.release(handle.id, reason="stuck")
    until(lambda: handle.task().attempt == 2, "the next attempt")


def test_waiting_is_bounded(client: Any) -> None:
    """WaitTimeout: retryable, nothing lost."""
    handle = client.submit("echo")
    with pytest.raises(errors.WaitTimeout, match=r"is WAITING after 0\.2 s") as late:
        handle.result(0.2)
    assert late.value.retryable


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_waiting_is_bounded_where_nothing_can_be_read(kind: Any) -> None:
    """Tables that are behind, or nobody who answers: the time is over when it is over, and why is said."""
    with asyncio.Runner() as runner, Site(after_wait_s=0.1) as site:
        made = kind(site.url, pool="hall-a")
        client: Any = made if kind is Client else Awaited(made, runner)
        site.stop_projector()
        handle = client.submit("echo")
        began = time.monotonic()
        with pytest.raises(errors.WaitTimeout, match="the tables have reached"):
            handle.result(1.0)
        assert time.monotonic() - began < BOUND_S
        client.close()


# ---- look ----


def test_looking(client: Any, robot: Robot) -> None:
    """task, tasks, why, history."""
    handle = client.submit("echo", 1, labels={"line": "3"})
    handle.result(CEILING_S)
    assert "COMPLETED" in client.why(handle.id)["text"]
    types = [event["type"] for event in client.history(handle.id)]
    assert types == ["TaskSubmitted.v1", "TaskAssigned.v1", "LeaseStarted.v1", "TaskCompleted.v1"]
    with pytest.raises(errors.NoSuchTask):
        client.task("nobody-knows-it")
    with pytest.raises(errors.BadFilter):
        list(client.tasks("colour is red"))
    client.submit_many([{"kind": "wait-here"}] * 12)
    where = f"pool={client.pool} kind=wait-here"
    until(lambda: len(list(client.tasks(where))) == 12, "twelve tasks")
    assert len(list(client.tasks(where, limit=5))) == 5


def test_the_stream_goes_on_where_it_broke_off(client: Any, robot: Robot) -> None:
    """Without a gap or a repeat: events of one pool, in two parts, in order."""
    first = client.submit("echo", 1)
    first.result(CEILING_S)
    start = first.task().position
    client.submit_many([{"kind": "echo", "payload": n} for n in range(20)])
    where = f"pool={client.pool}"
    part = list(itertools.islice(client.stream(where, types=["TaskSubmitted"], after=start), 7))
    rest = list(itertools.islice(client.stream(where, types=["TaskSubmitted"], after=part[-1].position), 13))
    assert [event.type for event in part + rest] == ["TaskSubmitted.v1"] * 20
    sequences = [event.data["sequence"] for event in part + rest]
    assert sequences == sorted(set(sequences))
    with pytest.raises(errors.UnknownPosition):
        next(client.stream(where, after="nonsense"))


def test_a_live_stream_sees_what_happens_next(fleet: Fleet, pool: str, robot: Robot) -> None:
    """Without `after` it begins now."""
    with fleet.client(pool) as client:
        seen: list[str] = []
        ready = threading.Event()

        def watch() -> None:
            for event in client.stream(f"pool={pool}", types=["TaskCompleted"]):
                seen.append(event.data["task"])
                ready.set()
                return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        submitted: list[str] = []
        while not ready.wait(0.2):
            submitted.append(client.submit("echo").id)
        thread.join(CEILING_S)
        assert seen[0] in submitted


def test_the_client_closes(fleet: Fleet) -> None:
    """As a context manager, or by hand."""
    with closing(Client(fleet.url)) as client:
        client.submit("echo")

    async def play() -> None:
        async with AsyncClient(fleet.url) as other:
            await other.submit("echo")

    asyncio.run(play())
