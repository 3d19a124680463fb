"""heartbeat and heartbeat_ack."""

from __future__ import annotations

from typing import Any

from robot_gateway.conformance.checking import must, same, until
from robot_gateway.conformance.gateway_rows.speaking import ask, refused
from robot_gateway.conformance.message_table import with_value
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import WINDOW_S, Scene

TABLE = Table[Scene]()
MISSING = {name.replace("/", "-"): (name,) for name in ("holding", "holding/0/task", "holding/0/attempt")}
TOO_LONG = {"progress": ("progress", 101), "note": ("note", "n" * 201), "attempt": ("attempt", 2**53)}


@TABLE.row("heartbeat/answered")
def a_heartbeat_is_answered(scene: Scene) -> None:
    """heartbeat_ack comes with all its fields; progress that was told is shown."""
    robot = scene.robot
    told = ask(robot, "heartbeat", {"holding": []})
    same(told["type"], "heartbeat_ack", "type")
    same((told["stop"], told["cancel"], told["draining"]), ([], [], False), "stop, cancel and draining")
    same(told["heartbeat_every_ms"], WINDOW_S * 500, "heartbeat_every_ms")
    about = scene.running()
    told = ask(robot, "heartbeat", {"holding": [{**about, "progress": 40, "note": "half", "colour": 1}]})
    same(told["stop"], [], "stop")
    until(lambda: scene.client.task(about["task"]).raw.get("progress") == 40, "a progress of 40", scene.patience_s)


@TABLE.row("heartbeat/wrong-entries")
def wrong_entries_are_answered_with_stop(scene: Scene) -> None:
    """An unknown task, a wrong attempt, somebody else's: stop, again in each heartbeat_ack while it is named."""
    about = scene.running()
    other = scene.enter("r2")
    other.hello()
    wrong = (
        (scene.robot, {"task": "nobody-knows-it", "attempt": 1}),
        (scene.robot, {**about, "attempt": 7}),
        (other, about),
    )
    for robot, entry in wrong:
        ask(robot, "heartbeat", {"holding": [entry]})
        stop = robot.expect_where(
            lambda m, entry=entry: m["type"] == "stop" and entry.items() <= m.items(),  # type: ignore[misc]
            f"stop for {entry}",
        )
        must(stop["reason"] in ("unknown", "newer_attempt", "ended"), "a reason of stop", stop)
        told = ask(robot, "heartbeat", {"holding": [entry]})
        same([{name: s[name] for name in ("task", "attempt")} for s in told["stop"]], [entry], "stop again for")
        same(ask(robot, "heartbeat", {"holding": []})["stop"], [], "stop")


@TABLE.rows("heartbeat/without-{}", MISSING)
def a_heartbeat_without_a_field(scene: Scene, missing: str) -> None:
    """A required field is missing: refused(invalid_field) with a pointer to it; the next heartbeat is answered."""
    fields = with_value({"holding": [{"task": "t", "attempt": 1}]}, missing, ...)
    refused(ask(scene.robot, "heartbeat", fields), "invalid_field", field=f"/{missing}")
    same(ask(scene.robot, "heartbeat", {"holding": []})["type"], "heartbeat_ack", "type")


@TABLE.rows("heartbeat/too-long-{}", TOO_LONG)
def a_heartbeat_one_too_many(scene: Scene, name: str, value: Any) -> None:
    """A value that is too large: refused(invalid_field) with a pointer to it."""
    told = ask(scene.robot, "heartbeat", {"holding": [{"task": "t", "attempt": 1, name: value}]})
    refused(told, "invalid_field", field=f"/holding/0/{name}")


@TABLE.row("heartbeat/old-epoch")
def a_heartbeat_with_an_old_epoch(scene: Scene) -> None:
    """An epoch that is over: refused(no_session)."""
    refused(ask(scene.robot, "heartbeat", {"holding": []}, epoch=0), "no_session")
