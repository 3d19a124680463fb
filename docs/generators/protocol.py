"""docs/reference/protocol.md: the robot protocol, from its message shapes, and the rules around them."""

from typing import Any, Final, get_args

from commands import messages as m
from commands.reasons import REASONS
from docs.generators.markdown import code, doc, field_table, fields_of, page, table, words_of
from robot_gateway.polling import POLL_BYTES_MAX
from robot_gateway.sessions import (
    HELLO_WITHIN_S,
    MESSAGES_PER_S_MIN,
    MESSAGES_PER_SLOT_S,
    REFUSALS_MAX,
    REFUSALS_WITHIN_S,
    SILENT_WINDOWS,
)

OF_EVERY_MESSAGE: Final = ("type", "id", "epoch", "seq")
ANSWERS: Final = {
    "hello": ("welcome", words_of("two_programs forbidden")),
    "ready": ("ack", words_of("invalid_field")),
    "update": ("ack", words_of("slots_in_use")),
    "accept": ("ack with `lease_ms`, `stop_after_ms`", words_of("withdrawn not_current not_yours unknown_task")),
    "reject": ("ack", words_of("withdrawn not_current not_yours already_accepted")),
    "heartbeat": ("heartbeat_ack, once it is in the log", []),
    "checkpoint": ("ack", words_of("not_current not_yours not_accepted too_large too_fast")),
    "complete": ("ack, `late` where it is", words_of("not_yours not_accepted unknown_task too_large")),
    "fail": ("ack, `late` where it is", words_of("not_yours not_accepted unknown_task too_large")),
    "stopped": ("ack, `late` where it is", words_of("not_yours not_accepted unknown_task too_large")),
    "fault": ("ack", []),
    "recovered": ("ack", words_of("not_in_error")),
    "bye": ("ack, then close 1000", []),
}
"""Message -> what answers it, and the reasons it may be refused for."""
GENERAL: Final = words_of("malformed_json unknown_type invalid_field hello_first no_session too_fast log_unavailable")

CONNECTION: Final = f"""
Version {m.PROTOCOL_NUMBER}. A robot connects in one of two ways and says the same in both.

**WebSocket**: `GET /v1/pools/POOL/robots/ROBOT/session`, upgrade, subprotocol `{m.PROTOCOL}`, header
`Authorization: Bearer TOKEN` where the gateway has tokens. Text frames, one JSON object each, never fragmented, at
most {m.ROBOT_FRAME_BYTES_MAX // 1024} KiB from the robot and {m.GATEWAY_FRAME_BYTES_MAX // 1024} KiB from the gateway.
A handshake is refused by an HTTP answer with problem details.

**Long polling**, for firmware and PLC gateways with one loop: see [below](#long-polling).

Durations are integers in milliseconds (`_ms`). Readers ignore fields that they do not know.
"""
CARRIED: Final = """
Every message of a robot carries `type`; `id`, unique for this robot for ever (a random boot id, a dot, a counter);
and, except hello, `epoch` (from `welcome`) and `seq` 1, 2, 3 ... within the epoch. A message without `ack` or
`refused` within 5 s is sent again: same `id` and content, current epoch, next `seq`. Either answer ends the sending,
except `refused` with `retry: true`. Heartbeats are never sent again.

Repeats are known by (task, attempt, type), of a checkpoint by its number: a robot that forgot its ids is safe.
"""
DUTY: Final = f"""
1. Hello first, within {HELLO_WITHIN_S:g} s. Until `welcome` nothing else.
2. `holding` in hello names every attempt whose final report has no ack yet, also a finished one. Final reports
   follow directly after welcome, only then `ready`.
3. Heartbeats every `heartbeat_every_ms` (half a window), from a thread of their own, naming every attempt held.
4. The robot's own deadline runs from the first *sending* of the last answered accept or heartbeat that named the
   attempt. After 0.95 of `stop_after_ms` it ends the work and says `stopped` with `own_deadline`. An ack that comes
   later starts nothing. Without `stop_after_ms` there is no such deadline.
5. Never start before the ack of accept. Never hold more than `ready` slots.
6. Deduplicate by `idempotency_key`: it is the same for every attempt of a task, and after a redrive.

No message for {SILENT_WINDOWS} windows closes the session. So do {REFUSALS_MAX} refused messages within
{REFUSALS_WITHIN_S:g} s. At most {MESSAGES_PER_S_MIN} messages a second, or {MESSAGES_PER_SLOT_S} times the slots
where that is more. Reconnect after a random time up to min(30 s, 0.5 s x 2^k), k anew at each welcome.
"""
POLLING: Final = f"""
`POST /v1/pools/POOL/robots/ROBOT/poll` with at most {POLL_BYTES_MAX // 1024 // 1024} MiB:

```json
{{"session": "a UUID of the robot's choice", "messages": [], "seen": 0, "wait_ms": 1000}}
```

The answer is `{{"messages": [...], "cursor": 3}}`. Say `"seen": 3` in the next poll: messages up to it are forgotten,
later ones come again. The first poll of a session holds hello alone. Up to 100 messages a poll; `wait_ms` 0 to 25,000.

Put a heartbeat into every poll: one without is no sign of life. A poll is answered at latest `heartbeat_every_ms`
after it came, whatever `wait_ms` says. One poll waits per session; a newer one ends the older with an empty list.
What would close the WebSocket is `{{"closed": code, "reason": ...}}`. Another gateway answers 421 `wrong_gateway`: say
hello there. After {SILENT_WINDOWS} windows without a poll: 410 `no_session`.
"""


def protocol_page() -> str:
    """docs/reference/protocol.md."""
    return page(
        f"Robot protocol `{m.PROTOCOL}`",
        CONNECTION,
        "## Robot to gateway",
        CARRIED,
        *(_message(shape, OF_EVERY_MESSAGE) for shape in shapes(m.RobotMessage)),
        "### Answers",
        _answers(),
        f"Any message may be refused for {_words(GENERAL)}. Reasons: [reasons.md](reasons.md).",
        "## Gateway to robot",
        *(_message(shape, ("type",)) for shape in shapes(m.GatewayMessage)),
        "### WelcomeHeld",
        doc(m.WelcomeHeld),
        field_table(fields_of(m.WelcomeHeld, sent=True), {}),
        "## Order and duty",
        DUTY,
        "## Close codes",
        _close_codes(),
        "## Long polling",
        POLLING,
    )


def shapes(union: Any) -> tuple[type[Any], ...]:
    """The classes of an annotated union."""
    return get_args(get_args(union)[0])


def _message(shape: type[Any], without: tuple[str, ...]) -> str:
    name = _name(shape)
    fields = fields_of(shape, without, sent=True)
    parts = [f"### {name}", doc(shape)]
    if fields:
        parts.append(field_table(fields, NOTES, name))
    return "\n\n".join(parts)


def _name(shape: type[Any]) -> str:
    """The word in `type`, as sent."""
    return str(shape.__dataclass_fields__["type"].default)


def _answers() -> str:
    named = {_name(shape) for shape in shapes(m.RobotMessage)}
    said = {word for _, reasons in ANSWERS.values() for word in reasons} | set(GENERAL)
    if named != set(ANSWERS) or said - set(REASONS):
        raise ValueError(f"docs/generators/protocol.py: {named ^ set(ANSWERS)} {said - set(REASONS)} do not exist")
    rows = [(code(name), answer, _words(reasons)) for name, (answer, reasons) in ANSWERS.items()]
    return table(("message", "answer", "refused for"), rows)


def _words(reasons: list[str]) -> str:
    return ", ".join(code(word) for word in reasons)


def _close_codes() -> str:
    rows = [(str(number), text, _return(number, again)) for number, (text, again) in m.CLOSE_CODES.items()]
    return table(("code", "meaning", "reconnect"), rows)


def _return(number: int, again: bool) -> str:
    if number == 4006:
        return "after 60 s"
    if number in (1002, 1003, 1007, 1009):
        return "yes; mend the program"
    return "yes" if again else "no"


NOTES: Final = {
    "accept_within_ms": "accept or reject within this time",
    "after_ms": "reconnect after that time; leases go on",
    "agent": "name and version of the program",
    "assignment_id": "id of the TaskAssigned event",
    "capabilities": "names and name=value",
    "checkpoint": "the last one of the task",
    "draining": "finish what you hold, nothing new comes",
    "hello.fault": "a fault that the robot still has",
    "hello.holding": "every attempt whose final report has no ack yet",
    "heartbeat.holding": "every attempt held; may be empty",
    "held": "a verdict on each attempt that hello named: `run` go on, `accept` send accept again, `stop` end the work",
    "idempotency_key": "the same for every attempt and after a redrive: id of TaskSubmitted",
    "inline_max_bytes": "larger payloads and checkpoints come as URLs on the same gateway",
    "late": "the report came after the lease; it was kept",
    "n": "absolute; 0 after hello",
    "now_at": "information only",
    "number": "1, 2, 3 ... of the task; goes on after the number that the attempt was given",
    "of": "id of the message that is answered",
    "position": "how far the answer is true",
    "refused.of": "null if the message could not be read",
    "retry": "send again after `retry_after_ms`",
    "stopped.checkpoint": "a last one, saved with the report",
    "run_within_ms": "the task wants to be done within this time",
    "slots": "how much the robot does at once",
    "stop_after_ms": "for the own deadline; absent: none",
    "text": "for people",
    "result": "up to 256 KiB",
    "value": "up to 256 KiB",
}
