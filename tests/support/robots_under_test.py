"""The robots that the conformance suite plays against: the SDK's in all its ways to run handlers, the shell's, and C.

All do the kind `work`: payload {"ms": how long, "fail"?: "retryable" or "fatal"}, result {"done": true, ...}.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_gateway.conformance.act import RobotUnderTest
from robot_gateway.conformance.programs import Program
from robot_gateway.sdk import AsyncTaskContext, Fatal, FleetlogError, Retry, Robot, TaskContext
from robot_gateway.sdk.shell import shell_robot

PROJECT = Path(__file__).parents[2]
C_ROBOT = PROJECT / "examples" / "robot_in_c"
CEILING_S = 60.0
DEBIAN_PACKAGES = ("gcc", "libc6-dev", "libcurl4-openssl-dev")

SHELL_WORK = r"""
read -r payload || true
ms=$(printf %s "$payload" | sed 's/.*"ms":\([0-9]*\).*/\1/')
sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
case $payload in
  *fatal*) echo "asked to fail" >&2; exit 64 ;;
  *retryable*) echo "asked to fail" >&2; exit 1 ;;
esac
echo '{"done": true}'
"""


def work_in_thread(ctx: TaskContext, payload: dict[str, Any]) -> dict[str, Any]:
    """`work`, asked to end by its context."""
    if ctx.cancelled_event.wait(payload["ms"] / 1000):
        raise ctx.Stopped
    fail_if_asked(payload)
    return {"done": True}


def work_in_process(ctx: TaskContext, payload: dict[str, Any]) -> dict[str, Any]:
    """`work` that listens to nobody: it has to be killed."""
    time.sleep(payload["ms"] / 1000)
    fail_if_asked(payload)
    return {"done": True}


async def work_in_loop(ctx: AsyncTaskContext, payload: dict[str, Any]) -> dict[str, Any]:
    """`work` in the event loop, cancelled by force."""
    await asyncio.sleep(payload["ms"] / 1000)
    fail_if_asked(payload)
    return {"done": True}


def fail_if_asked(payload: Mapping[str, Any]) -> None:
    """The failure that the payload asks for."""
    if payload.get("fail") == "fatal":
        raise Fatal("asked to fail")
    if payload.get("fail"):
        raise Retry("asked to fail")


def python_robot(how: str, robot_id: str, gateway: str, **options: Any) -> Robot:
    """A robot of the SDK that does `work` in a thread, a process, the loop, or by a shell command."""
    given: dict[str, Any] = {"gateway": gateway, "cancel_grace_s": 0.3} | options
    if how == "shell":
        return shell_robot(robot_id, {"work": SHELL_WORK}, **given)
    robot = Robot(robot_id, **given)
    if how == "thread":
        robot.task("work")(work_in_thread)
    elif how == "process":
        robot.task("work", run_in="process")(work_in_process)
    else:
        robot.task("work", run_in="async")(work_in_loop)
    return robot


class InThisProcess:
    """A robot of the SDK in the background of the test."""

    def __init__(self, how: str, robot_id: str, gateway: str, **options: Any) -> None:
        self.robot = python_robot(how, robot_id, gateway, **options).start()
        self._engine = self.robot._engine

    def stop(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.finish(None)
        try:
            self.robot.stop(0)
        except (RuntimeError, FleetlogError):
            return

    def gave_up(self, sentence: str) -> None:
        assert self._engine is not None
        assert self._engine.ended.wait(CEILING_S), "the robot did not end"
        assert self._engine.error is not None, "it ended without an error"
        assert sentence in str(self._engine.error)

    def terminate(self) -> None:
        raise NotImplementedError("a signal would reach the test as well")

    def exit_code(self) -> int:
        raise NotImplementedError("it has no process of its own")

    def fate(self) -> str | None:
        return None


class InAProcess(Program):
    """A robot as a program of its own. Ours end with an error that says what the gateway said."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command, patience_s=CEILING_S, cwd=PROJECT)

    def gave_up(self, sentence: str) -> None:
        assert self.exit_code() == 1, self.fate()
        assert sentence in self.last_line()
        assert self.last_line()


def c_robot(gateway: str, pool: str, robot_id: str) -> list[str]:
    """The command line of the C example, built if need be."""
    return [str(built_c_robot()), gateway, pool, robot_id]


def built_c_robot() -> Path:
    """The C example's program. Where compiler or libcurl are missing they are installed if we may, else said."""
    with (C_ROBOT / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = _make()
        if made.returncode != 0 and os.getuid() == 0 and shutil.which("apt-get") and not _has_curl():
            quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            for step in (["update"], ["install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES]):
                subprocess.run(["apt-get", "--quiet", *step], env=quiet, capture_output=True, check=False)
            made = _make()
        assert made.returncode == 0, (
            f"The C example needs a C compiler and libcurl: apt-get install {' '.join(DEBIAN_PACKAGES)}\n{made.stderr}"
        )
    return C_ROBOT / "robot"


def _make() -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(C_ROBOT)], capture_output=True, text=True)


def _has_curl() -> bool:
    probe = ["cc", "-include", "curl/curl.h", "-fsyntax-only", "-x", "c", os.devnull]
    return shutil.which("cc") is not None and subprocess.run(probe, capture_output=True).returncode == 0


def start(how: str, gateway: str, robot_id: str = "r1", pool: str = "default", slots: int = 1) -> RobotUnderTest:
    """Start a robot: thread, process, async, shell, or c (which has one slot)."""
    if how == "c":
        return InAProcess(c_robot(gateway, pool, robot_id))
    return InThisProcess(how, robot_id, gateway, pool=pool, slots=slots)


def start_program(
    how: str, gateway: str, robot_id: str = "r1", pool: str = "default", grace_s: float = 30
) -> InAProcess:
    """The same as a program of its own, for signals."""
    if how == "c":
        return InAProcess(c_robot(gateway, pool, robot_id))
    return InAProcess(
        [sys.executable, "-m", "tests.support.robots_under_test", how, gateway, robot_id, pool, str(grace_s)]
    )


def main() -> None:
    """`python -m tests.support.robots_under_test HOW GATEWAY ROBOT POOL GRACE_S`."""
    how, gateway, robot_id, pool, grace_s = sys.argv[1:]
    try:
        python_robot(how, robot_id, gateway, pool=pool).run(float(grace_s))
    except FleetlogError as error:
        sys.exit(f"{error.reason}: {error}")


if __name__ == "__main__":
    main()
