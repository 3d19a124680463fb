"""The kit's fleet: real handlers, virtual time, faults, and invariants that are judged."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fleetlog.testing import FAULTS, DidNotHappen, Fleet, HandlerHangs, InvariantBroken, strands
from robot_gateway.sdk import AsyncTaskContext, Fatal, FleetlogError, Retry, Robot, TaskContext
from robot_gateway.sdk.errors import BY_REASON
from tests.support.broken_rules import early_expiry, failed_commit_counts


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The parts complain about faults, as they should; here that is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Short windows, so that a silent robot is missed soon."""
    with Fleet(window_s=1, lease_s=3) as made:
        yield made


def double(ctx: TaskContext, payload: int) -> int:
    """Twice the payload."""
    return 2 * payload


def count(ctx: TaskContext, payload: int) -> dict[str, int]:
    """Counts on from the last checkpoint, one number and one checkpoint in two seconds."""
    number = began = ctx.last_checkpoint or 0
    while number < payload:
        if ctx.sleep(2):
            raise ctx.Stopped(checkpoint=number)
        number += 1
        ctx.progress(100 * number // payload, f"at {number}")
        ctx.checkpoint(number)
    return {"began": began, "attempt": ctx.attempt}


# ---- work and time ----


def test_a_handler_does_a_task(fleet: Fleet) -> None:
    """The user's function gets the payload; its result and the events are there."""
    robot = fleet.robot("r1", kinds={"double": double})
    task = fleet.submit("double", payload=21)
    assert (task.state, task.result, task.attempt) == ("WAITING", None, 0)
    fleet.advance(seconds=1)
    assert (task.state, task.result, task.attempt, task.robot) == ("COMPLETED", 42, 1, "r1")
    assert [event.name for event in task.events] == ["TaskSubmitted", "TaskAssigned", "LeaseStarted", "TaskCompleted"]
    assert [event.robot for event in fleet.events("TaskAssigned", robot="r1")] == ["r1"]
    assert fleet.events("TaskAssigned", robot="r2") == []
    assert (robot.state, robot.working_on, robot.alive) == ("IDLE", [], True)


def test_time_passes_only_when_it_is_told_to(fleet: Fleet) -> None:
    """Half an hour passes exactly as told; without that nothing happens."""
    before = fleet.now
    time.sleep(0.01)
    assert fleet.now == before
    fleet.advance(seconds=1_800)
    assert (fleet.now - before).total_seconds() == 1_800


def test_a_handler_sleeps_in_virtual_time(fleet: Fleet) -> None:
    """Three numbers take six seconds; progress and checkpoints are in the log; the lease is kept meanwhile."""
    fleet.robot("r1", kinds={"count": count})
    task = fleet.submit("count", payload=3)
    fleet.advance(seconds=5)
    assert (task.state, task.checkpoint) == ("RUNNING", 2)
    assert "r1 runs it" in task.why
    fleet.advance(seconds=3)
    assert (task.state, task.result) == ("COMPLETED", {"began": 0, "attempt": 1})
    assert {item.progress for event in fleet.events("ProgressNoted") for item in event.items} >= {33, 66}
    assert fleet.events("WindowMissed") == []


def test_a_handler_takes_as_long_as_is_said(fleet: Fleet) -> None:
    """Its code runs after that time; a robot that is killed before has not run it."""
    calls: list[int] = []
    robot = fleet.robot("r1", kinds={"note": lambda ctx, payload: calls.append(ctx.attempt)}, takes_s={"note": 10})
    task = fleet.submit("note")
    fleet.advance(seconds=9)
    assert (task.state, calls) == ("RUNNING", [])
    robot.kill()
    fleet.advance(seconds=10)
    robot.start()
    task.wait()
    assert calls == [2]


def test_a_coroutine_waits_in_virtual_time(fleet: Fleet) -> None:
    """asyncio.sleep, ctx.sleep, ctx.checkpoint and to_thread, all within one event loop of virtual time."""

    async def handler(ctx: AsyncTaskContext, payload: Any) -> Any:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(asyncio.sleep(4), asyncio.sleep(3))
        assert await ctx.sleep(1) is False
        await ctx.checkpoint({"at": 5})
        await asyncio.to_thread(lambda: None)
        return round(asyncio.get_running_loop().time() - began)

    fleet.robot("r1", kinds={"wait": handler})
    task = fleet.submit("wait").wait()
    assert (task.result, task.checkpoint) == (5, {"at": 5})


def test_a_coroutine_is_cancelled_by_force(fleet: Fleet) -> None:
    """As in the product: after the grace its asyncio task is cancelled, and what it cleans up is cleaned up."""
    cleaned: list[str] = []

    async def deaf(ctx: AsyncTaskContext, payload: Any) -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            cleaned.append(str(ctx.stop_reason))

    fleet.robot("r1", kinds={"wait": deaf}, cancel_grace_s=5)
    task = fleet.submit("wait")
    fleet.advance(1)
    task.cancel("not wanted")
    fleet.advance(4)
    assert (task.state, cleaned) == ("RUNNING", [])
    fleet.advance(3)
    assert (task.state, cleaned) == ("CANCELLED", ["cancel"])


def test_the_same_seed_plays_the_same() -> None:
    """Event for event; another seed plays otherwise."""

    def played(seed: int) -> list[Any]:
        with Fleet(seed=seed, fault_every_s=2) as fleet:
            fleet.robot("r1", kinds={"count": count})
            fleet.submit("count", payload=4)
            fleet.advance(60)
            return fleet.events()

    first = played(3)
    assert first == played(3)
    assert first != played(4)


def test_nothing_goes_by_the_address_of_an_object(fleet: Fleet) -> None:
    """Gateways look at sessions in the order in which they came; else the same seed could play otherwise."""
    names = [f"r{number}" for number in range(40)]
    for name in names:
        fleet.robot(name, kinds={"double": double})
    for process in fleet._product.gateways:
        here = [session.robot for session in process.gateway.sessions]
        assert here == [name for name in names if name in here]
        assert len(here) > 5


# ---- what goes wrong with handlers ----


def test_how_handlers_end(fleet: Fleet) -> None:
    """Retry, Fatal and other exceptions mean what they mean in the product; operators mend dead letters."""

    def handler(ctx: TaskContext, payload: str) -> str:
        if payload == "retry" and ctx.failures == 0:
            raise Retry("once more", after_s=30)
        if payload == "fatal" and ctx.attempt == 1:
            raise Fatal("never", detail={"seam": 7})
        if payload == "broken":
            raise KeyError("seam")
        return payload

    fleet.robot("r1", kinds={"do": handler})
    retried, fatal, broken = (fleet.submit("do", payload=word) for word in ("retry", "fatal", "broken"))
    fleet.advance(20)
    assert (retried.state, fatal.state, fatal.dead_reason) == ("WAITING", "DEAD", "fatal")
    assert fatal.error == {"type": "Fatal", "message": "never", "detail": {"seam": 7}}
    assert (broken.wait().state, broken.dead_reason, broken.attempt) == ("DEAD", "failed", 3)
    assert broken.error is not None
    assert broken.error["type"] == "KeyError"
    fatal.redrive("mended")
    assert (fatal.wait().result, retried.wait().result) == ("fatal", "retry")
    broken.resolve("done by hand", result=8)
    assert (broken.state, broken.result) == ("COMPLETED", 8)


def test_a_cancelled_handler_is_told(fleet: Fleet) -> None:
    """`ctx.sleep` returns at once, `ctx.Stopped` ends it, its last checkpoint is saved."""
    fleet.robot("r1", kinds={"count": count})
    task = fleet.submit("count", payload=100)
    fleet.advance(5)
    task.cancel("not wanted")
    fleet.advance(0.5)
    assert (task.state, task.checkpoint) == ("CANCELLED", 2)


def test_a_handler_that_really_waits_is_said_to_hang(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time cannot go on; the test gets a sentence instead of standing still."""
    monkeypatch.setattr(strands, "REAL_S_MAX", 0.05)
    never = threading.Event()
    fleet.robot("r1", kinds={"hang": lambda ctx, payload: never.wait(60)})
    fleet.submit("hang")
    with pytest.raises(HandlerHangs, match=r"the handler of hang \(task task-1, attempt 1\) has not returned"):
        fleet.advance(1)
    never.set()


def test_a_handler_submits_and_waits(fleet: Fleet) -> None:
    """Within a handler the world goes on: another robot does the part that the first one waits for."""

    def whole(ctx: TaskContext, payload: int) -> int:
        part = fleet.submit("double", payload=payload).wait(within_s=60)
        return 1 + int(part.result)

    fleet.robot("r1", kinds={"whole": whole})
    fleet.robot("r2", kinds={"double": double})
    assert fleet.submit("whole", payload=5).wait().result == 11


# ---- what goes wrong with robots ----


def test_a_killed_robot_and_who_goes_on(fleet: Fleet) -> None:
    """Its handler goes no further; when its lease has expired another robot goes on at the checkpoint."""
    first = fleet.robot("r1", kinds={"count": count})
    task = fleet.submit("count", payload=4)
    fleet.advance(5)
    first.kill()
    second = fleet.robot("r2", kinds={"count": count})
    fleet.advance(1)
    assert (task.state, first.alive, first.working_on) == ("RUNNING", False, [])
    assert task.wait().result == {"began": 2, "attempt": 2}
    assert [event.robot for event in fleet.events("LeaseExpired", task)] == ["r1"]
    assert (first.state, second.state) == ("OFFLINE", "IDLE")
    with pytest.raises(RuntimeError, match="r2 runs already"):
        second.start()


def test_a_handler_that_kills_its_robot_goes_no_further(fleet: Fleet) -> None:
    """As kill -9 at that line."""
    after: list[int] = []

    def handler(ctx: TaskContext, payload: Any) -> str:
        if ctx.attempt == 1:
            robot.kill()
            after.append(1)
        return "done"

    robot = fleet.robot("r1", kinds={"do": handler})
    task = fleet.submit("do")
    fleet.advance(10)
    assert (task.state, after) == ("WAITING", [])
    robot.start()
    assert (task.wait().result, task.attempt) == ("done", 2)


def test_a_robot_that_is_cut_off_ends_by_its_own_deadline(fleet: Fleet) -> None:
    """It works on, is told in time, and only then another robot works on the target."""
    spans: list[tuple[str, float, float]] = []

    def handler(ctx: TaskContext, payload: Any) -> str:
        began = fleet.now.timestamp()
        ctx.sleep(20)
        spans.append((str(ctx.stop_reason), began, fleet.now.timestamp()))
        if ctx.cancelled:
            raise ctx.Stopped
        return "done"

    first = fleet.robot("r1", kinds={"do": handler})
    task = fleet.submit("do", target="dock-1")
    fleet.advance(2)
    fleet.robot("r2", kinds={"do": handler})
    first.cut(seconds=30)
    assert (task.wait().result, task.robot) == ("done", "r2")
    assert [reason for reason, *_ in spans] == ["own_deadline", "None"]
    assert spans[0][2] < spans[1][1]
    fleet.advance(10)
    assert first.state == "IDLE"


def test_a_paused_robot(fleet: Fleet) -> None:
    """A machine that sleeps past its lease wakes up, stops, and the other one was alone meanwhile."""
    sleeper = fleet.robot("r1", kinds={"count": count})
    task = fleet.submit("count", payload=30, target="dock-1")
    fleet.advance(3)
    assert sleeper.working_on == [(task.id, 1)]
    fleet.robot("r2", kinds={"count": count})
    sleeper.pause(30)
    fleet.advance(35)
    assert (task.state, task.robot, sleeper.working_on) == ("RUNNING", "r2", [])
    assert task.wait().attempt == 2


def test_a_robot_that_stops_in_order(fleet: Fleet) -> None:
    """It takes nothing new, what runs is stopped after the grace, and it says bye."""
    robot = fleet.robot("r1", kinds={"count": count})
    task, other = fleet.submit("count", payload=100), fleet.submit("count", payload=1)
    fleet.advance(3)
    robot.stop(grace_s=4)
    fleet.advance(3)
    assert (task.state, robot.alive) == ("RUNNING", True)
    fleet.advance(3)
    assert (task.state, other.state, robot.state, robot.alive) == ("WAITING", "WAITING", "OFFLINE", False)
    assert [event.why for event in fleet.events("AttemptStopped", task)] == ["shutdown"]
    robot.start()
    fleet.advance(1)
    assert robot.state == "BUSY"


def test_the_robot_of_a_program(fleet: Fleet) -> None:
    """Handlers, slots and capabilities as they were given to the SDK; processes end by force."""
    real = Robot("welder-1", capabilities=["reach=2.5"], slots=2, cancel_grace_s=2)

    @real.task("weld", run_in="process")
    def weld(ctx: TaskContext, payload: Any) -> None:
        while True:
            ctx.sleep(1)

    fleet.robot_like(real)
    task = fleet.submit("weld", requirement=["reach>=2"])
    fleet.advance(1)
    assert (task.robot, task.state) == ("welder-1", "RUNNING")
    task.cancel()
    assert task.wait(within_s=5).state == "CANCELLED"


# ---- what goes wrong elsewhere ----


def test_owner_gateway_and_log() -> None:
    """Each is gone for a while, for less than a lease; the task is done, once, and nobody is told otherwise."""
    with Fleet() as fleet:
        fleet.robot("r1", kinds={"count": count})
        task = fleet.submit("count", payload=10)
        fleet.advance(1)
        fleet.kill_owner()
        assert task.why == "nobody owns the pool now"
        fleet.advance(9)
        fleet.kill_gateway()
        fleet.advance(3)
        fleet.cut_log(seconds=2)
        assert (task.state, task.robot) == ("RUNNING", "r1")
        asked = fleet.now
        fleet.submit("count", payload=0)  # is asked again until somebody answers
        assert 1 < (fleet.now - asked).total_seconds() < 10
        assert task.wait().result == {"began": 0, "attempt": 1}
        assert len(fleet.events("OwnershipTaken")) >= 1


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_can_be_made(fleet: Fleet, fault: str) -> None:
    """And afterwards every task ends, and all invariants hold."""
    fleet.robot("r1", kinds={"count": count})
    tasks = [fleet.submit("count", payload=n) for n in (1, 3)]
    fleet.advance(1)
    fleet.inject(fault)
    fleet.advance(1)
    fleet.settle()
    assert {task.state for task in tasks} == {"COMPLETED"}


def test_faults_by_chance() -> None:
    """A fault a second for two minutes; in the end all tasks have ended and the referee is content."""
    with Fleet(seed=5, fault_every_s=1, window_s=1, lease_s=3) as fleet:
        for number in range(3):
            fleet.robot(f"r{number}", kinds={"count": count}, slots=2)
        tasks = [fleet.submit("count", payload=number % 4, target=f"dock-{number % 3}") for number in range(12)]
        fleet.advance(120)
        fleet.settle()
        assert {task.state for task in tasks} <= {"COMPLETED", "DEAD"}
        assert len(fleet.events("OwnershipTaken")) > 1


# ---- what is asked wrongly ----


def test_refusals_are_the_errors_of_the_sdk(fleet: Fleet) -> None:
    """The same reason words, without a traceback of the product's own."""
    fleet.submit("weld", payload=1, id="t1")
    for reason, ask in (
        ("id_conflict", lambda: fleet.submit("weld", payload=2, id="t1")),
        ("unknown_field", lambda: fleet.submit("weld", lease=3)),  # type: ignore[call-arg]
        ("invalid_field", lambda: fleet.submit("weld", priority=10)),
        ("wrong_state", lambda: fleet.task("t1").resolve("done by hand")),
        ("no_such_task", lambda: fleet.task("t2").state),
    ):
        with pytest.raises(BY_REASON[reason]) as caught:
            ask()
        assert isinstance(caught.value, FleetlogError)


def test_what_cannot_be_is_said_in_a_sentence(fleet: Fleet) -> None:
    """Names, settings, kinds, faults and commands that do not exist."""
    fleet.robot("r1", kinds={})
    shell = Robot("s1")
    shell.command("checksum", "sha256sum")
    for text, ask in (
        ("there is a robot r1 already", lambda: fleet.robot("r1", kinds={})),
        ("cannot be the id of a robot", lambda: fleet.robot("r 1", kinds={})),
        ("cannot be a kind", lambda: fleet.robot("r2", kinds={"a b": double})),
        ("slots is a number", lambda: fleet.robot("r2", kinds={}, slots=0)),
        ("shell command", lambda: fleet.robot_like(shell)),
        ("there is no fault nothing", lambda: fleet.inject("nothing")),
        ("at least three windows", lambda: Fleet(window_s=5, lease_s=10)),
        ("there is no pool setting", lambda: Fleet(windows=5)),
        ("cannot be the id of a pool", lambda: Fleet(pool="a b")),
        ("has no field tsk", lambda: fleet.command("cancel", task="t1", tsk=1)),
        ("command stop: ", lambda: fleet.command("stop")),
    ):
        with pytest.raises(ValueError, match=text):
            ask()
    with Fleet() as empty, pytest.raises(ValueError, match="robot_killed needs a robot"):
        empty.inject("robot_killed")


def test_any_command(fleet: Fleet) -> None:
    """Pause and resume, by name and body; the owner's answer comes back."""
    fleet.robot("r1", kinds={"double": double})
    assert fleet.command("pause", scope="kind", name="double", reason="inspection")["changed"] is True
    task = fleet.submit("double", payload=1)
    fleet.advance(5)
    assert task.state == "WAITING"
    assert "inspection" in task.why
    fleet.command("resume", scope="kind", name="double")
    assert task.wait().result == 2


def test_what_does_not_happen_is_told_with_the_story(fleet: Fleet) -> None:
    """The seed, the last events, and for each task that has not ended what holds it."""
    task = fleet.submit("weld")
    with pytest.raises(DidNotHappen, match=r"task-1 has not ended after 5 s \(seed 1\)\n(.|\n)*TaskSubmitted"):
        task.wait(within_s=5)
    with pytest.raises(DidNotHappen, match="no robot"):
        fleet.settle(within_s=5)
    assert "TaskSubmitted" in fleet.story(task)
    assert "PoolCreated" not in fleet.story(task)
    task.cancel()


# ---- each rule broken once: the kit notices ----


def test_a_handler_that_does_not_listen_breaks_exclusion() -> None:
    """A thread that works on after its deadline meets the next robot at the target: the kit says so, with the story."""

    def deaf(ctx: TaskContext, payload: Any) -> None:
        for _ in range(20):
            dock.advance(1)  # works on whatever it is told

    dock = Fleet(window_s=1, lease_s=3)
    first = dock.robot("r1", kinds={"do": deaf})
    dock.submit("do", target="dock-1")
    dock.advance(2)
    dock.robot("r2", kinds={"do": deaf})
    first.cut()
    dock.advance(15)
    with pytest.raises(InvariantBroken, match=r"r2 began task-1 on dock-1 while r1 worked on(.|\n)*LeaseExpired"):
        dock.close()


def test_exclusion_is_not_asked_of_what_an_operator_frees_by_force() -> None:
    """Who forces a release gives exclusion up: the next robot may meet the first one at the target."""

    def deaf(ctx: TaskContext, payload: Any) -> None:
        for _ in range(5):
            dock.advance(1)

    with Fleet(window_s=1, lease_s=3) as dock:
        dock.robot("r1", kinds={"first": deaf})
        dock.robot("r2", kinds={"second": deaf})
        task = dock.submit("first", target="dock-1")
        dock.advance(2)
        dock.submit("second", target="dock-1", priority=9)
        task.release("r1 burns", force=True)
        dock.settle()
        assert [event.robot for event in dock.events("TaskAssigned")][:2] == ["r1", "r2"]


@pytest.mark.parametrize("broken", [failed_commit_counts, early_expiry])
def test_a_broken_rule_of_the_product_is_noticed(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule switched off, some fleet with faults is not judged right any more."""
    broken(monkeypatch)
    for seed in range(1, 9):
        fleet = Fleet(seed=seed, fault_every_s=0.5, window_s=1, lease_s=3)
        try:
            fleet.robot("r1", kinds={"count": count})
            for _ in range(10):
                fleet.submit("count", payload=3, target="dock-1")
            fleet.advance(60)
            fleet.check()
        except (InvariantBroken, DidNotHappen):
            return
        finally:
            fleet.close(check=False)
    raise AssertionError("nothing was noticed")
