"""`why` through the gateway: everything that can hold a task is provoked, and named in words and as data."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from robot_gateway.conformance.raw_robot import WebSocketRobot
from tests.support.site import Site, until

Why = dict[str, Any]
WINDOW_S = 0.5


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A whole Fleetlog with short windows."""
    with Site(defaults={"window_ms": 500, "lease_ms": 1_500, "accept_ms": 60_000}, heartbeat_gather_ms=50) as made:
        yield made


class Pool:
    """A pool of its own for a test, with robots that a test leads by the hand."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.robots: list[WebSocketRobot] = []
        answer = site.client.post("/v1/pools", json={"pool": name})
        assert answer.is_success, answer.text

    def submit(self, task: str, **more: Any) -> None:
        """A task of kind `weld`."""
        self.site.submit(self.name, id=task, **more)

    def robot(self, name: str, ready: int | None = None, slots: int = 1, capabilities: tuple[str, ...] = ()) -> Any:
        """A robot that is ready for all its slots, or for so many."""
        robot = self.site.robot(name, self.name)
        robot.hello(slots=slots, capabilities=list(capabilities))
        robot.ask("ready", n=slots if ready is None else ready)
        self.robots.append(robot)
        return robot

    def busy(self, name: str, task: str, **more: Any) -> Any:
        """A robot that runs a task."""
        robot = self.robot(name, **more)
        robot.expect_where(lambda m: m["type"] == "assign" and m["task"] == task)
        self.accept(robot, task)
        return robot

    def accept(self, robot: Any, task: str, attempt: int = 1) -> None:
        """It takes the task."""
        assert robot.ask("accept", task=task, attempt=attempt)["type"] == "ack"

    def fail(self, robot: Any, task: str, attempt: int = 1, of: str = "retryable", **more: Any) -> None:
        """It cannot do the task."""
        error = {"type": "link", "message": "the link is down"}
        robot.ask("fail", task=task, attempt=attempt, error=error, **{"class": of}, **more)

    def post(self, path: str, **body: Any) -> None:
        """A verb."""
        answer = self.site.client.post(f"/v1/pools/{self.name}/{path}", json=body)
        assert answer.is_success, answer.text

    def why(self, task: str) -> Why:
        """What its owner says."""
        answer = self.site.client.get(f"/v1/pools/{self.name}/tasks/{task}/why")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def reasons(self, task: str, *words: str) -> list[Why]:
        """What holds the task, once it is exactly that."""

        def look() -> Any:
            holds = self.why(task)["holds"]
            return holds if [hold["reason"] for hold in holds] == list(words) else None

        found: list[Why] = until(look, f"{task} held by {words}, not by {self.why(task)}")
        answer = self.why(task)
        assert all(hold["text"] for hold in found)
        assert answer["text"].startswith(f"{task} is {answer['state']}")
        return found


@pytest.fixture
def pool(site: Site, request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool that is called like the test."""
    made = Pool(site, re.sub(r"[^\w-]+", "-", request.node.name).strip("-"))
    yield made
    for robot in made.robots:
        robot.leave()


def later(seconds: float) -> str:
    """An instant from now on."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


# ---- nobody who could ----


def test_nobody_registered(pool: Pool) -> None:
    """No robot at all; one that lacks something; one with too few slots."""
    pool.submit("t1", requirement=["gpu"], slot_cost=3)
    pool.reasons("t1", "no_robots")
    pool.robot("r1")
    [hold] = pool.reasons("t1", "unsatisfiable")
    assert hold["missing"] == ["gpu", "slots>=3"]
    assert hold["lacks"] == {"r1": ["gpu", "slots>=3"]}
    pool.robot("r2", slots=2, capabilities=("gpu",))
    [hold] = pool.reasons("t1", "unsatisfiable")
    assert (hold["missing"], hold["slots_max"]) == (["slots>=3"], 2)
    assert "its slot cost 3 is above every robot's slots" in hold["text"]


def _drain(pool: Pool) -> None:
    pool.robot("r1")
    pool.post("robots/r1/drain")


def _busy(pool: Pool) -> None:
    pool.submit("t0", priority=9)
    pool.busy("r1", "t0")


def _not_ready(pool: Pool) -> None:
    pool.robot("r1", ready=0)


def _error(pool: Pool) -> None:
    pool.robot("r1", ready=0).ask("fault", text="the arm is jammed")


def _bye(pool: Pool) -> None:
    pool.robot("r1", ready=0).ask("bye")


ABLE_BUT: dict[str, Callable[[Pool], None]] = {
    "draining": _drain,
    "busy": _busy,
    "not_ready": _not_ready,
    "error": _error,
    "offline": _bye,
}


@pytest.mark.parametrize("word", ABLE_BUT)
def test_able_robots_only(pool: Pool, word: str) -> None:
    """Those who could are draining, busy, not ready, in ERROR or offline: which, how many, and the place in line."""
    ABLE_BUT[word](pool)
    pool.submit("first", priority=5)
    pool.submit("t1")
    [hold] = pool.reasons("t1", "no_robot_free")
    assert hold["robots"] == {word: ["r1"]}
    assert hold["ahead"] == 1
    assert f"1 {word}" in hold["text"]
    assert "1 task stands before it" in hold["text"]


def test_silent_then_offline(pool: Pool) -> None:
    """A robot that was not heard of in a window, and in three."""
    pool.robot("r1", ready=0)
    pool.submit("t1")
    until(lambda: pool.why("t1")["holds"][0]["robots"] == {"silent": ["r1"]}, "silence")
    until(lambda: pool.why("t1")["holds"][0]["robots"] == {"offline": ["r1"]}, "absence")


def test_excluded(pool: Pool) -> None:
    """The only free robot rejected it."""
    pool.submit("t1")
    robot = pool.robot("r1")
    robot.expect("assign")
    pool.robot("r2", ready=0)
    robot.ask("reject", task="t1", attempt=1, reason="cannot")
    [hold] = pool.reasons("t1", "no_robot_free")
    assert hold["robots"] == {"excluded": ["r1"], "not_ready": ["r2"]}


def test_kept_for_a_large_task(pool: Pool) -> None:
    """There is room, but it is kept for a task that needs more and stands before."""
    pool.submit("t0")
    pool.busy("r1", "t0", slots=4)
    pool.submit("large", slot_cost=4)
    pool.submit("t1")
    [hold] = pool.reasons("t1", "robot_kept")
    assert (hold["robot"], hold["by"], hold["ahead"]) == ("r1", "large", 1)


# ---- held ----


def test_the_target_is_held(pool: Pool) -> None:
    """By which task, in which state, with which robot; also after its lease, while the robot may still work."""
    pool.submit("t0", target="dock")
    robot = pool.busy("r1", "t0")
    pool.submit("t1", target="dock")
    [hold] = pool.reasons("t1", "target_held")
    assert (hold["target"], hold["by"], hold["state"], hold["robot"]) == ("dock", "t0", "RUNNING", "r1")
    pool.post("tasks/t0/release", reason="taken back")
    [hold] = pool.reasons("t1", "target_held")
    assert (hold["by"], hold["state"]) == ("t0", "HELD")
    assert "whose robot r1 may still work on attempt 1" in hold["text"]
    robot.ask("stopped", task="t0", attempt=1, why="stop")


def test_the_target_backs_off(pool: Pool) -> None:
    """An earlier task of the target failed: only a higher priority passes."""
    pool.submit("t0", target="dock")
    robot = pool.busy("r1", "t0")
    pool.fail(robot, "t0", retry_after_ms=60_000)
    pool.submit("t1", target="dock")
    [hold] = pool.reasons("t1", "target_backs_off")
    assert (hold["target"], hold["by"]) == ("dock", "t0")
    [own] = pool.reasons("t0", "back_off")
    assert own["failures"] == 1
    assert "1 failure" in own["text"]
    assert own["at"].endswith("Z")


@pytest.mark.parametrize(("path", "word"), [("", "pool"), ("kinds/weld/", "kind"), ("targets/dock/", "target")])
def test_paused(pool: Pool, path: str, word: str) -> None:
    """Which scope, by whom, since and until when, and why."""
    pool.submit("t1", target="dock")
    pool.robot("r1", ready=0)
    pool.post(f"{path}pause", reason="the belt is worn", until=later(600))
    [hold] = pool.reasons("t1", f"{word}_paused")
    assert (hold["paused_by"], hold["why"]) == ("local", "the belt is worn")
    assert hold["paused_at"] < hold["until"]
    assert hold["text"].endswith(": the belt is worn")


def test_a_paused_task(pool: Pool) -> None:
    """By itself, without an end."""
    pool.submit("t1")
    pool.robot("r1", ready=0)
    pool.post("tasks/t1/pause", reason="not today")
    [hold] = pool.reasons("t1", "task_paused")
    assert (hold["name"], hold["why"]) == ("t1", "not today")
    assert "until" not in hold


def test_not_before(pool: Pool) -> None:
    """The instant, and how long that is."""
    pool.robot("r1")
    pool.submit("t1", not_before=later(3_600))
    [hold] = pool.reasons("t1", "not_before")
    assert hold["at"].endswith("Z")
    assert "it may not start for another" in hold["text"]


def test_limits(pool: Pool) -> None:
    """As many as may run, and as many as may begin."""
    pool.submit("t0", limit_key="anna")
    pool.busy("r1", "t0")
    pool.robot("r2")
    path = f"/v1/pools/{pool.name}/limits/key/anna"
    assert pool.site.client.put(path, json={"running": 1}).is_success
    pool.submit("t1", limit_key="anna")
    [hold] = pool.reasons("t1", "limit_reached")
    assert (hold["scope"], hold["name"], hold["held"], hold["running"]) == ("key", "anna", 1, 1)


# ---- deadlines ----


def test_deadlines_passed(pool: Pool) -> None:
    """Which, and what follows by its policy: it runs all the same, or it is a dead letter."""
    pool.submit("t1", deadlines={"start": {"at": later(0.3), "then": "alarm"}})
    pool.submit("t2", deadlines={"end": {"at": later(0.3), "then": "dead"}})
    _, hold = pool.reasons("t1", "no_robots", "deadline_passed")
    assert (hold["which"], hold["then"]) == ("start", "alarm")
    assert "it runs all the same" in hold["text"]
    [dead] = pool.reasons("t2", "dead")
    assert (dead["dead_reason"], dead["which"]) == ("deadline", "end")


def test_a_run_deadline_passed(pool: Pool) -> None:
    """Its robot was asked to stop, and what the task is after that."""
    pool.submit("t1", lease_s=60, deadlines={"run": {"s": 0.2, "then": "cancel"}})
    pool.busy("r1", "t1")
    until(lambda: pool.why("t1")["holds"][-1]["reason"] == "deadline_passed", "the deadline")
    hold = pool.why("t1")["holds"][-1]
    assert "its robot was asked to stop, after which the task is CANCELLED" in hold["text"]


# ---- under way, lost, ended ----


def test_assigned_and_running(pool: Pool) -> None:
    """Which robot has how long to accept; which runs it since when; windows missed; a cancel not yet obeyed."""
    pool.submit("t1", lease_s=60)
    robot = pool.robot("r1")
    robot.expect("assign")
    [hold] = pool.reasons("t1", "accept_awaited")
    assert hold["robot"] == "r1"
    pool.accept(robot, "t1")
    hold = pool.why("t1")["holds"][0]
    assert (hold["reason"], hold["robot"]) == ("running", "r1")
    until(lambda: "missed_windows" in [hold["reason"] for hold in pool.why("t1")["holds"]], "a missed window")
    pool.post("tasks/t1/cancel")
    assert "cancel_requested" in [hold["reason"] for hold in pool.why("t1")["holds"]]


@pytest.mark.parametrize(("policy", "word"), [("wait", "lost_wait"), ("ask", "lost_operator")])
def test_lost(pool: Pool, policy: str, word: str) -> None:
    """Whom it waits for; then cancelled, what stays held and until when."""
    on_lost = {"policy": policy, "wait_s": 600} if policy == "wait" else {"policy": policy}
    pool.submit("t1", target="dock", on_lost=on_lost)
    pool.busy("r1", "t1")
    [hold] = pool.reasons("t1", word)
    assert hold["robot"] == "r1"
    assert hold.get("verbs") == (None if policy == "wait" else ["resolve", "release", "cancel"])
    pool.post("tasks/t1/cancel")
    [hold] = pool.reasons("t1", "held_after")
    assert (hold["robot"], hold["target"], "until" in hold) == ("r1", "dock", policy == "wait")


def test_ended(pool: Pool) -> None:
    """By whom, in which attempt, and that nothing follows; what never was is refused."""
    pool.submit("t1")
    robot = pool.busy("r1", "t1")
    assert robot.ask("complete", task="t1", attempt=1)["type"] == "ack"
    answer = pool.why("t1")
    assert (answer["state"], answer["robot"], answer["late"], answer["holds"]) == ("COMPLETED", "r1", False, [])
    assert answer["text"].endswith("nothing follows.")
    pool.submit("t2")
    robot.expect("assign")
    pool.accept(robot, "t2")
    pool.fail(robot, "t2", of="fatal")
    [dead] = pool.reasons("t2", "dead")
    assert (dead["dead_reason"], dead["verbs"]) == ("fatal", ["redrive", "discard", "resolve"])
    assert pool.site.client.get(f"/v1/pools/{pool.name}/tasks/t3/why").json()["reason"] == "no_such_task"
