"""How a handler ended, and the report that says so."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import Any, Final, Literal

from commands import messages
from commands.messages import BODY_BYTES_MAX, Complete, ErrorReport, Fail, FromRobot, encode_robot_message
from robot_gateway.sdk.errors import Fatal, NotJson, Retry, Stopped
from robot_gateway.sdk.wire import encode_json, shortened, with_field

DETAIL_BYTES_MAX: Final = 16 * 1024
TRACEBACK_CHARS_MAX: Final = 4_000

Why = Literal["cancel", "stop", "own_deadline", "shutdown"]


@dataclass(slots=True)
class Ending:
    """What a handler came to. Values are encoded JSON.

    complete: `value` is the result. fail: `fatal`, `error_type`, `text`, `value` (the detail), `after_ms`.
    stopped: `value` is a checkpoint to save with it.
    """

    kind: Literal["complete", "fail", "stopped"]
    value: bytes | None = None
    fatal: bool = False
    error_type: str = ""
    text: str = ""
    after_ms: int | None = None

    def dump(self) -> bytes:
        """As bytes, to cross a process boundary."""
        head = {"kind": self.kind, "fatal": self.fatal, "error_type": self.error_type, "text": self.text}
        packed = encode_json(head | {"after_ms": self.after_ms, "has_value": self.value is not None})
        return packed + b"\n" + (self.value or b"")

    @classmethod
    def load(cls, packed: bytes) -> Ending:
        """What `dump` gave."""
        head, _, value = packed.partition(b"\n")
        fields: dict[str, Any] = json.loads(head)
        has_value = fields.pop("has_value")
        return cls(**fields, value=value if has_value else None)


def completed(result: Any) -> Ending:
    """The handler returned `result`; what is not JSON or too large is a fatal failure, as it would be again."""
    try:
        return completed_with(encode_json(result) if result is not None else None)
    except NotJson as problem:
        return failed("NotJson", f"the result is {problem}", fatal=True)


def completed_with(result: bytes | None) -> Ending:
    """The same for a result that is encoded already."""
    if result is not None and len(result) > BODY_BYTES_MAX:
        text = f"the result has {len(result)} bytes, {BODY_BYTES_MAX} are allowed: store it and return a reference"
        return failed("TooLarge", text, fatal=True)
    return Ending("complete", result)


def failed(
    error_type: str, text: str, *, fatal: bool = False, detail: Any = None, after_s: float | None = None
) -> Ending:
    """A failure in words; a detail that is not JSON or above 16 KiB is left out."""
    value: bytes | None = None
    if detail is not None:
        try:
            value = encode_json(detail)
        except NotJson:
            value = None
    if value is not None and len(value) > DETAIL_BYTES_MAX:
        value = None
    after_ms = None if after_s is None else max(0, int(after_s * 1000))
    return Ending("fail", value, fatal, shortened(error_type, 128), shortened(text, 1000), after_ms)


def raised(problem: BaseException, fatal: tuple[type[BaseException], ...] = ()) -> Ending:
    """The handler raised `problem`; exceptions of the types in `fatal` are fatal, others retryable."""
    match problem:
        case Stopped():
            return _stopped_by_itself(problem)
        case Fatal():
            return failed("Fatal", str(problem), fatal=True, detail=problem.detail)
        case Retry():
            return failed("Retry", str(problem), detail=problem.detail, after_s=problem.after_s)
        case _:
            trace = "".join(traceback.format_exception(problem))[-TRACEBACK_CHARS_MAX:]
            return failed(
                type(problem).__name__,
                str(problem),
                fatal=isinstance(problem, fatal),
                detail={"traceback": trace.encode("utf-8", "replace").decode()},
            )


def _stopped_by_itself(problem: Stopped) -> Ending:
    if problem.checkpoint is None:
        return Ending("stopped")
    try:
        value = encode_json(problem.checkpoint)
    except NotJson as wrong:
        return failed("NotJson", f"the checkpoint is {wrong}", fatal=True)
    return Ending("stopped", value if len(value) <= BODY_BYTES_MAX else None)


def final_report(
    ending: Ending, message_id: str, task: str, attempt: int, why: Why | None, next_checkpoint: int
) -> tuple[str, bytes]:
    """Type and body of the final report. `why`: what the handler was told, if anything.

    A result of a handler that was told to stop is reported all the same: the work is done, and Fleetlog knows
    whether that is late.
    """
    if ending.kind == "complete":
        body = _encoded(Complete(id=message_id, task=task, attempt=attempt), "result", ending.value)
        return "complete", body
    if ending.kind == "stopped" and why is not None:
        stopped = messages.Stopped(id=message_id, task=task, attempt=attempt, why=why)
        if ending.value is None:
            return "stopped", encode_robot_message(stopped)
        saved = with_field(b'{"number":%d}' % next_checkpoint, "value", ending.value)
        return "stopped", _encoded(stopped, "checkpoint", saved)
    if ending.kind == "stopped":
        ending = failed("Stopped", "the handler stopped although nobody had asked it to")
    detail = None if ending.value is None else json.loads(ending.value)
    error = ErrorReport(type=ending.error_type or "Error", message=ending.text, detail=detail)
    fail = Fail(
        id=message_id,
        task=task,
        attempt=attempt,
        failure_class="fatal" if ending.fatal else "retryable",
        error=error,
        retry_after_ms=ending.after_ms,
    )
    return "fail", encode_robot_message(fail)


def _encoded(message: FromRobot, name: str, value: bytes | None) -> bytes:
    body = encode_robot_message(message)
    return body if value is None else with_field(body, name, value)
