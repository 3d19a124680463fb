"""The table "robot to gateway" of the robot protocol, as data.

Each row says how to come into the state in which the message is right, what it holds, what answers it, and how it can
be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from commands.messages import BODY_BYTES_MAX
from robot_gateway.conformance.scene import Scene

Fields = dict[str, Any]
DETAIL_BYTES_MAX = 16 * 1024


@dataclass(frozen=True)
class MessageRow:
    """One message of the table.

    `scene`: the state before, its result goes into the message. `refusals`: what may answer it beside an ack.
    `once`: the event of which there must be exactly one, however often it is sent. `too_long`: place in the message,
    a value that just fits, one that does not.
    """

    kind: str
    fields: Fields
    required: tuple[str, ...]
    refusals: frozenset[str]
    scene: Callable[[Scene], Fields] = lambda _: {}
    once: str | None = None
    too_long: tuple[tuple[str, Any, Any], ...] = field(default=())

    def __str__(self) -> str:
        return self.kind

    @property
    def about_an_attempt(self) -> bool:
        """Whether it names task and attempt."""
        return "attempt" in self.required

    def message(self, scene: Scene, **changed: Any) -> Fields:
        """The right message in the right state, or with other fields."""
        return {**self.fields, **self.scene(scene), **changed}


def sized(bytes_: int) -> str:
    """A string that is as long as that in JSON."""
    return "x" * (bytes_ - 2)


def with_value(fields: Fields, place: str, value: Any) -> Fields:
    """`fields` with another value at a JSON pointer; `...` takes the field away."""
    copied: Fields = json.loads(json.dumps(fields))
    *path, last = place.strip("/").split("/")
    inner: Any = copied
    for name in path:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copied


FINAL = frozenset({"not_yours", "not_accepted", "unknown_task", "too_large"})
ERROR: Fields = {"type": "Burnt", "message": "the seam is burnt", "detail": {"at": 3}}

MESSAGE_ROWS = [
    MessageRow("ready", {"n": 1}, ("n",), frozenset({"invalid_field"}), too_long=(("/n", 2, 3),)),
    MessageRow(
        "update",
        {"slots": 2, "capabilities": ["gpu"]},
        (),
        frozenset({"slots_in_use"}),
        too_long=(("/slots", 1024, 1025), ("/capabilities", ["c"] * 64, ["c"] * 65)),
    ),
    MessageRow(
        "accept",
        {},
        ("task", "attempt"),
        frozenset({"withdrawn", "not_current", "not_yours", "unknown_task"}),
        Scene.assigned,
        "LeaseStarted",
    ),
    MessageRow(
        "reject",
        {"reason": "busy", "text": "later"},
        ("task", "attempt", "reason"),
        frozenset({"withdrawn", "not_current", "not_yours", "already_accepted"}),
        Scene.assigned,
        "AssignmentRejected",
        (("/text", "x" * 200, "x" * 201),),
    ),
    MessageRow(
        "checkpoint",
        {"number": 1, "value": {"offset": 4096}},
        ("task", "attempt", "number", "value"),
        frozenset({"not_current", "not_yours", "not_accepted", "too_large", "too_fast"}),
        Scene.running,
        "CheckpointSaved",
        (("/value", sized(BODY_BYTES_MAX), sized(BODY_BYTES_MAX + 1)),),
    ),
    MessageRow(
        "complete",
        {"result": {"done": True}},
        ("task", "attempt"),
        FINAL,
        Scene.running,
        "TaskCompleted",
        (("/result", sized(BODY_BYTES_MAX), sized(BODY_BYTES_MAX + 1)),),
    ),
    MessageRow(
        "fail",
        {"class": "fatal", "error": ERROR},
        ("task", "attempt", "class", "error"),
        FINAL,
        Scene.running,
        "AttemptFailed",
        (
            ("/error/type", "x" * 128, "x" * 129),
            ("/error/message", "x" * 1000, "x" * 1001),
            ("/error/detail", sized(DETAIL_BYTES_MAX), sized(DETAIL_BYTES_MAX + 1)),
        ),
    ),
    MessageRow(
        "stopped",
        {"why": "shutdown", "checkpoint": {"number": 1, "value": 7}},
        ("task", "attempt", "why"),
        FINAL,
        Scene.running,
        "AttemptStopped",
        (("/checkpoint/value", sized(BODY_BYTES_MAX), sized(BODY_BYTES_MAX + 1)),),
    ),
    MessageRow(
        "fault",
        {"text": "no gas", "code": "E7"},
        ("text",),
        frozenset(),
        too_long=(("/text", "x" * 1000, "x" * 1001), ("/code", "x" * 64, "x" * 65)),
    ),
]
"""All rows that are answered by ack; hello, heartbeat, recovered and bye have rows of their own."""
ABOUT_ATTEMPTS = [row for row in MESSAGE_ROWS if row.about_an_attempt]
