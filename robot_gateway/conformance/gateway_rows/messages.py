"""Every message of a robot that is answered by ack: right, and wrong in each of the ways in which it can be."""

from __future__ import annotations

from typing import Any

from robot_gateway.conformance.checking import must, same
from robot_gateway.conformance.gateway_rows.speaking import acked, answer, ask, comparable, cut, refused, say
from robot_gateway.conformance.message_table import ABOUT_ATTEMPTS, MESSAGE_ROWS, MessageRow, with_value
from robot_gateway.conformance.row import Table
from robot_gateway.conformance.scene import Scene

TABLE = Table[Scene]()
EVERY = {row.kind: (row,) for row in MESSAGE_ROWS}
ABOUT = {row.kind: (row,) for row in ABOUT_ATTEMPTS}


@TABLE.rows("{}/right", EVERY)
def right(scene: Scene, row: MessageRow) -> None:
    """The right message in the right state is acknowledged, with a position."""
    told = acked(ask(scene.robot, row.kind, row.message(scene)))
    must(told["position"], "a position", told)


@TABLE.rows("{}/repeated", EVERY)
def repeated(scene: Scene, row: MessageRow) -> None:
    """Sent again with the same id and the next number, and again under a new id: the same answer, one event."""
    fields = row.message(scene)
    said = say(scene.robot, row.kind, fields)
    first = acked(answer(scene.robot, said))
    second = ask(scene.robot, row.kind, fields, id=said["id"])
    third = ask(scene.robot, row.kind, fields)
    same(comparable(second), comparable(first), "to the same id again")
    same(comparable(third), comparable(first), "to a new id")
    _once(scene, row, third["position"])


@TABLE.rows("{}/old-epoch", EVERY)
def an_old_epoch(scene: Scene, row: MessageRow) -> None:
    """An epoch that is over: refused(no_session), nothing happens, and the same in the right epoch is taken."""
    fields = row.message(scene)
    refused(ask(scene.robot, row.kind, fields, epoch=scene.robot.epoch - 1), "no_session", field="/epoch")
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows("{}/old-number", EVERY)
def an_old_number(scene: Scene, row: MessageRow) -> None:
    """A seq not above the last: refused(invalid_field), and the same with the next number is taken."""
    fields = row.message(scene)
    refused(ask(scene.robot, row.kind, fields, seq=1), "invalid_field", field="/seq")
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows("{}/unknown-field", EVERY)
def an_unknown_field(scene: Scene, row: MessageRow) -> None:
    """A field that the protocol does not have is ignored."""
    acked(ask(scene.robot, row.kind, row.message(scene) | {"colour": {"deep": [1, None]}}))


@TABLE.rows(
    "{}",
    {
        f"{row.kind}/without-{name}": (row, name)
        for row in MESSAGE_ROWS
        for name in ("id", "epoch", "seq", *row.required)
    },
)
def a_missing_field(scene: Scene, row: MessageRow, missing: str) -> None:
    """A required field is missing: refused(invalid_field) with a pointer to it, and the connection goes on."""
    fields = row.message(scene)
    message = say(scene.robot, row.kind, fields, **{missing: ...})
    told = scene.robot.expect_where(lambda m: m["type"] == "refused" and m["of"] == message.get("id"), "refused")
    reasons = ("no_session", "invalid_field") if missing == "epoch" else ("invalid_field",)
    refused(told, *reasons, field=f"/{missing}")
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows(
    "{}",
    {
        f"{row.kind}/too-long-{place.strip('/').replace('/', '-')}": (row, place, fits, too_long)
        for row in MESSAGE_ROWS
        for place, fits, too_long in row.too_long
    },
)
def one_too_many(scene: Scene, row: MessageRow, place: str, fits: Any, too_long: Any) -> None:
    """What is one longer than allowed is refused with the field; what just fits is taken."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, with_value(fields, place, too_long))
    refused(told, "invalid_field", "too_large", field=place)
    acked(ask(scene.robot, row.kind, with_value(fields, place, fits)))


@TABLE.rows("{}/wrong-attempt", ABOUT)
def a_wrong_attempt(scene: Scene, row: MessageRow) -> None:
    """An attempt that never was: refused with a reason of the message's row; the right one is still taken."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, fields | {"attempt": fields["attempt"] + 1})
    refused(told, *sorted(row.refusals), retry=False)
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows("{}/unknown-task", ABOUT)
def an_unknown_task(scene: Scene, row: MessageRow) -> None:
    """A task that nobody knows: refused with a reason of the message's row; the right one is still taken."""
    fields = row.message(scene)
    told = ask(scene.robot, row.kind, fields | {"task": "nobody-knows-it"})
    refused(told, *sorted(row.refusals | {"unknown_task"}), retry=False)
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows("{}/foreign-robot", ABOUT)
def a_foreign_robot(scene: Scene, row: MessageRow) -> None:
    """Somebody else's attempt: refused(not_yours); its own robot is still heard."""
    fields = row.message(scene)
    other = scene.enter("r2")
    other.hello()
    refused(ask(other, row.kind, fields), "not_yours")
    acked(ask(scene.robot, row.kind, fields))


@TABLE.rows("{}/cut-after-sending", EVERY)
def a_cut_after_the_message(scene: Scene, row: MessageRow) -> None:
    """The connection breaks after the send: whether it arrived or not, after a new hello the repeat is taken, once."""
    fields = row.message(scene)
    said = say(scene.robot, row.kind, fields)
    cut(scene.robot)
    again = scene.enter()
    held = {name: fields[name] for name in ("task", "attempt") if name in fields}
    welcome = again.hello(holding=[{**held, "started": row.kind not in ("accept", "reject")}] if held else [])
    must(welcome["epoch"] > scene.robot.epoch, f"an epoch above {scene.robot.epoch}", welcome)
    told = acked(ask(again, row.kind, fields, id=said["id"]))
    _once(scene, row, told["position"])


def _once(scene: Scene, row: MessageRow, after: str) -> None:
    """The message has left its event exactly once."""
    if row.once is not None:
        found = scene.events(row.once, after)
        must(len(found) == 1, f"one {row.once} in the history", [event["type"] for event in found])
