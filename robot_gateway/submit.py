"""`/v1/submit`: submissions as fast as one connection carries them, answered in the order in which owners decide.

A message `{type: submit, id, pool, tasks}` is answered `accepted` with one entry for each task, or `refused`. Whoever
sends faster than owners decide is not read from while 1,024 tasks wait for their answer.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from commands.reasons import Refusal
from robot_gateway.models import SubmitIn, read_model
from robot_gateway.pending import Answer, Collected
from robot_gateway.reading import id_in
from robot_gateway.submissions import Plan, commands_of, entry_of, read_submissions
from robot_gateway.tokens import Principal

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway
    from robot_gateway.websocket import WebSocketConnection

SUBMIT_PROTOCOL: Final = "fleetlog.submit.v1"
SUBMIT_FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
UNANSWERED_MAX: Final = 1024


class SubmitStream:
    """One submitter's connection."""

    def __init__(self, gateway: "Gateway", connection: "WebSocketConnection", principal: Principal) -> None:
        self.principal = principal
        self._gateway = gateway
        self._connection = connection
        self._unanswered = 0
        self._ended = False
        gateway.submitters.add(self)

    def receive(self, raw: bytes) -> None:
        """One message of the submitter."""
        asked = read_model(SubmitIn, raw)
        if isinstance(asked, Refusal):
            self._refuse(id_in(raw), asked)
            return
        read = read_submissions(self._gateway, self.principal, asked.pool, asked.id, asked.tasks)
        if isinstance(read, Refusal):
            self._refuse(asked.id, read)
            return
        plan = Plan(many=len(read) > 1, all_or_none=asked.all_or_none)
        commands = commands_of(self._gateway, self.principal, asked.pool, asked.id, read, plan)
        self._unanswered += len(commands)
        if self._unanswered >= UNANSWERED_MAX:
            self._connection.hold()
        self._gateway.send(commands, Collected(len(commands), partial(self._answered, asked)))

    def _answered(self, asked: SubmitIn, answers: list[Answer]) -> None:
        was_full = self._unanswered >= UNANSWERED_MAX
        self._unanswered -= len(answers)
        first = answers[0]
        if len(answers) == 1 and first.refusal is not None:
            self._refuse(asked.id, first.refusal)
        else:
            accepted: dict[str, Any] = {
                "type": "accepted",
                "of": asked.id,
                "tasks": [entry for answer in answers for entry in entry_of(answer)],
                "position": next((a.position for a in reversed(answers) if a.position is not None), None),
            }
            self._connection.send(to_json(accepted))
        if was_full and self._unanswered < UNANSWERED_MAX and not self._ended:
            self._connection.go_on()

    def _refuse(self, of: str | None, refusal: Refusal) -> None:
        message: dict[str, Any] = {
            "type": "refused",
            "of": of,
            "reason": refusal.reason,
            "text": refusal.text,
            "retry": refusal.retryable,
        }
        if refusal.field is not None:
            message["field"] = refusal.field
        if refusal.retry_after_ms is not None:
            message["retry_after_s"] = refusal.retry_after_ms / 1000
        self._connection.send(to_json(message | (refusal.extra or {})))

    def overdue(self, now: float) -> tuple[int, str] | None:
        """Whether the submitter does not read its answers."""
        return (4009, "reads too slowly") if self._connection.waits_too_long(now) else None

    def close(self, code: int, reason: str) -> None:
        """Ends the stream from our side."""
        if not self._ended:
            self.end()
            self._connection.close(code, reason)

    def end(self) -> None:
        """The connection has gone; what was sent is decided all the same."""
        self._ended = True
        self._gateway.submitters.discard(self)
