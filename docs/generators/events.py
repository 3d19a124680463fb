"""The pages about events: their storage format, field by field, and all types at a glance."""

from typing import Any, Final

from commands import events as e
from commands.settings import FORMAT
from commands.vocabulary import TRANSITIONS
from docs.generators.markdown import doc, field_table, fields_of, page, table, words_of
from streams.port import VALUE_BYTES_MAX

ENVELOPE: Final = (
    ("id", "UUIDv5 of the event's cause: the same cause gives the same id, so what is applied twice is seen"),
    ("type", "the type with its version, like `TaskAssigned.v1`"),
    ("pool", "whose event it is; also the record's key"),
    ("sequence", "1, 2, 3 ... in the pool, without a gap"),
    ("occurred_at", "the pool's time; never falls within a pool"),
    ("caused_by", "`command:<id>`, `report:<robot>:<id>`, `clock`, `dispatch` or `owner:<name>`"),
    ("actor", "the name of the token; `local` without tokens; `fleetlog` for clock, dispatch and owner"),
    ("traceparent", "the trace context (W3C) of the command"),
    ("command_digest", "on the first event of a command: SHA-256 of what was asked"),
)
OF_EVERY_EVENT: Final = tuple(name for name, _ in ENVELOPE)
OF_TRANSITIONS: Final = ("task", "origin", "to", "dead_reason", "wait_until")
GROUPS: Final = {
    "Tasks": words_of(
        """
        TaskSubmitted TaskChanged TaskAssigned AssignmentWithdrawn AssignmentRejected LeaseStarted CheckpointSaved
        ProgressNoted TaskCompleted AttemptFailed AttemptStopped LeaseExpired LeaseResumed LostWaitEnded TaskReleased
        HoldEnded CancelRequested TaskCancelled DeadlinePassed TaskRedriven TaskDiscarded ReportedLate
        """
    ),
    "Robots": words_of(
        """
        RobotRegistered RobotSessionStarted RobotSessionEnded RobotReadyChanged RobotChanged RobotFaulted
        RobotRecovered RobotDrained RobotUndrained RobotRetired WindowMissed ExpiryHeld
        """
    ),
    "Pools and what is set in them": words_of(
        """
        PoolCreated PoolConfigured FormatRaised DispatchPaused DispatchResumed LimitSet LimitRemoved
        RequirementUnsatisfiable RequirementSatisfiable ScheduleSet SchedulePaused ScheduleResumed ScheduleDeleted
        FiringsSkipped
        """
    ),
    "The owner's own": words_of("OwnershipTaken ClockAccepted CommandNoted PoolFrozen PoolUnfrozen RecordQuarantined"),
}
"""Every type under one heading."""

RECORD: Final = f"""
An event is one record of the topic `events`.

| part | holds |
|---|---|
| key | the pool; the partition is murmur2 of its UTF-8 bytes, as Kafka's Java clients compute it |
| value | one JSON object in UTF-8, at most {VALUE_BYTES_MAX:,} bytes; fields that are null are left out |
| header `type` | the type, as in the value |
| header `hash` | 32 raw bytes: SHA-256 of the pool's previous hash (32 zero bytes before the first) and the value |

Integers are milliseconds where they are durations, and milliseconds since 1970 UTC where they are instants. The
value is stored, served and exported byte for byte, so nobody needs canonical JSON to check the chain.

**What stays.** A field is never renamed, retyped or removed within a version. A new optional field whose absence
means what it meant before needs no new version, but a higher pool format; this software writes format {FORMAT}.
Old versions stay readable for ever.
"""
BODIES: Final = """
## Bodies

What robots and submitters put in (payload, result, checkpoint, texts) stands in a field of its own:
`{"json": any JSON}`. The form `{"sealed": base64, "key": id}` is reserved for encryption and erasure.
"""
TRANSITION: Final = """
A **transition** also carries `task`, `from` (absent for `TaskSubmitted`) and `to`: whoever folds the log sets the
task's state to `to` and needs no rules. `to: DEAD` comes with `dead_reason` (`failed`, `fatal`, `poison` or
`deadline`), `to: LOST` with `wait_until` where the wait has an end.
"""


INTRODUCTION: Final = """
Every change of state is one of these events. Their fields, and how they are stored:
[formats/events.md](../formats/events.md). **T** marks a transition: it sets the state of its task.
"""
SHARED: Final = (e.Deadlines, e.TaskChanges)
NOTES: Final = {
    "accept_by": "not accepted by then: withdrawn",
    "attempt": "with the task the fencing token",
    "because": "the rule that decided, and at most three robots that were passed over",
    "changed": "what is given changes, all else stays",
    "checkpoint_number": "of the checkpoint that goes with it",
    "clears_exclusions": "all able robots had rejected: exclusions end with a back-off",
    "counts_from": "start of the first window that counts",
    "RecordQuarantined.digest": "SHA-256 (hex) of the record",
    "done_twice": "a newer attempt exists: probably done twice",
    "epoch": "of the robot's session",
    "excluded_until": "the robot does not get this task before",
    "failures": "so far",
    "gap_ms": "since the pool's last event",
    "hello": "id of the hello",
    "held": "slot and target stay held",
    "held_until": "absent where held without end",
    "TaskCompleted.late": "the lease was over, and no newer attempt exists",
    "TaskSubmitted.digest": "SHA-256 (hex) of the request before defaults",
    "TaskSubmitted.late": "what a late `complete` does while there is no newer attempt",
    "TaskSubmitted.pass": "which tasks of the target may pass while this one backs off",
    "lease_ms": "rounded up to whole windows",
    "level": "of the dispatcher's order, see [order](../understand/order.md)",
    "lost": "lost attempts so far",
    "missing": "conditions that nobody meets",
    "newer_attempt": "the one that exists instead",
    "not_again_before": "end of the back-off",
    "not_before": "not assigned earlier",
    "ran_ms": "since the lease started",
    "requirement": "sorted",
    "returned": "silent robots that were heard again",
    "stop_after_ms": "the robot's own deadline; absent: none",
    "waited_ms": "since it was eligible",
    "windows": "missed in a row, they end the lease",
}
"""What a field's name does not say by itself."""


def formats_page() -> str:
    """docs/formats/events.md."""
    parts = [RECORD, "## Envelope", _envelope(), TRANSITION, BODIES, "## Shared objects"]
    parts += [_object(shape) for shape in SHARED]
    for group, names in GROUPS.items():
        parts.append(f"## {group}")
        parts += [_type(_shape(name)) for name in names]
    return page("Events as they are stored", *parts)


def reference_page() -> str:
    """docs/reference/events.md."""
    _all_grouped()
    parts = [INTRODUCTION]
    for group, names in GROUPS.items():
        rows = [(_linked(name), "T" if _shape(name).transition else "", doc(_shape(name))) for name in names]
        parts += [f"## {group}", table(("event", "", "what it says"), rows)]
    parts += [
        "## Allowed transitions",
        "Nothing leads out of COMPLETED, CANCELLED and DISCARDED. The checker holds every log against this table.",
        table(("from", "event", "to"), _transitions()),
    ]
    return page("Events", *parts)


def _all_grouped() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    known = [tag.partition(".")[0] for tag in e.EVENT_TYPES]
    if sorted(listed) != sorted(known):
        raise ValueError(f"docs/generators/events.py: the groups do not agree about {set(known) ^ set(listed)}")


def _shape(name: str) -> type[e.Event]:
    return e.EVENT_TYPES[f"{name}.v1"]


def _linked(name: str) -> str:
    return f"[{name}](../formats/events.md#{name.lower()})"


def _envelope() -> str:
    return field_table(fields_of(e.Event), dict(ENVELOPE))


def _object(shape: type[Any]) -> str:
    return "\n\n".join((f"### {shape.__name__}", doc(shape), field_table(fields_of(shape), NOTES, shape.__name__)))


def _type(shape: type[e.Event]) -> str:
    inherited = (*OF_EVERY_EVENT, *(OF_TRANSITIONS if shape.transition else ()))
    fields = fields_of(shape, inherited)
    name = shape.__name__
    parts = [f"### {name}", doc(shape)]
    if shape.transition:
        parts.append(f"Transition: {_moves(name)}.")
    if fields:
        parts.append(field_table(fields, NOTES, name))
    return "\n\n".join(parts)


def _moves(name: str) -> str:
    moves = []
    for origin in STATES:
        targets = sorted(to for where, event, to in TRANSITIONS if (where, event) == (origin, name))
        if targets:
            moves.append(f"{origin or 'nothing'} to {' or '.join(targets)}")
    return "; ".join(moves)


STATES: Final = (None, "WAITING", "ASSIGNED", "RUNNING", "LOST", "DEAD")


def _transitions() -> list[tuple[str, str, str]]:
    rows = []
    for origin in STATES:
        events: dict[str, list[str]] = {}
        for where, event, to in sorted(TRANSITIONS, key=lambda one: (one[1], one[2])):
            if where == origin:
                events.setdefault(event, []).append(to)
        rows += [(origin or "(none)", event, ", ".join(targets)) for event, targets in events.items()]
    return rows
