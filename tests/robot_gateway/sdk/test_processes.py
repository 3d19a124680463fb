"""Handlers in processes: killed when the lease is over, with all that they started; alone when the robot dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_gateway.conformance.fake_gateway import FakeGateway, Session
from robot_gateway.sdk import Robot, TaskContext
from tests.support.fleet import until

PROJECT = Path(__file__).parents[3]


def alive(pid: int) -> bool:
    """Whether that process still is there and not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture
def robot(gateway: FakeGateway) -> Iterator[Robot]:
    """Two slots, several kinds in processes; closures and local state need no pickling."""
    robot = Robot("r1", gateway=gateway.url, slots=2, cancel_grace_s=0.3)
    prefix = "made by a closure"

    @robot.task("tell", run_in="process")
    def tell(ctx: TaskContext, payload: Any) -> dict[str, Any]:
        return {"pid": os.getpid(), "prefix": prefix, "key": ctx.idempotency_key, "last": ctx.last_checkpoint}

    @robot.task("spawn", run_in="process")
    def spawn(ctx: TaskContext, payload: dict[str, Any]) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(payload["file"]).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)

    @robot.task("polite", run_in="process")
    def polite(ctx: TaskContext, payload: Any) -> None:
        ctx.progress(30, "waiting")
        ctx.cancelled_event.wait(600)
        raise ctx.Stopped(checkpoint={"why": ctx.stop_reason})

    @robot.task("save", run_in="process")
    def save(ctx: TaskContext, payload: Any) -> Any:
        ctx.checkpoint({"step": 1})
        ctx.checkpoint({"step": 2})
        return [ctx.checkpoint_number, ctx.last_checkpoint]

    @robot.task("die", run_in="process")
    def die(ctx: TaskContext, payload: dict[str, Any]) -> None:
        Path(payload["file"]).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        if "signal" in payload:
            os.kill(os.getpid(), payload["signal"])
        os._exit(payload["code"])

    robot.start()
    yield robot
    robot.stop(0)


@pytest.fixture
def session(gateway: FakeGateway, robot: Robot) -> Iterator[Session]:
    """Welcome and ready; at the end the robot's last words are acknowledged."""
    session = gateway.session()
    session.ready()
    yield session
    threading.Thread(target=acknowledge_all, args=(session,), daemon=True).start()


def acknowledge_all(session: Session) -> None:
    """Say yes to whatever comes."""
    while (message := session.next_within(5.0)) is not None:
        session.ack(message)


def result_of(session: Session, task: str, kind: str, **fields: Any) -> Any:
    """Run one and give its result."""
    session.start(task, kind=kind, **fields)
    complete = session.expect("complete", task=task)
    session.ack(complete)
    return complete["result"]


def test_a_handler_runs_in_another_process_which_is_used_again(session: Session) -> None:
    """Context and closures are there; the second task meets the same process."""
    checkpoint = {"number": 3, "value": {"x": 1}}
    first = result_of(session, "t1", "tell", checkpoint=checkpoint)
    second = result_of(session, "t2", "tell")
    assert first["pid"] == second["pid"] != os.getpid()
    assert (first["prefix"], first["key"], first["last"]) == ("made by a closure", "key-t1", {"x": 1})


@pytest.mark.parametrize("how", ["stop", "own_deadline", "cancel"])
def test_it_is_killed_with_all_that_it_started(session: Session, tmp_path: Path, how: str) -> None:
    """Process and grandchild are gone before `stopped` is said; another task gets a fresh process."""
    file = tmp_path / "pids"
    lease = {"stop_after_ms": 1500} if how == "own_deadline" else {}
    session.answer_beats = how != "own_deadline"
    session.start("t1", kind="spawn", payload={"file": str(file)}, lease=lease)
    pids = [int(pid) for pid in until(lambda: file.exists() and file.read_text(), "the pids").split()]
    if how != "own_deadline":
        session.send({"type": how, "task": "t1", "attempt": 1, "reason": "expired"})
    session.ack(session.expect("stopped", why=how))
    assert not alive(pids[0])
    until(lambda: not alive(pids[1]), "the end of the grandchild")
    assert result_of(session, "t2", "tell")["pid"] != pids[0]


def test_a_polite_handler_ends_by_itself(session: Session) -> None:
    """cancel reaches the context in the process; its checkpoint goes with the report; progress with the heartbeat."""
    session.start("t1", kind="polite")
    beat = session.expect_beat(lambda beat: any("progress" in held for held in beat["holding"]))
    assert (beat["holding"][0]["progress"], beat["holding"][0]["note"]) == (30, "waiting")
    session.send({"type": "cancel", "task": "t1", "attempt": 1})
    stopped = session.expect("stopped", why="cancel")
    assert stopped["checkpoint"] == {"number": 1, "value": {"why": "cancel"}}
    session.ack(stopped)


def test_checkpoints_from_a_process(session: Session) -> None:
    """Each returns when it is acknowledged; too_fast is sent again by itself."""
    session.start("t1", kind="save")
    first = session.expect("checkpoint", number=1, value={"step": 1})
    session.expect_nothing(0.2)
    session.ack(first)
    second = session.expect("checkpoint", number=2)
    session.refuse(second, "too_fast", retry=True, retry_after_ms=100)
    again = session.expect("checkpoint", number=2)
    assert again["id"] == second["id"]
    session.ack(again)
    complete = session.expect("complete")
    assert complete["result"] == [2, {"step": 2}]
    session.ack(complete)


@pytest.mark.parametrize(
    ("payload", "said"), [({"code": 3}, "exit code 3"), ({"signal": int(signal.SIGKILL)}, "SIGKILL")]
)
def test_a_process_that_dies_is_a_retryable_failure(
    session: Session, tmp_path: Path, payload: dict[str, int], said: str
) -> None:
    """With how it ended; what it had started ends as well; the robot goes on."""
    file = tmp_path / "pid"
    session.start("t1", kind="die", payload=payload | {"file": str(file)})
    fail = session.expect("fail")
    assert (fail["class"], fail["error"]["type"]) == ("retryable", "ProcessDied")
    assert said in fail["error"]["message"]
    until(lambda: not alive(int(file.read_text())), "the end of the grandchild")
    session.ack(fail)
    assert result_of(session, "t2", "tell")["pid"]


PROGRAM = """
import os, sys, time
from robot_gateway.sdk import Robot
robot = Robot("r1", gateway=sys.argv[1])
@robot.task("work", run_in="process")
def work(ctx, payload):
    open(payload["file"], "w").write(str(os.getpid()))
    time.sleep(600)
robot.run()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_when_the_robot_is_gone_its_handlers_end(gateway: FakeGateway, tmp_path: Path, how: signal.Signals) -> None:
    """SIGKILL of the robot: at once; SIGSTOP: when the lease can have ended. The program has no `__name__` guard."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, gateway.url], cwd=PROJECT)
    try:
        session = gateway.session()
        session.ready()
        file = tmp_path / "pid"
        session.start("t1", payload={"file": str(file)}, lease={"stop_after_ms": 4_000})
        pid = int(until(lambda: file.exists() and file.read_text(), "the pid"))
        assert alive(pid)
        program.send_signal(how)
        until(lambda: not alive(pid), "the end of the handler")
    finally:
        program.kill()
        program.wait()
