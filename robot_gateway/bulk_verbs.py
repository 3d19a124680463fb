"""What each bulk verb is for: the states that fit it, the fields it takes, the command it becomes for one task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, get_args

from commands import inputs as i
from commands.events import TaskChanges
from commands.reasons import Refusal
from commands.vocabulary import TaskState
from projections.filters import Filter, parse_filter
from robot_gateway.models import BulkIn

OPEN: Final = frozenset({"WAITING", "ASSIGNED", "RUNNING", "LOST"})
PAUSABLE: Final = frozenset({"WAITING", "ASSIGNED", "RUNNING"})
OWN_FIELDS: Final = ("changed", "force", "until", "result")
"""Fields of a bulk request that belong to some verbs only."""


@dataclass(slots=True, frozen=True)
class BulkVerb:
    """One verb. `fits`: states of tasks it is for; `takes`: its own fields; `command`: (task, asked) -> the command's
    class and body. `said`: what an accepted answer without a state means."""

    fits: frozenset[str]
    command: Callable[[str, BulkIn], tuple[type[Any], Any]]
    takes: frozenset[str] = frozenset()
    reason_needed: bool = False
    said: str = "changed"


def _of_task(shape: type[Any]) -> Callable[[str, BulkIn], tuple[type[Any], Any]]:
    return lambda task, asked: (shape, i.TaskVerb(task=task, reason=asked.reason))


def _change(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    changed = asked.changed.in_log() if asked.changed else TaskChanges()
    return i.ChangeTask, i.ChangeBody(task=task, reason=asked.reason, changed=changed)


def _redrive(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    changed = asked.changed.in_log() if asked.changed else None
    return i.RedriveTask, i.RedriveBody(task=task, reason=asked.reason, changed=changed)


def _release(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    return i.ReleaseTask, i.ReleaseBody(task=task, reason=asked.reason, force=asked.force)


def _resolve(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    result = None if asked.result is None else {"json": asked.result}
    return i.ResolveTask, i.ResolveBody(task=task, reason=asked.reason, result=result)


def _pause(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    return i.Pause, i.ScopeBody(scope="task", name=task, until=asked.until, reason=asked.reason)


def _resume(task: str, asked: BulkIn) -> tuple[type[Any], Any]:
    return i.Resume, i.ScopeBody(scope="task", name=task, reason=asked.reason)


BULK_VERBS: Final[dict[str, BulkVerb]] = {
    "cancel": BulkVerb(OPEN, _of_task(i.CancelTask)),
    "change": BulkVerb(frozenset({"WAITING"}), _change, frozenset({"changed"})),
    "redrive": BulkVerb(frozenset({"DEAD"}), _redrive, frozenset({"changed"})),
    "discard": BulkVerb(frozenset({"DEAD"}), _of_task(i.DiscardTask), reason_needed=True),
    "resolve": BulkVerb(frozenset({"LOST", "DEAD"}), _resolve, frozenset({"result"}), reason_needed=True),
    "release": BulkVerb(OPEN - {"WAITING"}, _release, frozenset({"force"}), reason_needed=True),
    "pause": BulkVerb(PAUSABLE, _pause, frozenset({"until"}), said="paused"),
    "resume": BulkVerb(PAUSABLE, _resume, said="resumed"),
}


def selecting_filter(asked: BulkIn, actor: str | None) -> Filter | Refusal:
    """What a dry run looks for: the filter, in its pool, in states that fit the verb, of `actor` where one is named."""
    found = parse_filter(asked.filter or "", "task")
    if isinstance(found, Refusal):
        return found
    if asked.pool is not None:
        found = found.adding("pool", asked.pool)
    if actor is not None:
        found = found.adding("actor", actor)
    fits = BULK_VERBS[asked.verb].fits
    if len(fits) == 1:
        return found.adding("state", *fits)
    # An index is read for each state that is left, so what does not fit is not even looked at.
    others = parse_filter(" ".join(f"state!={state}" for state in get_args(TaskState) if state not in fits), "task")
    return Filter("task", found.parts + (() if isinstance(others, Refusal) else others.parts))


def asked_problem(asked: BulkIn) -> Refusal | None:
    """What is wrong with a request whatever the tasks, or None."""
    verb = BULK_VERBS[asked.verb]
    for name in OWN_FIELDS:
        if name in asked.model_fields_set and name not in verb.takes:
            return Refusal("invalid_field", f"{name} does not belong to {asked.verb}", f"/{name}")
    if asked.dry_run:
        text = "a dry run gives a token, it takes none"
        return None if asked.token is None else Refusal("invalid_field", text, "/token")
    if asked.token is None:
        return Refusal("invalid_field", "which tasks? A dry run answers with a token; send that", "/token")
    if verb.reason_needed and not asked.reason:
        return Refusal("reason_required", "say why; it is recorded", "/reason")
    if asked.verb == "change" and (asked.changed is None or not asked.changed.model_fields_set):
        return Refusal("invalid_field", "what is to change?", "/changed")
    return None
