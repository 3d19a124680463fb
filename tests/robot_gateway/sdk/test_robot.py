"""The robot as its programmer sees it: what is refused at once, contexts, what it says about itself, connections."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commands.messages import Assign
from robot_gateway.conformance.fake_gateway import FakeGateway
from robot_gateway.sdk import AsyncTaskContext, FleetlogError, Reject, Robot, TaskContext, errors
from tests.support.fleet import CEILING_S, until

Make = Callable[..., Robot]


@pytest.fixture
def make(gateway: FakeGateway) -> Iterator[Make]:
    """Makes robots of that gateway, ended after the test without words."""
    robots: list[Robot] = []

    def build(**options: Any) -> Robot:
        robots.append(Robot("r1", gateway=gateway.url, **options))
        return robots[-1]

    yield build
    for robot in robots:
        if robot._engine is not None:
            robot._engine.finish(None)
            robot.stop(0)


# ---- what is refused at once ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"robot": "no spaces"}, "cannot be the id of a robot"),
        ({"robot": "r" * 129}, "cannot be the id of a robot"),
        ({"pool": "_log-1"}, "cannot be the id of a pool"),
        ({"slots": 0}, "from 1 to 1024"),
        ({"slots": 1025}, "from 1 to 1024"),
        ({"capabilities": ["gpu", "gpu_mem>=24"]}, "'gpu_mem>=24' cannot be a capability: write a name or name=value"),
        ({"capabilities": [""]}, "'' cannot be a capability"),
        ({"gateway": "127.0.0.1:8780"}, "write http://HOST:PORT"),
    ],
)
def test_what_cannot_be_right(options: dict[str, Any], said: str) -> None:
    """ValueError with a sentence, before anything is connected."""
    with pytest.raises(ValueError, match=said):
        Robot(**({"robot": "r1"} | options))


def test_handlers_that_cannot_be_right(make: Make) -> None:
    """Kinds are names and unique; async belongs to async; a robot without handlers does not start."""
    robot = make()
    with pytest.raises(ValueError, match="no handlers"):
        robot.start()
    robot.task("weld")(lambda ctx, payload: None)
    for wrong, said in (("weld", "already"), ("no spaces", "cannot be a kind"), ("k" * 65, "cannot be a kind")):
        with pytest.raises(ValueError, match=said):
            robot.task(wrong)(lambda ctx, payload: None)
    with pytest.raises(ValueError, match="belong together"):
        robot.task("paint", run_in="async")(lambda ctx, payload: None)

    async def paint(ctx: AsyncTaskContext, payload: Any) -> None:
        """Not for a thread."""

    with pytest.raises(ValueError, match="belong together"):
        robot.task("paint")(paint)
    robot.start()
    with pytest.raises(ValueError, match="before the robot starts"):
        robot.task("late")(lambda ctx, payload: None)
    with pytest.raises(RuntimeError, match="started already"):
        robot.start()


def test_a_decorated_handler_stays_a_function(make: Make) -> None:
    """So that it can be tested by itself."""
    robot = make()

    @robot.task("double")
    def double(ctx: TaskContext | None, payload: int) -> int:
        return 2 * payload

    assert double(None, 4) == 8


def test_the_token_goes_with_the_handshake(gateway: FakeGateway, make: Make) -> None:
    """Authorization: Bearer."""
    robot = make(token="secret", pool="hall-a", capabilities=["gpu", "gpu_mem=24"], slots=3)
    robot.task("work")(lambda ctx, payload: None)
    robot.start()
    session = gateway.session()
    assert session.headers["Authorization"] == "Bearer secret"
    assert (session.pool, session.hello["slots"]) == ("hall-a", 3)
    assert session.hello["capabilities"] == ["gpu", "gpu_mem=24", "kind:work"]


# ---- contexts ----


def test_what_a_context_knows(gateway: FakeGateway, make: Make) -> None:
    """Everything of the assignment."""
    robot, seen = make(), list[TaskContext]()
    robot.task("work")(lambda ctx, payload: seen.append(ctx))
    robot.start()
    session = gateway.session()
    session.ready()
    session.start(
        "t1",
        4,
        target="dock-7",
        labels={"line": "3"},
        failures=1,
        lost=2,
        run_within_ms=90_000,
        traceparent="00-a-b-01",
        checkpoint={"number": 3, "value": {"x": 1}},
    )
    session.ack(session.expect("complete"))
    [ctx] = seen
    assert (ctx.task, ctx.attempt, ctx.kind, ctx.idempotency_key) == ("t1", 4, "work", "key-t1")
    assert (ctx.target, ctx.labels, ctx.slot_cost, ctx.failures, ctx.lost) == ("dock-7", {"line": "3"}, 1, 1, 2)
    assert (ctx.lease_s, ctx.run_within_s, ctx.traceparent) == (15.0, 90.0, "00-a-b-01")
    assert (ctx.last_checkpoint, ctx.checkpoint_number) == ({"x": 1}, 3)
    assert (ctx.cancelled, ctx.stop_reason) == (False, None)


def test_checkpoints_of_threads(gateway: FakeGateway, make: Make) -> None:
    """They return when acknowledged; a refusal of their content is an error of that class; NaN and size as well."""
    robot, seen = make(), list[Any]()

    @robot.task("work")
    def work(ctx: TaskContext, payload: Any) -> None:
        ctx.checkpoint({"step": 1})
        seen.append((ctx.checkpoint_number, ctx.last_checkpoint))
        for value in (float("nan"), "x" * 300_000, {"step": 2}):
            try:
                ctx.checkpoint(value)
            except (FleetlogError, ValueError) as problem:
                seen.append(type(problem).__name__)

    robot.start()
    session = gateway.session()
    session.ready()
    session.start()
    first = session.expect("checkpoint", number=1, value={"step": 1})
    assert seen == []
    session.ack(first)
    session.refuse(session.expect("checkpoint", number=2, value={"step": 2}), "quarantined")
    session.ack(session.expect("complete"))
    assert seen == [(1, {"step": 1}), "NotJson", "TooLarge", "Quarantined"]


@pytest.mark.parametrize("by", ["stop", "refused", "before"])
def test_a_checkpoint_does_not_outlive_its_lease(gateway: FakeGateway, make: Make, by: str) -> None:
    """A stop, or a refusal that says so, ends the wait with Stopped; after a stop no checkpoint is sent at all."""
    robot, go = make(), threading.Event()

    @robot.task("work")
    def work(ctx: TaskContext, payload: Any) -> None:
        if by == "before":
            ctx.cancelled_event.wait(CEILING_S)
        ctx.checkpoint(1)
        go.set()

    robot.start()
    session = gateway.session()
    session.ready()
    session.start()
    checkpoint = session.expect("checkpoint") if by != "before" else {}
    if by == "refused":
        session.send({"type": "cancel", "task": "t1", "attempt": 1})
        session.refuse(checkpoint, "not_current")
    else:
        session.send({"type": "stop", "task": "t1", "attempt": 1, "reason": "expired"})
    session.ack(session.expect("stopped", why="cancel" if by == "refused" else "stop"))
    assert not go.is_set()


def test_async_handlers(gateway: FakeGateway, make: Make) -> None:
    """Many at once in one loop; checkpoints are awaited; a stop cancels the asyncio task, `finally` runs."""
    robot, cleaned = make(slots=50), threading.Event()

    @robot.task("work", run_in="async")
    async def work(ctx: AsyncTaskContext, payload: dict[str, int]) -> int:
        try:
            await ctx.checkpoint({"n": payload["n"]})
            await asyncio.sleep(payload["ms"] / 1000)
            return payload["n"]
        finally:
            if payload["ms"] > 1000:
                cleaned.set()

    robot.start()
    session = gateway.session()
    session.ready()
    for n in range(50):
        session.assign(f"t{n}", payload={"n": n, "ms": 600_000 if n == 7 else 300})
    done = set[int]()
    while len(done) < 49:
        message = session.expect_any()
        session.ack(message)
        if message["type"] == "complete":
            done.add(message["result"])
    assert done == set(range(50)) - {7}
    session.send({"type": "stop", "task": "t7", "attempt": 1, "reason": "released"})
    session.ack(session.expect("stopped", task="t7"))
    assert cleaned.is_set()


@pytest.mark.parametrize("percent", [-1, 101])
def test_progress_is_a_percentage(gateway: FakeGateway, make: Make, percent: int) -> None:
    """ValueError in the handler; notes are cut to 200 characters."""
    robot = make()

    @robot.task("work")
    def work(ctx: TaskContext, payload: Any) -> None:
        ctx.progress(100, "n" * 300)
        ctx.progress(percent)

    robot.start()
    session = gateway.session()
    session.ready()
    session.start()
    fail = session.expect("fail")
    assert fail["error"]["type"] == "ValueError"
    beat = session.expect_beat(lambda beat: bool(beat["holding"]))
    assert (beat["holding"][0]["progress"], len(beat["holding"][0]["note"])) == (100, 200)


def test_bodies_that_come_as_addresses(gateway: FakeGateway, make: Make) -> None:
    """They are fetched from the same gateway, before the handler starts; from nowhere else."""
    robot = make()
    robot.task("work")(lambda ctx, payload: [payload, ctx.last_checkpoint])
    robot.start()
    session = gateway.session()
    session.ready()
    gateway.bodies |= {"/v1/payload": b'{"big": 1}', "/v1/checkpoint": b"[2]"}
    session.start(payload=None, payload_url="/v1/payload", checkpoint={"number": 1, "url": "/v1/checkpoint"})
    complete = session.expect("complete")
    assert complete["result"] == [{"big": 1}, [2]]
    session.ack(complete)
    for task, url in (("t2", "http://127.0.0.1:9/elsewhere"), ("t3", "/v1/nothing")):
        session.start(task, payload=None, payload_url=url)
        fail = session.expect("fail")
        assert (fail["class"], fail["error"]["type"]) == ("retryable", "BodyNotFetched")
        session.ack(fail)


# ---- what a check says before ----


def test_a_check_rejects_what_this_robot_must_not_take(gateway: FakeGateway, make: Make) -> None:
    """With its reason and text; what it lets through is accepted; a check that fails rejects as well."""
    robot = make(slots=2)

    def is_safe(assign: Assign) -> None:
        if assign.payload["amperes"] > 200:
            robot.fault("asked for too much", "E1")
            raise Reject("unsafe", "up to 200 A" + "!" * 300)

    robot.task("work", check=is_safe)(lambda ctx, payload: payload["amperes"])
    robot.start()
    session = gateway.session()
    session.ready()
    session.assign("t1", payload={"amperes": 300})
    rejected = session.expect_of("reject", "fault")
    for message in rejected:
        session.ack(message)
    by_type = {message["type"]: message for message in rejected}
    assert (by_type["reject"]["reason"], by_type["reject"]["text"]) == ("unsafe", ("up to 200 A" + "!" * 300)[:200])
    assert by_type["fault"]["code"] == "E1"

    session.assign("t2", payload={})
    failed = session.expect("reject")
    assert (failed["reason"], failed["text"]) == ("other", "KeyError: 'amperes'")
    session.ack(failed)

    session.start("t3", payload={"amperes": 100})
    complete = session.expect("complete")
    assert complete["result"] == 100
    session.ack(complete)


def test_a_reason_that_no_robot_rejects_for_is_refused() -> None:
    """The program learns it where it raises."""
    with pytest.raises(ValueError, match="busy, cannot, unsafe, too_large, other, not for 'tired'"):
        Reject("tired")  # type: ignore[arg-type]


# ---- what a robot says about itself ----


def test_fault_recovered_update_ready(gateway: FakeGateway, make: Make) -> None:
    """Each is said at once, and everything anew in the next hello."""
    robot = make(slots=2)
    robot.task("work")(lambda ctx, payload: None)
    with pytest.raises(RuntimeError, match="not been started"):
        robot.fault("x")
    robot.start()
    session = gateway.session()
    session.ready()
    robot.fault("no gas", "E7")
    session.ack(session.expect("fault", text="no gas", code="E7"))
    robot.ready(1)
    session.ack(session.expect("ready", n=1))
    robot.update(slots=3, capabilities=["gpu"])
    for message in session.expect_of("update", "ready"):
        session.ack(message)
    with pytest.raises(ValueError, match="from 0 to the slots"):
        robot.ready(4)
    session.cut()
    again = gateway.session()
    assert again.hello["fault"] == {"text": "no gas", "code": "E7"}
    assert (again.hello["slots"], again.hello["capabilities"]) == (3, ["gpu", "kind:work"])
    again.welcome(draining=True)
    assert again.expect("ready")["n"] == 3
    assert robot.draining
    robot.recovered()
    again.ack(again.expect("recovered"))


def test_what_is_said_while_disconnected_is_said_in_hello(gateway: FakeGateway, make: Make) -> None:
    """Nothing of it is lost, nothing is said twice."""
    robot = make()
    robot.task("work")(lambda ctx, payload: None)
    gateway.refusals += [(503, {"reason": "not_ready", "detail": "wait"}, {"Retry-After": "1"})]
    robot.start()
    robot.fault("cold")
    robot.update(slots=5)
    session = gateway.session()
    assert (session.hello["slots"], session.hello["fault"]["text"]) == (5, "cold")
    session.welcome()
    session.expect("ready", n=5)


# ---- connections ----


def test_a_silent_gateway_is_left(gateway: FakeGateway, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes any more, no pong either: the robot connects again."""
    monkeypatch.setattr("robot_gateway.sdk.session.PONG_WITHIN_S", 0.0)
    robot = make()
    robot.task("work")(lambda ctx, payload: None)
    robot.start()
    session = gateway.session()
    session.welcome(heartbeat_every_ms=100)
    with session._lock:  # type: ignore[attr-defined]
        gateway.session()


def test_a_gateway_that_is_not_there_yet(make: Make) -> None:
    """Connection refused: again and again, until it is there; the handlers are not disturbed."""
    robot = Robot("r1", gateway="http://127.0.0.1:9")
    robot.task("work")(lambda ctx, payload: None)
    robot.start()
    assert not robot.wait_until_welcome(0.5)
    assert robot.epoch is None
    robot.stop(0)


def test_the_end_is_an_error_with_a_reason(gateway: FakeGateway, make: Make) -> None:
    """stop() and run() raise what the gateway said."""
    robot = make()
    robot.task("work")(lambda ctx, payload: None)
    robot.start()
    session = gateway.session()
    session.ready()
    assert robot.wait_until_welcome(CEILING_S)
    session.close(4002, "two of you")
    engine = robot._engine
    assert engine is not None
    assert engine.ended.wait(CEILING_S)
    with pytest.raises(errors.TwoPrograms, match="two of you"):
        robot.stop(0)


def test_f09_heartbeats_go_on_while_a_handler_computes(gateway: FakeGateway, make: Make) -> None:
    """They have a thread of their own: a handler in a thread that never waits for anything does not stop them, and they
    name its attempt."""
    robot, enough = make(), threading.Event()

    @robot.task("work")
    def compute(ctx: TaskContext, payload: Any) -> int:
        rounds = 0
        while not enough.is_set():
            rounds += sum(range(1_000)) % 7
        return rounds

    robot.start()
    session = gateway.session()
    session.welcome(heartbeat_every_ms=100)
    session.ack(session.expect("ready"))
    session.start()
    beats = {session.expect_named(("t1", 1))["id"] for _ in range(5)}
    assert len(beats) == 5
    enough.set()
    session.ack(session.expect("complete"))


def test_run_outside_of_the_main_thread(gateway: FakeGateway, make: Make) -> None:
    """No signals are touched; the gateway's word ends it."""
    robot, raised = make(), list[FleetlogError]()
    robot.task("work")(lambda ctx, payload: None)

    def run() -> None:
        try:
            robot.run()
        except FleetlogError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    session = gateway.session()
    session.ready()
    session.send({"type": "superseded", "reason": "newer"})
    session.close(4001)
    thread.join(CEILING_S)
    assert [error.reason for error in raised] == ["superseded"]


def test_a_burst_is_worked_off_with_all_slots(gateway: FakeGateway, make: Make) -> None:
    """256 slots, 2,000 tasks, never more than the slots at once, each done once."""
    robot, lock = make(slots=256), threading.Lock()
    at_once, worst, done = 0, 0, set[str]()

    @robot.task("work")
    def work(ctx: TaskContext, payload: Any) -> str:
        nonlocal at_once, worst
        with lock:
            at_once += 1
            worst = max(worst, at_once)
        time.sleep(0.001)
        with lock:
            at_once -= 1
        return ctx.task

    robot.start()
    session = gateway.session()
    session.ready()
    given = 256
    for n in range(given):
        session.assign(f"t{n}")
    while len(done) < 2000:
        message = session.expect_any()
        session.ack(message)
        if message["type"] == "complete":
            assert message["result"] == message["task"] not in done
            done.add(message["task"])
            if given < 2000:
                session.assign(f"t{given}")
                given += 1
    assert 1 < worst <= 256


def test_messages_fit_the_wire(gateway: FakeGateway, make: Make) -> None:
    """The largest result and a checkpoint of that size arrive in one frame each."""
    robot = make()

    @robot.task("work")
    def work(ctx: TaskContext, payload: Any) -> str:
        ctx.checkpoint("c" * 262_142)
        return "r" * 262_142

    robot.start()
    session = gateway.session()
    session.ready()
    session.start()
    checkpoint = session.expect("checkpoint")
    assert len(json.dumps(checkpoint["value"])) == 262_144
    session.ack(checkpoint)
    assert len(session.expect("complete")["result"]) == 262_142


def test_close_leaves_nothing_behind(gateway: FakeGateway, make: Make) -> None:
    """Threads of the SDK end with the robot."""
    before = set(threading.enumerate())
    robot = make(slots=4)
    robot.task("work")(lambda ctx, payload: None)
    robot.task("other", run_in="process")(lambda ctx, payload: None)

    @robot.task("third", run_in="async")
    async def third(ctx: AsyncTaskContext, payload: Any) -> None:
        """Nothing."""

    robot.start()
    session = gateway.session()
    session.ready()
    session.start()
    session.ack(session.expect("complete"))
    engine = robot._engine
    assert engine is not None
    engine.finish(None)
    robot.stop(0)
    until(
        lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("fleetlog-")],
        f"the end of {[t.name for t in threading.enumerate()]}",
    )
