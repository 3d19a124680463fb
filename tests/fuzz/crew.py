"""Robots of the fuzzed pool that do work, so that tasks in every state are there to be fuzzed with."""

from __future__ import annotations

from typing import Any

from robot_gateway.sdk import Client, Fatal, Robot
from tests.support.fleet import CEILING_S, until

POOL = "hall-a"
KINDS = ("ok", "bad", "slow", "nobody")
TASKS = ("t-waiting", "t-running", "t-done", "t-dead", "t-cancelled")
ROBOTS = ("r1", "r2")
TARGETS = ("dock-slow", "dock-nobody")
SCHEDULES = ("nightly",)


class Crew:
    """Two robots at work, and one task in each state."""

    def __init__(self, url: str) -> None:
        self.robots = [Robot(name, pool=POOL, gateway=url, capabilities=["gpu", "mem=16"], slots=8) for name in ROBOTS]
        for robot in self.robots:
            robot.task("ok")(lambda ctx, payload: payload)
            robot.task("bad")(_fails)
            robot.task("slow")(_until_cancelled)
            robot.start()
        self.client = Client(url, pool=POOL)
        self.position = ""

    def prepare(self) -> None:
        """One task in each state, and a schedule."""
        for task, kind in zip(TASKS, ("nobody", "slow", "ok", "bad", "nobody"), strict=True):
            self.client.submit(kind, {"n": 1}, id=task, target=f"dock-{kind}")
        self.client.cancel("t-cancelled")
        until(lambda: self._state("t-dead") == "DEAD", "a dead letter")
        until(lambda: self._state("t-running") == "RUNNING", "a running task")
        until(lambda: self._state("t-done") == "COMPLETED", "a completed task")
        self.position = self.client.task("t-done").position or ""

    def _state(self, task: str) -> Any:
        return self.client.task(task).state

    def stop(self) -> None:
        """Ends them, once; what they hold is given back."""
        robots, self.robots = self.robots, []
        for robot in robots:
            robot.stop(grace_s=0)


def _fails(ctx: Any, payload: Any) -> Any:
    raise Fatal("no")


def _until_cancelled(ctx: Any, payload: Any) -> Any:
    ctx.cancelled_event.wait(CEILING_S)
    raise ctx.Stopped
