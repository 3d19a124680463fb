"""The executable invariants: a judge of stored events that shares no rule with what wrote them.

`Checker(pool).event(value, hash)` takes the events of one pool in order, as stored, and returns what is wrong with
each. It holds a small model of its own: open tasks, robots, holds, pauses. Of the product's code it uses only the
table of transitions, the meaning of requirements, and how ids and hashes are made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from commands.checker_model import Fields, Model
from commands.ids import ZERO_HASH, chain_hash, name_id

IDS_KEPT: Final = 500_000
"""An id is looked for among the last 500,000 to 1,000,000 events: the same cause is decided twice only where one owner
follows another, which is never that far apart. So memory is bounded whatever the length of the log: what is kept is
a hash of 64 bits each."""

RULES: Final = (
    "malformed", "pool", "sequence", "chain", "time", "id", "id twice", "parts",  # the record
    "transition", "terminal", "submitted twice", "dead reason",  # the state of a task
    "attempt", "robot", "late", "checkpoint", "cancel", "lease", "reported twice",  # its attempt
    "target", "slots", "requirement", "not able", "paused", "limit", "too early", "hold", "retired",  # what it may have
    "firing",  # what a schedule submits
)  # fmt: skip
"""What a finding may be about."""


@dataclass(slots=True, frozen=True)
class Finding:
    """What is wrong: which `rule` the event with this `sequence` breaks, and a sentence."""

    sequence: int
    rule: str
    text: str


class Checker:
    """Checks the events of one pool, first to last. `sequence` and `chain` are those of the last event taken."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.sequence = 0
        self.chain = ZERO_HASH
        self._last_at = 0
        self._ids: set[int] = set()
        self._older_ids: set[int] = set()
        self._parts: tuple[Any, ...] | None = None
        self._found: list[Finding] = []
        self._model = Model(self._say)

    @property
    def open_tasks(self) -> dict[str, str]:
        """Task -> state of every task that has not ended."""
        return {name: task.state for name, task in self._model.tasks.items()}

    def event(self, value: bytes, hash: bytes | None = None) -> list[Finding]:
        """What is wrong with the next event, stored as `value` with `hash` in its header (None: not compared)."""
        self._found = []
        self._follow_chain(value, hash)
        try:
            event: Fields = from_json(value, cache_strings="keys")
            self._record(event)
            name = event["type"].partition(".")[0]
            self._check_parts(name, event)
            self._model.take(name, event)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            self._say("malformed", f"it lacks something or is not an event: {fault!r}")
        return self._found

    def finish(self) -> list[Finding]:
        """What is wrong with the end of the log."""
        self._found = []
        if self._parts is not None:
            self._say("parts", f"the log ends in the middle of {self._parts}")
        return self._found

    def _say(self, rule: str, text: str) -> None:
        self._found.append(Finding(self.sequence, rule, text))

    # ---- the record: chain, sequence, time, id ----

    def _follow_chain(self, value: bytes, hash: bytes | None) -> None:
        self.sequence += 1
        chain = chain_hash(self.chain, value)
        if hash is not None and hash != chain:
            self._say("chain", "its hash does not follow from the event before and its bytes")
        self.chain = chain if hash is None else hash

    def _record(self, event: Fields) -> None:
        expected, self.sequence = self.sequence, event["sequence"]
        if self.sequence != expected:
            self._say("sequence", f"sequence {expected} was expected")
        if event["pool"] != self.pool:
            self._say("pool", f"it belongs to pool {event['pool']}")
        at = event["occurred_at"]
        if at < self._last_at:
            self._say("time", f"it occurred {self._last_at - at} ms before the event before it")
        self._last_at = max(at, self._last_at)
        if self.sequence == 1 and event["type"] != "PoolCreated.v1":
            self._say("sequence", "a pool begins with PoolCreated")
        self._check_id(event)

    def _check_id(self, event: Fields) -> None:
        text = event["id"]
        number = hash(text)
        if number in self._ids or number in self._older_ids:
            self._say("id twice", f"an event with id {text} came before")
        self._ids.add(number)
        if len(self._ids) >= IDS_KEPT:
            self._older_ids, self._ids = self._ids, set()
        if event["caused_by"] in ("clock", "dispatch"):
            name = event["type"].partition(".")[0]
            parts = _ID_PARTS.get(name, _sequence_before)(self._model, event)
            if text != name_id(self.pool, name, *parts):
                self._say("id", "its id does not follow from its cause")

    def _check_parts(self, name: str, event: Fields) -> None:
        """Lists that are split come in one piece after the other."""
        due, self._parts = self._parts, None
        part, parts = event.get("part", 1), event.get("parts", 1)
        if (due is None and part != 1) or (due is not None and due != (name, part, parts)):
            self._say("parts", f"{due or 'a first part'} was expected, this is {name} {part} of {parts}")
        if part < parts:
            self._parts = (name, part + 1, parts)


# ---- how ids follow from causes ----


def _sequence_before(model: Model, event: Fields) -> tuple[str | int, ...]:
    return (event["sequence"] - 1,)


def _of_attempt(model: Model, event: Fields) -> tuple[str | int, ...]:
    return model.tasks[event["task"]].sequence, event["attempt"]


def _of_lease(model: Model, event: Fields) -> tuple[str | int, ...]:
    task = model.tasks[event["task"]]
    return task.sequence, event["attempt"], task.lease_sequence


def _of_deadline(model: Model, event: Fields) -> tuple[str | int, ...]:
    task = model.tasks[event["task"]]
    return task.sequence, event["which"], event["deadline"], task.redrives


def _of_hold(model: Model, event: Fields) -> tuple[str | int, ...]:
    return model.holds[event["task"], event["attempt"]].sequence, event["attempt"]


_ID_PARTS: Final[dict[str, Callable[[Model, Fields], tuple[str | int, ...]]]] = {
    "TaskAssigned": _of_attempt,
    "AssignmentWithdrawn": _of_attempt,
    "LeaseExpired": _of_lease,
    "LostWaitEnded": _of_lease,
    "DeadlinePassed": _of_deadline,
    "HoldEnded": _of_hold,
    "TaskSubmitted": lambda model, event: (
        model.schedules.sequence_of(event["schedule"]["id"]),
        event["schedule"]["instant"],
    ),
    "WindowMissed": lambda model, event: (event["start"], event["part"]),
    "ExpiryHeld": lambda model, event: (event["window"], 1),
    "ProgressNoted": lambda model, event: (event["occurred_at"] // 1_000, event["part"]),
}
