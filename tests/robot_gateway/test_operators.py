"""Tasks whose robots fall silent, and what operators decide about them: on real parts, with who and why on record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robot_gateway.conformance.raw_robot import WebSocketRobot
from robot_gateway.tokens import new_token, write_tokens
from tests.support.site import Site, until

QUICK = {"window_ms": 500, "lease_ms": 1_500, "accept_ms": 60_000}


class Fleet:
    """A site with tokens of a robot and of the operator ann."""

    def __init__(self, site: Site, robot: str, ann: str) -> None:
        self.site, self._robot, self._ann = site, robot, {"Authorization": f"Bearer {ann}"}

    def ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """What ann asks, and is not refused."""
        answer = self.site.client.request(method, f"/v1/pools{path}", headers=self._ann, **more)
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def verb(self, task: str, verb: str, **body: Any) -> dict[str, Any]:
        """One verb of ann's about a task; the event that it caused."""
        self.ask("POST", f"/hall-a/tasks/{task}/{verb}", json=body)
        return dict(until(lambda: [e for e in self.history(task) if e["caused_by"].startswith("command:")][1:])[-1])

    def history(self, task: str) -> list[dict[str, Any]]:
        """Its events."""
        return list(self.ask("GET", f"/hall-a/tasks/{task}/history")["items"])

    def until_in(self, task: str, state: str) -> None:
        """Waits for a state."""
        until(lambda: self.ask("GET", f"/hall-a/tasks/{task}")["state"] == state, f"{task} in {state}")

    def working(self, robot: str, task: str, **fields: Any) -> tuple[WebSocketRobot, dict[str, Any]]:
        """A robot that runs the attempt of a new task which only it can do."""
        session = self.site.robot(robot, token=self._robot)
        session.hello(capabilities=[robot])
        session.ask("ready", n=1)
        self.ask("POST", "/hall-a/tasks", json={"id": task, "kind": "weld", "requirement": [robot], **fields})
        here = {"task": task, "attempt": session.expect("assign")["attempt"]}
        session.ask("accept", **here)
        return session, here

    def back(self, robot: str, here: dict[str, Any]) -> WebSocketRobot:
        """The robot connects again and names what it held."""
        session = self.site.robot(robot, token=self._robot)
        session.hello(capabilities=[robot], holding=[{**here, "started": True}])
        return session


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Windows of half a second, leases of three."""
    path: Path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    robot, ann = new_token("robot", "robot", pools=["hall-a"]), new_token("ann", "operator", pools=["*"])
    write_tokens(path, [robot[1], ann[1]])
    with Site(partitions=1, tokens=path, defaults=QUICK, heartbeat_gather_ms=50) as site:
        fleet = Fleet(site, robot[0], ann[0])
        fleet.ask("POST", "", json={"pool": "hall-a"})
        yield fleet


def said_by_ann(event: dict[str, Any], kind: str, reason: str) -> None:
    """Who did what, and why."""
    assert (event["type"], event["actor"], event["reason"]) == (f"{kind}.v1", "ann", reason)


def test_wait_gives_the_same_robot_time_to_come_back(fleet: Fleet) -> None:
    """Policy `wait`: LOST when the lease has ended, RUNNING again when its robot names it, and done by it."""
    gone, here = fleet.working("r1", "t-wait", on_lost={"policy": "wait", "wait_s": 600})
    gone.leave()
    fleet.until_in("t-wait", "LOST")
    with fleet.back("r1", here) as robot:
        fleet.until_in("t-wait", "RUNNING")
        robot.ask("complete", **here)
        fleet.until_in("t-wait", "COMPLETED")
    assert [e["type"].removesuffix(".v1") for e in fleet.history("t-wait")][-3:] == [
        "LeaseExpired",
        "LeaseResumed",
        "TaskCompleted",
    ]


def test_ask_leaves_a_lost_task_to_an_operator(fleet: Fleet) -> None:
    """Policy `ask`: LOST until ann resolves it with a result and a reason, or releases it to be done again."""
    for robot, task in (("r2", "t-resolve"), ("r3", "t-release")):
        gone, _ = fleet.working(robot, task, on_lost={"policy": "ask"})
        gone.leave()
    fleet.until_in("t-resolve", "LOST")
    fleet.until_in("t-release", "LOST")
    said_by_ann(fleet.verb("t-release", "release", reason="r3 was switched off"), "TaskReleased", "r3 was switched off")
    fleet.until_in("t-release", "WAITING")
    refused = fleet.site.client.post("/v1/pools/hall-a/tasks/t-resolve/resolve", headers=fleet._ann, json={})
    assert (refused.status_code, refused.json()["reason"]) == (422, "reason_required")
    event = fleet.verb("t-resolve", "resolve", reason="seen on the camera", result={"seam": "S7"})
    said_by_ann(event, "TaskCompleted", "seen on the camera")
    assert (event["by"], event["result"]) == ("operator", {"json": {"seam": "S7"}})


def test_dead_letters_are_decided_with_who_and_why(fleet: Fleet) -> None:
    """Redrive, discard and resolve of what failed for good."""
    for number, (verb, kind) in enumerate(
        (("redrive", "TaskRedriven"), ("discard", "TaskDiscarded"), ("resolve", "TaskCompleted"))
    ):
        task = f"t-dead-{verb}"
        robot, here = fleet.working(f"d{number}", task)
        with robot:
            robot.ask("fail", **here, **{"class": "fatal", "error": {"type": "x", "message": "broken"}})
            robot.ask("bye")
        fleet.until_in(task, "DEAD")
        said_by_ann(fleet.verb(task, verb, reason=f"to {verb}"), kind, f"to {verb}")


def test_a_running_task_is_released_with_who_and_why(fleet: Fleet) -> None:
    """Its robot is told to stop; its late report is kept: probably done twice, where it was given away meanwhile."""
    robot, here = fleet.working("r4", "t-taken")
    with robot:
        said_by_ann(fleet.verb("t-taken", "release", reason="r4 hangs", force=True), "TaskReleased", "r4 hangs")
        assert robot.expect("stop")["reason"] == "released"
        robot.ask("ready", n=1)
        again = {"task": "t-taken", "attempt": robot.expect("assign")["attempt"]}
        assert again["attempt"] == here["attempt"] + 1
        assert robot.ask("complete", **here)["late"] is True
        late = until(lambda: [e for e in fleet.history("t-taken") if e["type"] == "ReportedLate.v1"])[0]
        assert (late["done_twice"], late["newer_attempt"], late["robot"]) == (True, again["attempt"], "r4")
        assert fleet.ask("GET", "/hall-a/tasks/t-taken")["done_twice"] is True
