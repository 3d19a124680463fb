"""A task of a test: how it stands, from its events."""

from typing import TYPE_CHECKING, Any

from commands import events as e
from commands.vocabulary import ENDED_STATES
from robot_gateway.sdk.errors import error_of

if TYPE_CHECKING:
    from fleetlog.testing.fleet import Fleet


class Task:
    """One task. Everything is read anew from the log each time; verbs let a little virtual time pass."""

    def __init__(self, fleet: "Fleet", task: str) -> None:
        self._fleet, self.id = fleet, task

    def __repr__(self) -> str:
        moved = self._last(e.TaskTransition)
        return f"<Task {self.id} {'unknown' if moved is None else moved.to}>"

    @property
    def events(self) -> list[Any]:
        """What happened to it, in order."""
        return self._fleet.events(task=self.id)

    @property
    def state(self) -> str:
        """WAITING, ASSIGNED, RUNNING, LOST, COMPLETED, CANCELLED, DEAD or DISCARDED. Raises NoSuchTask."""
        return str(self._last(e.TaskTransition, needed=True).to)

    @property
    def ended(self) -> bool:
        """Whether it is COMPLETED, CANCELLED, DEAD or DISCARDED."""
        return self.state in ENDED_STATES

    @property
    def result(self) -> Any:
        """What its handler returned; None until it is COMPLETED."""
        return _json(getattr(self._last(e.TaskCompleted), "result", None))

    @property
    def error(self) -> dict[str, Any] | None:
        """`type`, `message` and `detail` of its last failure, if it failed."""
        failed = self._last(e.AttemptFailed)
        if failed is None:
            return None
        error = failed.error
        return {"type": error.type, "message": _json(error.message), "detail": _json(error.detail)}

    @property
    def dead_reason(self) -> str | None:
        """Why it is a dead letter: failed, fatal, poison, deadline; None where it is none."""
        reason = self._last(e.TaskTransition, needed=True).dead_reason
        return None if reason is None else str(reason)

    @property
    def attempt(self) -> int:
        """The number of its newest attempt, 0 before the first."""
        assigned = self._last(e.TaskAssigned)
        return 0 if assigned is None else int(assigned.attempt)

    @property
    def robot(self) -> str | None:
        """The robot of its newest attempt."""
        assigned = self._last(e.TaskAssigned)
        return None if assigned is None else str(assigned.robot)

    @property
    def checkpoint(self) -> Any:
        """The value of its last checkpoint, None if there is none."""
        return _json(getattr(self._last(e.CheckpointSaved), "checkpoint", None))

    @property
    def why(self) -> str:
        """Why it is where it is, in the words of its owner."""
        return self._fleet.why(self)

    def wait(self, within_s: float = 600.0) -> "Task":
        """Lets time pass until it has ended; raises DidNotHappen, with the story, where it has not within that."""
        self._fleet.until(lambda: self.ended, within_s, f"{self.id} has not ended")
        return self

    # ---- verbs ----

    def cancel(self, reason: str | None = None) -> None:
        """Nobody wants it any more."""
        self._do("cancel", reason=reason)

    def release(self, reason: str, force: bool = False) -> None:
        """An operator ends its lease; `force` frees slot and target at once."""
        self._do("release", reason=reason, force=force)

    def redrive(self, reason: str | None = None) -> None:
        """An operator puts a dead letter back."""
        self._do("redrive", reason=reason)

    def discard(self, reason: str) -> None:
        """An operator gives a dead letter up."""
        self._do("discard", reason=reason)

    def resolve(self, reason: str, result: Any = None) -> None:
        """An operator says that a LOST or DEAD task is done."""
        self._do("resolve", reason=reason, result=None if result is None else {"json": result})

    def _do(self, verb: str, **body: Any) -> None:
        self._fleet.command(verb, task=self.id, **{name: value for name, value in body.items() if value is not None})

    def _last(self, kind: type[e.Event], needed: bool = False) -> Any:
        found = next((event for event in reversed(self.events) if isinstance(event, kind)), None)
        if found is None and needed:
            raise error_of("no_such_task", f"there is no task {self.id} in this fleet")
        return found


def _json(body: Any) -> Any:
    """What stands in a body of the log."""
    return None if body is None else body.get("json")
