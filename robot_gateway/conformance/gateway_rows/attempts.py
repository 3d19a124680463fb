"""What a gateway says about attempts, and when it refuses what a robot says about them."""

from __future__ import annotations

from robot_gateway.conformance.checking import must, same, until
from robot_gateway.conformance.gateway_rows.speaking import acked, ask, refused
from robot_gateway.conformance.message_table import MESSAGE_ROWS, MessageRow
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import LEASE_MS, Scene, attempt_of

TABLE = Table[Scene]()
NEED_AN_ACCEPT = {row.kind: (row,) for row in MESSAGE_ROWS if "not_accepted" in row.refusals}


@TABLE.row("assign/fields")
def assign_says_what_the_robot_needs(scene: Scene) -> None:
    """assign has all its fields; idempotency_key is the id of TaskSubmitted, assignment_id that of TaskAssigned."""
    robot, target = scene.robot, f"dock-{scene.name}"
    handle = scene.submit({"seam": 3}, labels={"line": "3"}, target=target)
    assign = robot.expect("assign")
    events = {event["type"]: event for event in scene.client.history(handle.id)}
    same(assign["idempotency_key"], events["TaskSubmitted.v1"]["id"], "idempotency_key")
    same(assign["assignment_id"], events["TaskAssigned.v1"]["id"], "assignment_id")
    same((assign["task"], assign["attempt"], assign["kind"]), (handle.id, 1, "weld"), "task, attempt and kind")
    same(assign["payload"], {"seam": 3}, "payload")
    told = (assign["target"], assign["labels"], assign["slot_cost"])
    same(told, (target, {"line": "3"}, 1), "target, labels and slot_cost")
    same((assign["failures"], assign["lost"]), (0, 0), "failures and lost")
    same(assign["lease_ms"], LEASE_MS, "lease_ms")
    must(0 < assign["accept_within_ms"] <= LEASE_MS, "what is left to accept", assign)


@TABLE.row("assign/payload-url")
def a_large_payload_comes_as_a_path(scene: Scene) -> None:
    """A payload above inline_max_bytes of hello comes as payload_url; the robot fetches it there with its token."""
    robot = scene.enter()
    robot.hello(inline_max_bytes=1024)
    acked(ask(robot, "ready", {"n": 1}))
    payload = {"points": "x" * 2000}
    scene.submit(payload)
    assign = robot.expect("assign")
    must("payload" not in assign, "no payload within assign", assign)
    same(robot.fetch(assign["payload_url"]), payload, "at payload_url")


@TABLE.row("accept/lease")
def the_ack_of_accept_says_the_lease(scene: Scene) -> None:
    """The ack of accept says lease_ms; stop_after_ms is the lease for requeue, and absent for never."""
    told = ask(scene.robot, "accept", scene.assigned())
    same(told["lease_ms"], LEASE_MS, "lease_ms")
    must("stop_after_ms" not in told, "no stop_after_ms", told)
    scene.submit(on_lost="requeue")
    told = ask(scene.robot, "accept", attempt_of(scene.robot.expect("assign")))
    same((told["stop_after_ms"], told["lease_ms"]), (LEASE_MS, LEASE_MS), "stop_after_ms and lease_ms")


@TABLE.row("ready/never-more")
def never_more_than_ready(scene: Scene) -> None:
    """ready(2): two tasks, the third only when one has ended; ready(0): nothing more."""
    robot = scene.robot
    first, _ = scene.running(), scene.running()
    scene.submit()
    _not_assigned(scene)
    acked(ask(robot, "complete", first))
    third = attempt_of(robot.expect("assign"))
    acked(ask(robot, "ready", {"n": 0}))
    acked(ask(robot, "reject", third | {"reason": "busy"}))
    _not_assigned(scene)


def _not_assigned(scene: Scene) -> None:
    ask(scene.robot, "heartbeat", {"holding": []})
    given = [m for m in scene.robot.inbox if m["type"] == "assign"]
    must(not given, "no assign", given)


@TABLE.rows("{}/before-accept", NEED_AN_ACCEPT)
def what_needs_an_accept(scene: Scene, row: MessageRow) -> None:
    """About an attempt that was not accepted: refused(not_accepted)."""
    refused(ask(scene.robot, row.kind, row.fields | scene.assigned()), "not_accepted")


@TABLE.row("reject/after-accept")
def reject_after_accept(scene: Scene) -> None:
    """reject of an accepted attempt: refused(already_accepted)."""
    refused(ask(scene.robot, "reject", scene.running() | {"reason": "busy"}), "already_accepted")


@TABLE.row("accept/withdrawn")
def a_withdrawn_assignment(scene: Scene) -> None:
    """Not accepted in time: withdrawn and assigned again; the older accept is refused, the newer taken."""
    robot = scene.robot
    scene.submit(accept_s=0.5)
    first, second = attempt_of(robot.expect("assign")), attempt_of(robot.expect("assign"))
    same((first["attempt"], second["attempt"]), (1, 2), "the attempts")
    refused(ask(robot, "accept", first), "withdrawn", "not_current")
    told = ask(robot, "accept", second)
    if told["type"] != "ack":  # it lapses after half a second as well
        refused(told, "withdrawn", "not_current")


@TABLE.row("checkpoint/too-fast")
def checkpoints_one_a_second(scene: Scene) -> None:
    """A second number at once: refused(too_fast) with a time; after it, taken; an older number is a repeat."""
    robot, about = scene.robot, scene.running()
    acked(ask(robot, "checkpoint", about | {"number": 1, "value": 1}))
    told = refused(ask(robot, "checkpoint", about | {"number": 2, "value": 2}), "too_fast", retry=True)
    must(0 < told["retry_after_ms"] <= 1000, "retry_after_ms up to 1000", told)
    second = about | {"number": 2, "value": 2}
    until(lambda: ask(robot, "checkpoint", second)["type"] == "ack", "ack to the second one", scene.patience_s)
    repeated = acked(ask(robot, "checkpoint", about | {"number": 1, "value": 1}))
    same(len(scene.events("CheckpointSaved", repeated["position"])), 2, "events CheckpointSaved:")


@TABLE.row("checkpoint/handed-on")
def a_checkpoint_goes_to_the_next_attempt(scene: Scene) -> None:
    """The value saved by a stopped attempt comes with the next assignment."""
    robot, about = scene.robot, scene.running()
    acked(ask(robot, "checkpoint", about | {"number": 1, "value": {"offset": 7}}))
    acked(ask(robot, "stopped", about | {"why": "shutdown"}))
    assign = robot.expect("assign")
    same(assign["attempt"], 2, "attempt")
    same(assign["checkpoint"], {"number": 1, "value": {"offset": 7}}, "checkpoint")


@TABLE.row("complete/late")
def late_reports_are_acknowledged_as_late(scene: Scene) -> None:
    """complete about an attempt that a newer one has replaced: ack with late, and on record once."""
    robot, about = scene.robot, scene.running()
    scene.client.release(about["task"], reason="a row of the suite", force=True)
    robot.expect("stop")
    same(robot.expect("assign")["attempt"], 2, "the newer attempt")
    told = acked(ask(robot, "complete", about | {"result": 1}))
    must(told.get("late") is True, "late", told)
    same(len(scene.events("ReportedLate", told["position"])), 1, "events ReportedLate:")


@TABLE.row("cancel/reaches-the-robot")
def cancel_reaches_the_robot(scene: Scene) -> None:
    """cancel is said, and again in heartbeat_ack while the attempt is named; after stopped the task is CANCELLED."""
    robot, about = scene.robot, scene.running()
    scene.client.cancel(about["task"], reason="no longer wanted")
    same(robot.expect("cancel")["task"], about["task"], "cancel of")
    told = ask(robot, "heartbeat", {"holding": [about]})
    same([attempt_of(c) for c in told["cancel"]], [about], "cancel in heartbeat_ack of")
    acked(ask(robot, "stopped", about | {"why": "cancel"}))
    same(scene.client.wait(about["task"], timeout_s=scene.patience_s).state, "CANCELLED", "a task")


@TABLE.row("stop/reaches-the-robot")
def stop_reaches_the_robot(scene: Scene) -> None:
    """After release the robot is told stop(released), and its stopped is taken."""
    robot, about = scene.robot, scene.running()
    scene.client.release(about["task"], reason="stuck")
    stop = robot.expect("stop")
    same((stop["task"], stop["reason"]), (about["task"], "released"), "stop of")
    acked(ask(robot, "stopped", about | {"why": "stop"}))


@TABLE.row("update/slots-in-use")
def fewer_slots_than_are_in_use(scene: Scene) -> None:
    """Fewer slots than are in use: refused(slots_in_use), retryable; an update of nothing: refused(invalid_field)."""
    robot = scene.robot
    scene.running(), scene.running()
    refused(ask(robot, "update", {"slots": 1}), "slots_in_use", retry=True)
    refused(ask(robot, "update", {}), "invalid_field")


@TABLE.row("recovered/right")
def fault_and_recovered(scene: Scene) -> None:
    """fault: ERROR; recovered is taken once, and without a fault refused(not_in_error)."""
    robot = scene.robot
    refused(ask(robot, "recovered", {}), "not_in_error")
    acked(ask(robot, "fault", {"text": "no gas"}))
    scene.expect_state("ERROR")
    acked(ask(robot, "recovered", {"colour": 1}))
    refused(ask(robot, "recovered", {}), "not_in_error")
    refused(ask(robot, "recovered", {}, epoch=0), "no_session")
