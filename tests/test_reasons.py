"""Every reason of the closed list is provoked once, through the public surface.

A word without a scene here fails, and so does a scene that ends with another word.

A scene does what leads to a "no", on a whole Fleetlog, and gives the word that came back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from commands.decide import table
from commands.reasons import REASONS
from robot_gateway.tokens import new_token, write_tokens
from tests.support.site import Site, until

TASKS: Final = "/v1/pools/hall-a/tasks"
PAST: Final = "2020-01-01T00:00:00Z"


class Stage:
    """Where a scene plays: the site that all share, one of its own where it harms it, and pytest's tools."""

    def __init__(self, shared: Site, monkeypatch: pytest.MonkeyPatch, folder: Path, parts: ExitStack) -> None:
        self.shared, self.monkeypatch, self.folder, self._parts = shared, monkeypatch, folder, parts

    def own(self, **settings: Any) -> Site:
        """A site for this scene alone."""
        return self._parts.enter_context(Site(partitions=1, **settings))

    def robot(self, robot: str, pool: str = "hall-a") -> Any:
        """A connected robot of the shared site, after its hello."""
        found = self._parts.enter_context(self.shared.robot(robot, pool))
        found.hello(slots=1)
        return found

    def held(self, robot: str, *, accepted: bool = True) -> tuple[Any, dict[str, Any]]:
        """A robot with a task of its own, and what names the attempt."""
        worker, kind = self.robot(robot), f"kind-{robot}"
        task = self.submit(kind=kind, requirement=[robot])["id"]
        worker.ask("update", capabilities=[robot])
        worker.ask("ready", n=1)
        here = {"task": task, "attempt": worker.expect("assign")["attempt"]}
        if accepted:
            assert worker.ask("accept", **here)["type"] == "ack"
        return worker, here

    def submit(self, **task: Any) -> dict[str, Any]:
        """A task in the shared site; of a requirement that nobody meets unless said otherwise."""
        return self.shared.submit(**{"kind": "weld", "requirement": ["nobody"], **task})

    def http(self, method: str, path: str, site: Site | None = None, **more: Any) -> str:
        """The reason of an answer that says no."""
        return reason_of((site or self.shared).client.request(method, path, **more))


def reason_of(answer: httpx.Response) -> str:
    """The reason word of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return str(answer.json()["reason"])


Scene = Callable[[Stage], str]
SCENES: dict[str, Scene] = {}


def provokes(word: str) -> Callable[[Scene], Scene]:
    """This scene provokes the word."""

    def keep(scene: Scene) -> Scene:
        assert word not in SCENES, word
        SCENES[word] = scene
        return scene

    return keep


# ---- one request each ----

REQUESTS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "malformed_json": ("POST", TASKS, {"content": b"{", "headers": {"Content-Type": "application/json"}}),
    "unsupported_media_type": ("POST", TASKS, {"content": b"<a/>", "headers": {"Content-Type": "text/xml"}}),
    "bad_cursor": ("GET", "/v1/tasks?cursor=nonsense", {}),
    "bad_filter": ("GET", "/v1/tasks?where=nonsense", {}),
    "unknown_position": ("GET", "/v1/tasks?after=00000000~0:1", {}),
    "forbidden": ("GET", "/v1/tasks", {"headers": {"Origin": "https://elsewhere.example"}}),
    "no_such_route": ("GET", "/v2/tasks", {}),
    "no_such_pool": ("GET", "/v1/pools/nowhere", {}),
    "no_such_task": ("GET", f"{TASKS}/nothing", {}),
    "no_such_robot": ("POST", "/v1/pools/hall-a/robots/nobody/drain", {"json": {}}),
    "no_such_target": ("GET", "/v1/pools/hall-a/targets/nothing", {}),
    "no_such_schedule": ("GET", "/v1/pools/hall-a/schedules/nothing", {}),
    "no_such_limit": ("DELETE", "/v1/pools/hall-a/limits/kind/nothing", {}),
    "no_such_bulk": ("GET", "/v1/bulk/nothing", {}),
    "method_not_allowed": ("DELETE", "/v1/tasks", {}),
    "clock_trusted": ("POST", "/v1/clock/accept", {"json": {"reason": "no need"}}),
    "not_frozen": ("POST", "/v1/pools/hall-a/unfreeze", {"json": {"reason": "no need"}}),
    "too_large": ("POST", TASKS, {"json": {"kind": "weld", "payload": "x" * 300_000}}),
    "invalid_field": ("POST", TASKS, {"json": {"kind": "weld", "priority": 10}}),
    "unknown_field": ("POST", TASKS, {"json": {"kind": "weld", "prority": 1}}),
    "lease_too_short": ("POST", TASKS, {"json": {"kind": "weld", "lease_s": 1}}),
    "deadline_passed": (
        "POST",
        TASKS,
        {"json": {"kind": "weld", "deadlines": {"start": {"at": PAST, "then": "dead"}}}},
    ),
    "never_fires": (
        "PUT",
        "/v1/pools/hall-a/schedules/never",
        {"json": {"cron": "0 0 30 2 *", "task": {"kind": "weld"}}},
    ),
    "impossible_settings": ("PATCH", "/v1/pools/hall-a", {"json": {"settings": {"lease_s": 10}}}),
    "token_stale": ("POST", "/v1/bulk", {"json": {"verb": "cancel", "token": "older", "reason": "x"}}),
}
"""Reason -> method, path, and what is sent."""


def _asks(method: str, path: str, more: dict[str, Any]) -> Scene:
    return lambda stage: stage.http(method, path, **more)


for _word, (_method, _path, _more) in REQUESTS.items():
    SCENES[_word] = _asks(_method, _path, _more)


# ---- several requests ----


@provokes("protocol_version")
def _another_protocol(stage: Stage) -> str:
    url = stage.shared.url.replace("http", "ws", 1)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}/v1/pools/hall-a/robots/r0/session", subprotocols=None)
    return str(json.loads(refused.value.response.body or b"{}")["reason"])


@provokes("unauthenticated")
def _no_token(stage: Stage) -> str:
    tokens = stage.folder / "tokens.toml"
    write_tokens(tokens, [new_token("somebody", "viewer", pools=["*"])[1]])
    return stage.http("GET", "/v1/tasks", stage.own(tokens=tokens))


@provokes("id_conflict")
def _another_task_of_that_id(stage: Stage) -> str:
    task = stage.submit(payload=1)["id"]
    return stage.http("POST", TASKS, json={"id": task, "kind": "weld", "payload": 2})


@provokes("command_id_conflict")
def _another_command_of_that_id(stage: Stage) -> str:
    key = {"Idempotency-Key": "11111111-2222-4333-8444-555555555555"}
    assert stage.shared.client.post(TASKS, json={"kind": "weld", "requirement": ["nobody"]}, headers=key).is_success
    return stage.http("POST", TASKS, json={"kind": "other"}, headers=key)


@provokes("wrong_state")
def _discard_what_waits(stage: Stage) -> str:
    task = stage.submit()["id"]
    return stage.http("POST", f"{TASKS}/{task}/discard", json={"reason": "x"})


@provokes("reason_required")
def _discard_without_a_word(stage: Stage) -> str:
    worker, here = stage.held("quiet")
    worker.ask("fail", **here, **{"class": "fatal", "error": {"type": "x", "message": "y"}})
    return stage.http("POST", f"{TASKS}/{here['task']}/discard", json={})


@provokes("too_many_lanes")
def _one_requirement_too_many(stage: Stage) -> str:
    stage.shared.client.post("/v1/pools", json={"pool": "narrow", "settings": {"lanes_max": 1}})
    stage.shared.submit("narrow", requirement=["a"])
    return stage.http("POST", "/v1/pools/narrow/tasks", json={"kind": "weld", "requirement": ["b"]})


@provokes("queue_full")
def _one_task_too_many(stage: Stage) -> str:
    stage.shared.client.post("/v1/pools", json={"pool": "short", "settings": {"queue_max": 1}})
    stage.shared.submit("short")
    return stage.http("POST", "/v1/pools/short/tasks", json={"kind": "weld"})


@provokes("robot_has_attempts")
def _retire_one_that_works(stage: Stage) -> str:
    stage.held("worker")
    return stage.http("POST", "/v1/pools/hall-a/robots/worker/retire", json={"reason": "x"})


@provokes("cursor_expired")
def _a_cursor_of_yesterday(stage: Stage) -> str:
    for _ in range(2):
        stage.shared.settled(stage.submit())
    page = stage.shared.client.get("/v1/tasks?limit=1").json()
    stage.monkeypatch.setattr(stage.shared.tables, "_clock", lambda: time.time_ns() // 1_000_000 + 86_400_000)
    return stage.http("GET", "/v1/tasks", params={"limit": 1, "cursor": page["next"]})


@provokes("behind")
def _a_position_that_is_not_reached(stage: Stage) -> str:
    site = stage.own(after_wait_s=0.05)
    site.settled(site.submit())
    return stage.http("GET", f"/v1/tasks?after={site.store.log_id[:8]}~hall-a@999", site)


@provokes("not_ready")
def _no_tables(stage: Stage) -> str:
    return stage.http("GET", "/v1/tasks", stage.own(projector=False))


@provokes("log_unavailable")
def _no_log(stage: Stage) -> str:
    site = stage.own()
    site.store.away = True
    try:
        return stage.http("GET", "/v1/events", site)
    finally:
        site.store.away = False


@provokes("gateway_busy")
def _more_than_may_wait(stage: Stage) -> str:
    site = stage.own(scripted=True, projector=False)
    site.store._held_bytes_max = 0
    site.store.hold()
    try:
        return stage.http("POST", TASKS, site, json={"kind": "weld"})
    finally:
        site.store.release()


@provokes("no_answer")
def _an_owner_that_is_silent(stage: Stage) -> str:
    site = stage.own(scripted=True, projector=False)
    site.owner.on_command = lambda command: None
    site.gateway.pending._timeout_s = 0.1
    return stage.http("POST", TASKS, site, json={"kind": "weld"})


@provokes("quarantined")
def _a_fault_in_deciding(stage: Stage) -> str:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    task = stage.submit()["id"]
    stage.monkeypatch.setitem(table._VERBS, "cancel", broken)
    return stage.http("POST", f"{TASKS}/{task}/cancel", json={})


@provokes("internal")
def _a_fault_in_the_gateway(stage: Stage) -> str:
    def broken(**_: Any) -> Any:
        raise ZeroDivisionError

    stage.monkeypatch.setattr(stage.shared.gateway, "readiness", broken)
    return stage.http("GET", "/readyz")


# ---- robots ----


@provokes("no_session")
def _a_poll_without_a_hello(stage: Stage) -> str:
    with stage.shared.polling_robot("stranger") as robot:
        return reason_of(robot.poll([]))


@provokes("wrong_gateway")
def _a_poll_at_another_gateway(stage: Stage) -> str:
    site = stage.own()
    with site.robot("r1") as robot, site.polling_robot("r1") as other:
        robot.hello()
        until(lambda: site.client.get("/v1/pools/hall-a/robots/r1").status_code == 200)
        site.gateway.name = "another-life"
        return reason_of(other.poll([]))


@provokes("two_programs")
def _a_sixth_supersession_in_a_minute(stage: Stage) -> str:
    robots = [stage.robot("twin") for _ in range(6)]
    last = stage.shared.robot("twin")
    with last:
        of = last.say_hello()
        assert len(robots) == 6
        return str(last.answer_to(of)["reason"])


@provokes("superseded")
def _an_older_hello(stage: Stage) -> str:
    newer = stage.robot("again")
    with stage.shared.robot("again") as older:
        newer_id = newer.say_hello(id=f"{newer.boot}.9")
        newer.answer_to(newer_id)
        of = older.say_hello(id=f"{newer.boot}.5")
        return str(older.answer_to(of)["reason"])


@provokes("hello_first")
def _work_before_a_hello(stage: Stage) -> str:
    with stage.shared.robot("impolite") as robot:
        return str(robot.ask("ready", n=1)["reason"])


@provokes("unknown_type")
def _a_word_of_its_own(stage: Stage) -> str:
    return str(stage.robot("dancer").ask("dance")["reason"])


@provokes("too_fast")
def _two_checkpoints_at_once(stage: Stage) -> str:
    worker, here = stage.held("hasty")
    said = [worker.say("checkpoint", **here, number=number, value=1) for number in range(1, 6)]
    answers = [worker.answer_to(of) for of in said]
    return next(str(answer["reason"]) for answer in answers if answer["type"] == "refused")


@provokes("not_in_error")
def _recovered_from_nothing(stage: Stage) -> str:
    return str(stage.robot("sound").ask("recovered")["reason"])


@provokes("slots_in_use")
def _fewer_slots_than_are_used(stage: Stage) -> str:
    worker = stage.robot("wide")
    worker.ask("update", slots=2, capabilities=["wide"])
    for _ in range(2):
        stage.submit(kind="wide", requirement=["wide"])
    worker.ask("ready", n=2)
    for _ in range(2):
        said = worker.expect("assign")
        worker.ask("accept", task=said["task"], attempt=said["attempt"])
    return str(worker.ask("update", slots=1)["reason"])


@provokes("withdrawn")
def _accepted_too_late(stage: Stage) -> str:
    stage.shared.client.post("/v1/pools", json={"pool": "quick", "settings": {"accept_s": 0.5}})
    worker = stage.robot("late", "quick")
    task = stage.shared.submit("quick")["id"]
    worker.ask("ready", n=1)
    here = {"task": task, "attempt": worker.expect("assign")["attempt"]}
    worker.ask("ready", n=0)
    history = f"/v1/pools/quick/tasks/{task}/history"
    until(lambda: "AssignmentWithdrawn" in stage.shared.client.get(history).text, "the withdrawal")
    return str(worker.ask("accept", **here)["reason"])


@provokes("not_current")
def _a_checkpoint_of_the_past(stage: Stage) -> str:
    worker, here = stage.held("past")
    worker.ask("complete", **here, result=1)
    return str(worker.ask("checkpoint", **here, number=1, value=1)["reason"])


@provokes("not_yours")
def _somebody_elses_attempt(stage: Stage) -> str:
    _, here = stage.held("owner")
    return str(stage.robot("thief").ask("complete", **here, result=1)["reason"])


@provokes("not_accepted")
def _done_before_it_was_accepted(stage: Stage) -> str:
    worker, here = stage.held("eager", accepted=False)
    return str(worker.ask("complete", **here, result=1)["reason"])


@provokes("already_accepted")
def _rejected_after_it_was_accepted(stage: Stage) -> str:
    worker, here = stage.held("fickle")
    return str(worker.ask("reject", **here, reason="busy")["reason"])


@provokes("unknown_task")
def _a_task_nobody_knows(stage: Stage) -> str:
    return str(stage.robot("dreamer").ask("accept", task="nothing", attempt=1)["reason"])


# ---- played ----


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """A fleet with the pool hall-a."""
    with Site(partitions=1) as site:
        site.settled(site.submit("hall-a", requirement=["nobody"]))
        yield site


@pytest.mark.parametrize("word", list(REASONS))
def test_a_reason_is_provoked(word: str, shared: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The scene of this word ends with it; a word without a scene is in the list for nothing."""
    assert word in SCENES, f"nothing provokes {word}: give it a scene, or take it from the list"
    with ExitStack() as parts:
        assert SCENES[word](Stage(shared, monkeypatch, tmp_path, parts)) == word


def test_no_scene_is_left_over() -> None:
    """A word that left the list takes its scene with it."""
    assert set(SCENES) == set(REASONS)
