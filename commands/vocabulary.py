"""The words of the product: states, names, and the one table of allowed task transitions.

Everything here is data or a pure check; the table `TRANSITIONS` is what the checker holds every log against.
"""

import re
from typing import Final, Literal

TaskState = Literal["WAITING", "ASSIGNED", "RUNNING", "LOST", "COMPLETED", "CANCELLED", "DEAD", "DISCARDED"]
RobotState = Literal["OFFLINE", "ERROR", "BUSY", "IDLE"]
LostPolicy = Literal["requeue", "wait", "ask", "never"]
DeadReason = Literal["failed", "fatal", "poison", "deadline"]
DeadlineThen = Literal["alarm", "dead", "cancel"]
PauseScope = Literal["pool", "target", "kind", "task"]
LimitScope = Literal["kind", "key"]
Overlap = Literal["skip", "queue_one", "allow"]
SkipReason = Literal["overlap", "catch_up", "paused", "queue_full"]

HELD_STATES: Final = frozenset({"ASSIGNED", "RUNNING", "LOST"})
"""States in which a task holds its robot's slots and its target."""
TERMINAL_STATES: Final = frozenset({"COMPLETED", "CANCELLED", "DISCARDED"})
"""States that nothing leads out of."""
ENDED_STATES: Final = TERMINAL_STATES | {"DEAD"}
"""States in which a report is late; DEAD still waits for an operator."""

NAME_CHARS_MAX: Final = 128
KIND_CHARS_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*\Z")

PRIORITY_MAX: Final = 9
INTEGER_MAX: Final = 2**53 - 1
DEPTH_MAX: Final = 64

_ALLOWED: Final[dict[str | None, dict[str, tuple[str, ...]]]] = {
    None: {"TaskSubmitted": ("WAITING",)},
    "WAITING": {
        "TaskChanged": ("WAITING",),
        "TaskAssigned": ("ASSIGNED",),
        "TaskCancelled": ("CANCELLED",),
        "DeadlinePassed": ("WAITING", "DEAD", "CANCELLED"),
        "TaskCompleted": ("COMPLETED",),
    },
    "ASSIGNED": {
        "LeaseStarted": ("RUNNING",),
        "AssignmentWithdrawn": ("WAITING",),
        "AssignmentRejected": ("WAITING",),
        "TaskReleased": ("WAITING",),
        "TaskCancelled": ("CANCELLED",),
    },
    "RUNNING": {
        "TaskCompleted": ("COMPLETED",),
        "AttemptFailed": ("WAITING", "DEAD", "CANCELLED"),
        "AttemptStopped": ("WAITING", "LOST", "DEAD", "CANCELLED"),
        "LeaseExpired": ("WAITING", "LOST", "DEAD", "CANCELLED"),
        "TaskReleased": ("WAITING", "DEAD", "CANCELLED"),
        "DeadlinePassed": ("RUNNING",),
    },
    "LOST": {
        "LeaseResumed": ("RUNNING",),
        "TaskCompleted": ("COMPLETED",),
        "AttemptFailed": ("WAITING", "DEAD"),
        "LostWaitEnded": ("WAITING", "DEAD"),
        "AttemptStopped": ("WAITING", "LOST", "DEAD"),
        "TaskReleased": ("WAITING",),
        "TaskCancelled": ("CANCELLED",),
    },
    "DEAD": {
        "TaskRedriven": ("WAITING",),
        "TaskDiscarded": ("DISCARDED",),
        "TaskCompleted": ("COMPLETED",),
    },
}
TRANSITIONS: Final[frozenset[tuple[str | None, str, str]]] = frozenset(
    (origin, event, to) for origin, events in _ALLOWED.items() for event, targets in events.items() for to in targets
)
"""Allowed (from, event type without version, to)."""


def is_name(text: str, chars_max: int = NAME_CHARS_MAX) -> bool:
    """Whether `text` may be the id of a pool, robot, task, target or schedule given by others."""
    return len(text) <= chars_max and _NAME.match(text) is not None
