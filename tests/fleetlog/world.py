"""What the examples of the help texts speak of: tasks order-17 to order-23, robots r1 to r9, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx

from robot_gateway.conformance.raw_robot import PollingRobot
from tests.support.fleet import CEILING_S, Fleet, until

TASKS = {
    "order-17": "COMPLETED",
    "order-18": "WAITING",
    "order-19": "DEAD",
    "order-20": "DEAD",
    "order-21": "DEAD",
    "order-22": "DEAD",
    "order-23": "RUNNING",
}
"""Task of the examples -> the state it is in."""
FAULTY = ("r3", "r4")
"""Robots that are in ERROR."""


class World:
    """One pool of a fleet, made to hold what a command line names."""

    def __init__(self, fleet: Fleet, pool: str) -> None:
        self._pool = pool
        self._url = fleet.url
        self._http = httpx.Client(base_url=f"{fleet.url}/v1/pools/{pool}", timeout=CEILING_S)
        self._robots: dict[str, PollingRobot] = {}

    def close(self) -> None:
        """Ends connections."""
        self._http.close()
        for robot in self._robots.values():
            robot.leave()

    def hold(self, line: str) -> None:
        """Makes every task and robot that `line` names, and the pool itself."""
        assert httpx.post(f"{self._url}/v1/pools", json={"pool": self._pool}, timeout=CEILING_S).is_success
        there = f"{self._url}/v1/pools/{self._pool}"
        until(lambda: httpx.get(there, timeout=CEILING_S).is_success, "the pool in the tables")
        for robot in dict.fromkeys(re.findall(r"\br\d\b", line)):
            if f"--id {robot}" not in line:
                self.robot(robot)
        for task in dict.fromkeys(re.findall(r"order-\d\d", line)):
            self.task(task, TASKS[task])

    def robot(self, name: str) -> PollingRobot:
        """A robot that said hello, and a fault where the examples need one."""
        robot = self._robots[name] = PollingRobot(self._url, self._pool, name)
        robot.hello(capabilities=[name])
        if name in FAULTY:
            assert robot.ask("fault", text="the gripper is stuck")["type"] == "ack"
        self._shown(f"robots/{name}", "state", ("IDLE", "ERROR"))
        return robot

    def task(self, name: str, state: str) -> None:
        """A task in that state."""
        worker = "worker"
        if state == "WAITING":
            self._submit(name, ["nobody"])
            return
        robot = self._robots.get(worker) or self.robot(worker)
        self._submit(name, [worker])
        robot.ask("ready", n=2)
        given = robot.expect("assign")
        which: dict[str, Any] = {"task": name, "attempt": given["attempt"]}
        robot.ask("accept", **which)
        if state == "COMPLETED":
            robot.ask("complete", **which, result={"weight": 3})
        elif state == "DEAD":
            robot.ask("fail", **which, **{"class": "fatal"}, error={"type": "Link", "message": "the link is down"})
        self._shown(f"tasks/{name}", "state", (state,))

    def finish_waiting(self) -> None:
        """A robot comes that does what nobody could do."""
        robot = self._robots["nobody"] = PollingRobot(self._url, self._pool, "nobody")
        robot.hello(capabilities=["nobody"])
        robot.ask("ready", n=1)
        given = robot.expect("assign")
        which: dict[str, Any] = {"task": given["task"], "attempt": given["attempt"]}
        robot.ask("accept", **which)
        robot.ask("complete", **which, result={"weight": 3})

    def _submit(self, name: str, requirement: list[str]) -> None:
        asked = {"id": name, "kind": "order", "requirement": requirement, "payload": {"order": name}, "lease_s": 600}
        assert self._http.post("/tasks", json=asked).status_code == 201

    def _shown(self, path: str, field: str, wanted: tuple[str, ...]) -> None:
        """The tables say so."""
        until(lambda: self._http.get(path).json().get(field) in wanted, f"{field} of {path} in {wanted}")


def files(folder: Path) -> None:
    """Files that examples read."""
    (folder / "words.txt").write_text("hello\nworld\n")
    (folder / "tokens.toml").touch(0o600)
