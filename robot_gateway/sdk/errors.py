"""What the SDK raises: one class per reason of the closed list, and a few that say how a task ended.

Every class derives from `FleetlogError`. The classes of reasons carry the reason's name in capitals, so
`no_such_task` is `NoSuchTask`; `BY_REASON` maps the words to the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from commands.reasons import REASONS

if TYPE_CHECKING:
    from robot_gateway.sdk.resources import Task

RejectReason = Literal["busy", "cannot", "unsafe", "too_large", "other"]
REJECT_TEXT_MAX: Final = 200


class FleetlogError(Exception):
    """Fleetlog said no, or did not answer.

    `reason`: a word of the list of reasons (or how a task ended). `retryable`: whether the same call may succeed
    later, unchanged. `retry_after_s`: when to come back, if Fleetlog said so. `field`: a JSON pointer to what is
    wrong. `extra`: whatever else the answer carried (for `wrong_state` the allowed verbs).
    """

    reason: str = "internal"
    retryable: bool = True

    def __init__(
        self,
        text: str = "",
        *,
        retry_after_s: float | None = None,
        field: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(text or self.reason)
        self.retry_after_s = retry_after_s
        self.field = field
        self.extra: Mapping[str, Any] = extra or {}

    @property
    def text(self) -> str:
        """The sentence for people."""
        return str(self.args[0])


def class_name(reason: str) -> str:
    """The name of the class of `reason`: `no_such_task` gives `NoSuchTask`."""
    return "".join(part.capitalize() for part in reason.split("_"))


BY_REASON: Final[dict[str, type[FleetlogError]]] = {
    word: type(
        class_name(word),
        (FleetlogError,),
        {"__doc__": entry.remedy, "__module__": __name__, "reason": word, "retryable": entry.retryable},
    )
    for word, entry in REASONS.items()
}
"""Reason -> class."""
_BY_NAME: Final = {cls.__name__: cls for cls in BY_REASON.values()}


def __getattr__(name: str) -> type[FleetlogError]:
    """The classes of the reasons, by name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(f"{__name__} has no {name}") from None


def error_of(
    reason: str,
    text: str,
    *,
    retry_after_s: float | None = None,
    field: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> FleetlogError:
    """The error that stands for a refusal; a word that this version does not know becomes a FleetlogError."""
    known = BY_REASON.get(reason)
    error = (known or FleetlogError)(text, retry_after_s=retry_after_s, field=field, extra=extra)
    if known is None:
        error.reason = reason
    return error


class TaskEnded(FleetlogError):
    """The task ended without a result; `task` is the task as it stood."""

    retryable = False
    _reason: ClassVar[str] = "wrong_state"

    def __init__(self, text: str, task: Task) -> None:
        super().__init__(text)
        self.task = task
        self.reason = task.dead_reason or self._reason


class TaskDead(TaskEnded):
    """The task is a dead letter; `reason` says why: failed, fatal, poison or deadline."""


class TaskCancelled(TaskEnded):
    """Somebody cancelled the task."""

    _reason = "cancelled"


class TaskDiscarded(TaskEnded):
    """An operator gave the task up."""

    _reason = "discarded"


class WaitTimeout(FleetlogError):
    """The task has not ended within the time; asking again is safe."""

    reason = "no_answer"


class Reject(Exception):
    """Raised by the check of a handler: this robot does not take the assignment, another may.

    `reason`: cannot, unsafe, too_large, busy or other; `text`: for people, cut after 200 characters.
    """

    def __init__(self, reason: RejectReason, text: str = "") -> None:
        if reason not in get_args(RejectReason):
            raise ValueError(f"a robot rejects for {', '.join(get_args(RejectReason))}, not for {reason!r}")
        super().__init__(f"{reason}: {text}")
        self.reason: RejectReason = reason
        self.text = text[:REJECT_TEXT_MAX]


class Fatal(Exception):
    """Raised by a handler: the task cannot succeed, do not try again. `detail`: any JSON value up to 16 KiB."""

    def __init__(self, message: str, *, detail: Any = None) -> None:
        super().__init__(message)
        self.detail = detail


class Retry(Exception):
    """Raised by a handler: it failed, another attempt may succeed; `after_s`: not before that many seconds."""

    def __init__(self, message: str, *, after_s: float | None = None, detail: Any = None) -> None:
        super().__init__(message)
        self.after_s = after_s
        self.detail = detail


class Stopped(Exception):
    """Raised by a handler that was told to stop; `checkpoint` is saved with the report if it is not None."""

    def __init__(self, message: str = "stopped", *, checkpoint: Any = None) -> None:
        super().__init__(message)
        self.checkpoint = checkpoint


class NotJson(ValueError):
    """A value that is not JSON: NaN, a lone surrogate, or a type that JSON does not have."""
