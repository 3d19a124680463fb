"""What a decision consists of, and how answers, refusals and messages to robots are worded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.events import Event
from commands.inputs import CommandBase
from commands.messages import FromRobot
from commands.reasons import Refusal
from commands.state import Attempt, PoolState, Robot, Task


@dataclass(slots=True, frozen=True)
class Context:
    """What a decision may use beside state and input, drawn once by the owner: the instant, and how pools begin.

    `owner` names the deciding process, `defaults` are pool settings for a pool that is created, `wall_at` is the wall
    clock where it is not trusted (else None).
    """

    now: int
    log_id: str
    format: int
    owner: str = "owner"
    partition: int = 0
    software: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    wall_at: int | None = None


@dataclass(slots=True, frozen=True)
class BodyRef:
    """Where the bodies of an `assign` are: (sequence, log offset) of TaskSubmitted and of the last CheckpointSaved."""

    submitted: tuple[int, int]
    checkpoint: tuple[int, int] | None


@dataclass(slots=True)
class Draft:
    """An outcome before it is encoded; `body` names what the owner fills in from the log."""

    to: str
    message: dict[str, Any]
    of: str | None = None
    robot: str | None = None
    epoch: int | None = None
    body: BodyRef | None = None


@dataclass(slots=True)
class Decision:
    """Events to record and outcomes to send, in order."""

    events: list[Event] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)


def accepted(command: CommandBase, answer: dict[str, Any], *events: Event) -> Decision:
    """The command is accepted: its events, and the answer to who asked."""
    message = {"status": "accepted", "answer": answer}
    return Decision(list(events), [Draft(command.reply_to, message, of=command.id)])


def refused(command: CommandBase, refusal: Refusal) -> Decision:
    """The command is refused: nothing is written."""
    message: dict[str, Any] = {"status": "refused", "reason": refusal.reason, "text": refusal.text}
    if refusal.field is not None:
        message["field"] = refusal.field
    if refusal.retry_after_ms is not None:
        message["retry_after_ms"] = refusal.retry_after_ms
    return Decision(drafts=[Draft(command.reply_to, message | (refusal.extra or {}), of=command.id)])


def task_answer(
    task: str, state: str, attempt: int, sequence: int, at: int, changed: bool = True, **more: Any
) -> dict[str, Any]:
    """The task as it stands after a command; `sequence` and `at` (ms) are those of the command's first event."""
    return {
        "task": task,
        "state": state,
        "attempt": attempt,
        "sequence": sequence,
        "at": at,
        "changed": changed,
        **more,
    }


def to_robot(robot: Robot, message: dict[str, Any], body: BodyRef | None = None) -> Draft:
    """A message for the robot's current session."""
    return Draft(robot.gateway, message, robot=robot.id, epoch=robot.epoch, body=body)


def ack(robot: Robot, message: FromRobot, **more: Any) -> Draft:
    """The report is in the log."""
    return to_robot(robot, {"type": "ack", "of": message.id, **{k: v for k, v in more.items() if v is not None}})


def no(gateway: str, robot: str, message: FromRobot, refusal: Refusal, closed: int | None = None) -> Decision:
    """A refusal for the session that sent `message`; `closed` is the code to close it with."""
    answer: dict[str, Any] = {
        "type": "refused",
        "of": message.id,
        "reason": refusal.reason,
        "text": refusal.text,
        "retry": refusal.retryable,
    }
    if refusal.field is not None:
        answer["field"] = refusal.field
    if refusal.retry_after_ms is not None:
        answer["retry_after_ms"] = refusal.retry_after_ms
    if closed is not None:
        answer["closed"] = closed
    return Decision(drafts=[Draft(gateway, answer, robot=robot, epoch=message.epoch)])


def stop(robot: Robot, task: str, attempt: int, reason: str) -> Draft:
    """The lease is over: stop at once."""
    return to_robot(robot, {"type": "stop", "task": task, "attempt": attempt, "reason": reason})


def cancel(robot: Robot, task: str, attempt: int, reason: str | None) -> Draft:
    """Somebody no longer wants the task."""
    message: dict[str, Any] = {"type": "cancel", "task": task, "attempt": attempt}
    return to_robot(robot, message if reason is None else message | {"reason": reason})


def assign(state: PoolState, robot: Robot, task: Task, current: Attempt, assignment_id: str, now: int) -> Draft:
    """The message that gives a task to its robot; payload, labels and idempotency key are filled in by the owner."""
    story = task.story
    run = None if task.deadlines is None else task.deadlines.run
    saved = None if story is None else story.checkpoint
    message: dict[str, Any] = {
        "type": "assign",
        "assignment_id": assignment_id,
        "task": task.id,
        "attempt": task.attempt,
        "kind": task.terms.kind,
        "slot_cost": current.slot_cost,
        "accept_within_ms": max(0, current.accept_by - now),
        "lease_ms": current.lease_ms,
        "failures": task.failures,
        "lost": task.lost,
    }
    if current.stop_after_ms is not None:
        message["stop_after_ms"] = current.stop_after_ms
    if run is not None:
        message["run_within_ms"] = run.ms
    if task.target is not None:
        message["target"] = task.target.name
    if saved is not None:
        message["checkpoint"] = {"number": saved.number}
    body = BodyRef((task.sequence, task.offset), None if saved is None else (saved.sequence, saved.offset))
    return to_robot(robot, message, body)
