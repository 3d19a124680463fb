"""hello and welcome, takeovers, bye, and what is told to a robot about its session."""

from __future__ import annotations

import json
import time
from typing import Any

from robot_gateway.conformance.checking import must, same, until
from robot_gateway.conformance.gateway_rows.speaking import acked, answer, ask, closed_with, cut, refused, say
from robot_gateway.conformance.message_table import with_value
from robot_gateway.conformance.raw_robot import PollingRobot
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import LEASE_MS, SHORT_WINDOW_S, WINDOW_S, Scene

TABLE = Table[Scene]()
HELLO = {"type": "hello", "slots": 2, "capabilities": [], "holding": []}
TOO_LONG = {
    "id": ("/id", "i" * 64, "i" * 65),
    "slots": ("/slots", 1024, 1025),
    "capabilities": ("/capabilities", ["c"] * 64, ["c"] * 65),
    "agent": ("/agent", "a" * 128, "a" * 129),
    "fault": ("/fault", {"text": "x" * 1000}, {"text": "x" * 1001}),
}


@TABLE.row("hello/welcome")
def welcome_says_what_the_robot_needs(scene: Scene) -> None:
    """welcome has all its fields, with the window and heartbeat times of the pool."""
    welcome = scene.enter().hello()
    same(welcome["protocol"], 1, "protocol")
    same(welcome["window_ms"], WINDOW_S * 1000, "window_ms")
    same(welcome["heartbeat_every_ms"], WINDOW_S * 500, "heartbeat_every_ms")
    same((welcome["draining"], welcome["held"]), (False, []), "draining and held")
    must(welcome["payload_max_bytes"] >= 1024, "payload_max_bytes", welcome)
    must(welcome["epoch"] >= 1, "an epoch from 1", welcome)
    must(welcome["position"], "a position", welcome)


@TABLE.row("hello/repeated")
def a_repeated_hello_gets_its_welcome_again(scene: Scene) -> None:
    """A hello again with the same id in the same session: the same epoch."""
    robot = scene.enter()
    said = robot.say_hello()
    first = robot.expect("welcome")
    robot.say_hello(id=said)
    same(robot.expect("welcome")["epoch"], first["epoch"], "the epoch")


@TABLE.row("hello/first")
def hello_first(scene: Scene) -> None:
    """Anything before hello is refused: hello_first (WebSocket), 410 no_session (a poll without session)."""
    robot = scene.enter()
    robot.epoch = 1
    message = say(robot, "ready", {"n": 1})
    if isinstance(robot, PollingRobot):
        told = robot.poll(robot.outbox)
        same((told.status_code, told.json().get("reason")), (410, "no_session"), "HTTP status and reason")
        robot.outbox.clear()
        robot.session = "11111111-2222-4333-8444-555555555555"
    else:
        refused(answer(robot, message), "hello_first")
    robot.hello()


@TABLE.rows("hello/without-{}", {name: (name,) for name in ("id", "slots", "capabilities", "holding")})
def hello_without_a_field(scene: Scene, missing: str) -> None:
    """A hello without a required field: refused(invalid_field) with a pointer to it; a right hello then is welcome."""
    robot = scene.enter()
    hello = {**HELLO, "id": robot.next_id()}
    del hello[missing]
    robot.send(json.dumps(hello))
    told = refused(robot.expect("refused"), "invalid_field", field=f"/{missing}")
    same(told["of"], hello.get("id"), "refused of")
    robot.hello()


@TABLE.rows("hello/too-long-{}", TOO_LONG)
def hello_one_too_many(scene: Scene, place: str, fits: Any, too_long: Any) -> None:
    """What is one longer than allowed in hello is refused with the field; what just fits is welcome."""
    robot = scene.enter()
    hello = {**HELLO, "id": robot.next_id()}
    robot.send(json.dumps(with_value(hello | {place.strip("/"): None}, place, too_long)))
    told = refused(robot.expect("refused"), "invalid_field")
    must(str(told.get("field")).startswith(place), f"a field that begins with {place}", told)
    robot.send(json.dumps(with_value(hello | {place.strip("/"): None}, place, fits)))
    robot.expect("welcome")


@TABLE.row("hello/supersedes")
def a_newer_session_supersedes(scene: Scene) -> None:
    """A newer session of the same robot: superseded, then close code 4001, to the older one."""
    older = scene.robot
    scene.enter().hello()
    closed_with(older, 4001)
    must(any(m["type"] == "superseded" and m["reason"] for m in older.inbox), "superseded before it", list(older.inbox))


@TABLE.row("hello/two-programs")
def two_programs(scene: Scene) -> None:
    """The sixth takeover in a minute by another program: close code 4002; the current session goes on, in ERROR."""
    for _ in range(5):
        scene.enter().hello()
    current = scene.enter()
    current.hello()
    intruder = scene.enter()
    intruder.say_hello()
    closed_with(intruder, 4002)
    acked(current.ask("ready", n=1))
    scene.expect_state("ERROR")


@TABLE.row("hello/names-less")
def attempts_that_hello_does_not_name_are_lost(scene: Scene) -> None:
    """A running attempt that hello does not name is lost at once: LeaseExpired(not_held)."""
    scene.running()
    scene.enter().hello()
    same(scene.expect_event("LeaseExpired")["reason"], "not_held", "the reason")


@TABLE.row("hello/verdicts")
def verdicts_on_what_hello_names(scene: Scene) -> None:
    """What hello names: run if it runs; accept if it is assigned, which comes again; else stop with a reason."""
    runs, assigned = scene.running(), scene.assigned()
    again = scene.enter()
    holding = [
        {**runs, "started": True},
        {**assigned, "started": False},
        {"task": "gone", "attempt": 4, "started": True},
    ]
    welcome = again.hello(holding=holding)
    verdicts = {held["task"]: held for held in welcome["held"]}
    told = [verdicts.get(task, {}).get("verdict") for task in (runs["task"], assigned["task"], "gone")]
    same(told, ["run", "accept", "stop"], "the verdicts")
    same(verdicts["gone"]["reason"], "unknown", "the reason of stop")
    assign = again.expect("assign")
    same((assign["task"], assign["attempt"]), (assigned["task"], assigned["attempt"]), "assign of")
    must(0 < assign["accept_within_ms"] <= LEASE_MS, "what is left to accept", assign)


@TABLE.row("hello/cancel-again")
def a_cancel_is_said_again_after_hello(scene: Scene) -> None:
    """A cancel that was asked before the cut follows the welcome."""
    about = scene.running()
    scene.client.cancel(about["task"], reason="no longer wanted")
    scene.robot.expect("cancel")
    again = scene.enter()
    again.hello(holding=[{**about, "started": True}])
    same(again.expect("cancel")["task"], about["task"], "cancel of")


@TABLE.row("bye/right")
def bye(scene: Scene) -> None:
    """bye: ack, then close code 1000; what the robot worked on is free (AttemptStopped with why bye)."""
    about = scene.running()
    said = say(scene.robot, "bye", {"colour": 1})
    closed_with(scene.robot, 1000)
    heard = [m for m in scene.robot.inbox if "of" in m and m["of"] == said["id"]]
    must(heard and heard[0]["type"] == "ack", "ack to bye", heard)
    scene.expect_state("OFFLINE")
    stopped = scene.expect_event("AttemptStopped")
    same((stopped["task"], stopped["why"]), (about["task"], "bye"), "the end of the attempt")


@TABLE.row("bye/cut-after-sending")
def a_cut_after_bye(scene: Scene) -> None:
    """bye arrives although nobody hears its answer; the next hello is a new session."""
    say(scene.robot, "bye", {})
    cut(scene.robot)
    welcome = scene.enter().hello()
    must(welcome["epoch"] > scene.robot.epoch, f"an epoch above {scene.robot.epoch}", welcome)


@TABLE.row("session/retired")
def a_retired_robot(scene: Scene) -> None:
    """An operator retires the robot: close code 4004."""
    robot = scene.robot
    scene.operate("retire", "sold")
    closed_with(robot, 4004)


@TABLE.row("session/draining")
def draining_is_told(scene: Scene) -> None:
    """After drain a heartbeat_ack says draining."""
    robot = scene.robot
    scene.operate("drain", "maintenance")
    until(lambda: ask(robot, "heartbeat", {"holding": []})["draining"], "draining", scene.patience_s)


@TABLE.row("session/silence")
def silence_of_six_windows(scene: Scene) -> None:
    """No message for six windows: close code 4008 over WebSocket, by polling 410 no_session at the next poll."""
    robot = scene.enter(short_windows=True)
    same(robot.hello()["window_ms"], 1000 * SHORT_WINDOW_S, "window_ms")
    if isinstance(robot, PollingRobot):
        time.sleep(6 * SHORT_WINDOW_S + 1.5)
        told = robot.poll([])
        same((told.status_code, told.json().get("reason")), (410, "no_session"), "HTTP status and reason")
    else:
        closed_with(robot, 4008)
