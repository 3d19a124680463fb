"""What is checked of the lease protocol: the fleets that are searched whole, and each rule removed once."""

from __future__ import annotations

from dataclasses import dataclass, field

Switches = dict[str, str | int]

EXCLUSION = "two_robots_never_work_on_one_target"
TABLE = "events_follow_the_table"
TWICE = "done_twice_is_said"
KEPT = "acknowledged_is_kept"
ENDS = "every_task_ends"

CALM: Switches = {"CRASHES": 0, "CUTS": 0, "HANDOVERS": 0, "FAULTS": 1}
"""No faults but delay and loss; what a check adds may happen once."""
HANDED_OVER: Switches = {"CRASHES": 0, "CUTS": 0, "HANDOVERS": 1, "FAULTS": 1}
CANCELLED: Switches = {**CALM, "POLICY": "LOST_WAIT", "CANCELS": 1, "TASKS": 2, "ATTEMPTS": 1}
LIVE: Switches = {"LIVE": 1, "WORK": 1, "FAULTY": 2, "DEATHS": 1, "FAULTS": 1, "ATTEMPTS": 9, "HELLOS": 3}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet that is searched whole: no property may break, and at least `states` are seen."""

    name: str
    switches: Switches
    states: int
    search: str = "deep"


@dataclass(frozen=True, slots=True)
class Removed:
    """A rule that is removed, where that shows, and the property that breaks."""

    rule: str
    breaks: str
    where: Switches = field(default_factory=lambda: CALM)
    value: int = 0
    search: str = "shortest"


FLEETS = (
    Fleet("delays and losses, slow commits", {**CALM, "FAULTS": 0, "LATENCY": 1}, 500_000),
    Fleet("a connection is cut or a program dies", {**CALM, "CRASHES": 1, "CUTS": 1}, 1_000_000),
    Fleet("an owner is replaced", HANDED_OVER, 2_000_000),
    Fleet("policy wait", {**CALM, "POLICY": "LOST_WAIT"}, 200_000),
    Fleet("policy never, a release", {**CALM, "POLICY": "NEVER", "RELEASES": 1}, 90_000),
    Fleet("a release, slow commits", {**CALM, "RELEASES": 1, "LATENCY": 1}, 1_500_000),
    Fleet("two programs with one id", {**CALM, "SECONDS": 1}, 500_000),
    Fleet("a bye that comes late", {**CALM, "BYES": 1}, 400_000),
    Fleet("every task ends", {**LIVE, "FAULTS": 2, "HELLOS": 4}, 400_000, "for ever"),
    Fleet("every task ends, policy wait", {**LIVE, "POLICY": "LOST_WAIT"}, 10_000, "for ever"),
)

LARGE = (
    Fleet("leases of three windows", {**CALM, "N": 3}, 300_000, "compact"),
    Fleet("windows of two ticks, leases of three", {**CALM, "FAULTS": 0, "W": 2, "N": 3}, 1_000_000, "compact"),
    Fleet("any one fault", {"FAULTS": 1}, 3_000_000, "compact"),
    Fleet("an owner is replaced, policy wait", {**HANDED_OVER, "POLICY": "LOST_WAIT"}, 1_000_000, "compact"),
    Fleet("a cancel, policy wait, two tasks", CANCELLED, 1_000_000, "compact"),
    Fleet("a message comes twice, in another order", {**CALM, "REPEATS": 1, "REORDERED": 1}, 1_000_000, "compact"),
    Fleet("two programs with one id, slow commits", {**CALM, "SECONDS": 1, "LATENCY": 1}, 1_000_000, "compact"),
    Fleet(
        "every task ends, three faults",
        {**LIVE, "FAULTS": 3, "HELLOS": 5, "LAPSES_MAX": 5, "ATTEMPTS": 14},
        1_000_000,
        "for ever",
    ),
)

REMOVED = (
    Removed("OWN_DEADLINE", EXCLUSION),
    Removed("START_AFTER_ACK", EXCLUSION),
    Removed("LATE_ACK_STARTS_NOTHING", EXCLUSION),
    Removed("FROM_SENDING", EXCLUSION),
    Removed("ANSWER_AFTER_LOG", EXCLUSION),
    Removed("INPUT_BEFORE_TIME", EXCLUSION),
    Removed("FRESH_OUTCOMES", EXCLUSION, {**CALM, "RELEASES": 1}),
    Removed("GRACE", EXCLUSION, HANDED_OVER),
    Removed("MOVED_WAITS", EXCLUSION, {**HANDED_OVER, "POLICY": "LOST_WAIT"}),
    Removed("HELD_AFTER_RELEASE", EXCLUSION, {**CALM, "RELEASES": 1}),
    Removed("HELD_WHEN_FORGOTTEN", EXCLUSION, {**CALM, "SECONDS": 1}),
    Removed("HELD_WHEN_CANCELLED", EXCLUSION, CANCELLED),
    Removed("HELD_IN_FULL", EXCLUSION, CANCELLED, search="deep"),
    Removed("HOLD_WINDOWS", EXCLUSION, {**CALM, "RELEASES": 1, "LATENCY": 1, "W": 2, "LATEST": 1}, value=1),
    Removed("EPOCH_CHECK", EXCLUSION, {**CALM, "BYES": 1, "REORDERED": 1}),
    Removed("ATTEMPT_TOKEN", TABLE),
    Removed("NEWER_ATTEMPT", TABLE),
    Removed("TERMINAL", TABLE, {**CALM, "CANCELS": 1}),
    Removed("SAYS_TWICE", TWICE),
    Removed("FENCING", TABLE, HANDED_OVER),
    Removed("FENCE_BEFORE_READ", TABLE, HANDED_OVER),
    Removed("ANSWER_AFTER_COMMIT", KEPT, {**HANDED_OVER, "SUBMITTED": 0}),
    Removed("ACCEPT_BY", ENDS, LIVE, search="for ever"),
    Removed("SILENCE_ACTS", ENDS, LIVE, search="for ever"),
    Removed("SENT_UNTIL_ACK", ENDS, LIVE, search="for ever"),
    Removed("DOES_NOT_ACCEPT", ENDS, LIVE, search="for ever"),
)
