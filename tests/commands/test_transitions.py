"""Every allowed (from, event, to) occurs in a scenario of its own, and folding by `to` alone gives the same states."""

from typing import Final

import pytest

from commands.vocabulary import TRANSITIONS
from tests.support.play import play
from tests.support.world import World

RUNNING: Final = """
    t+0   submit   t1 {options}
    t+0   robot    r1              -> TaskAssigned t1 #1
    t+0   accept   r1 t1           -> LeaseStarted t1 #1, ack
"""
LOST: Final = RUNNING + "    t+20  wait                     -> LeaseExpired t1 #1 LOST\n"
DEAD: Final = RUNNING + "    t+1   fail     r1 t1 fatal     -> AttemptFailed t1 DEAD fatal\n"


def running(rows: str, options: str = "") -> str:
    """A task that runs since t+0, and what follows."""
    return RUNNING.format(options=options) + rows


def lost(rows: str, options: str) -> str:
    """A task that is LOST since t+20, and what follows."""
    return LOST.format(options=options) + rows


def dead(rows: str) -> str:
    """A dead letter since t+1, and what follows."""
    return DEAD.format(options="") + rows


SCENARIOS: Final[dict[tuple[str | None, str, str], str]] = {
    (None, "TaskSubmitted", "WAITING"): "t+0 submit t1 -> TaskSubmitted t1 WAITING",
    ("WAITING", "TaskChanged", "WAITING"): """
        t+0   submit   t1
        t+1   change   t1 priority=7   -> TaskChanged t1
    """,
    ("WAITING", "TaskAssigned", "ASSIGNED"): """
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1 r1
    """,
    ("WAITING", "TaskCancelled", "CANCELLED"): """
        t+0   submit   t1
        t+1   cancel   t1              -> TaskCancelled t1
        t+2   cancel   t1              -> unchanged, nothing
    """,
    ("WAITING", "DeadlinePassed", "WAITING"): """
        t+0   submit   t1 start=+10:alarm
        t+10  wait                     -> DeadlinePassed t1 start alarm WAITING
    """,
    ("WAITING", "DeadlinePassed", "DEAD"): """
        t+0   submit   t1 start=+10:dead
        t+10  wait                     -> DeadlinePassed t1 start DEAD deadline
    """,
    ("WAITING", "DeadlinePassed", "CANCELLED"): """
        t+0   submit   t1 end=+10:cancel
        t+10  wait                     -> DeadlinePassed t1 end CANCELLED
    """,
    ("WAITING", "TaskCompleted", "COMPLETED"): running("""
        t+20  wait                     -> LeaseExpired t1 WAITING
        t+21  complete r1 t1 #1        -> TaskCompleted t1 #1 late=True robot, late
    """),
    ("ASSIGNED", "LeaseStarted", "RUNNING"): running(""),
    ("ASSIGNED", "AssignmentWithdrawn", "WAITING"): """
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+5   wait                     -> AssignmentWithdrawn t1 #1 accept_timeout, TaskAssigned t1 #2
    """,
    ("ASSIGNED", "AssignmentRejected", "WAITING"): """
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+1   robot    r2
        t+1   reject   r1 t1           -> AssignmentRejected t1 #1 busy, TaskAssigned t1 #2 r2
    """,
    ("ASSIGNED", "TaskReleased", "WAITING"): """
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+1   release  t1              -> TaskReleased t1 #1 held=False, TaskAssigned t1 #2, told r1 stop t1 #1 released
    """,
    ("ASSIGNED", "TaskCancelled", "CANCELLED"): """
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+1   cancel   t1              -> TaskCancelled t1 #1 held=False, told r1 stop t1 #1 ended
        t+1   accept   r1 t1 #1        -> refused not_current, nothing
    """,
    ("RUNNING", "TaskCompleted", "COMPLETED"): running("""
        t+1   complete r1 t1 result=7  -> TaskCompleted t1 #1 r1 late=False ran_ms=1000, ack
    """),
    ("RUNNING", "AttemptFailed", "WAITING"): running("""
        t+1   fail     r1 t1           -> AttemptFailed t1 #1 retryable WAITING failures=1, ack
    """),
    ("RUNNING", "AttemptFailed", "DEAD"): running("""
        t+1   fail     r1 t1 fatal     -> AttemptFailed t1 #1 fatal DEAD dead_reason=fatal
    """),
    ("RUNNING", "AttemptFailed", "CANCELLED"): running("""
        t+1   cancel   t1              -> CancelRequested t1 #1, told r1 cancel t1 #1
        t+2   fail     r1 t1           -> AttemptFailed t1 #1 CANCELLED
    """),
    ("RUNNING", "AttemptStopped", "WAITING"): running("""
        t+1   stopped  r1 t1 shutdown  -> AttemptStopped t1 #1 WAITING lost=0, TaskAssigned t1 #2
    """),
    ("RUNNING", "AttemptStopped", "LOST"): running("""
        t+1   stopped  r1 t1 own_deadline -> AttemptStopped t1 #1 LOST lost=1
    """, "policy=never"),
    ("RUNNING", "AttemptStopped", "DEAD"): running("""
        t+1   stopped  r1 t1 own_deadline -> AttemptStopped t1 #1 DEAD lost=1 dead_reason=poison
    """, "lost_max=1"),
    ("RUNNING", "AttemptStopped", "CANCELLED"): running("""
        t+1   cancel   t1              -> CancelRequested t1 #1
        t+2   stopped  r1 t1 cancel    -> AttemptStopped t1 #1 CANCELLED
    """),
    ("RUNNING", "LeaseExpired", "WAITING"): running("""
        t+20  wait                     -> LeaseExpired t1 #1 WAITING missed_windows lost=1
    """),
    ("RUNNING", "LeaseExpired", "LOST"): lost("", "policy=never"),
    ("RUNNING", "LeaseExpired", "DEAD"): running("""
        t+20  wait                     -> LeaseExpired t1 #1 DEAD dead_reason=poison
    """, "lost_max=1"),
    ("RUNNING", "LeaseExpired", "CANCELLED"): running("""
        t+1   cancel   t1              -> CancelRequested t1 #1
        t+20  wait                     -> LeaseExpired t1 #1 CANCELLED held=False
    """),
    ("RUNNING", "TaskReleased", "WAITING"): running("""
        t+1   release  t1              -> TaskReleased t1 #1 WAITING held=True, told r1 stop t1 #1 released
    """),
    ("RUNNING", "TaskReleased", "DEAD"): running("""
        t+5   wait                     -> DeadlinePassed t1 #1 run dead RUNNING, told r1 cancel t1 #1 deadline
        t+6   release  t1              -> TaskReleased t1 #1 DEAD dead_reason=deadline
    """, "run=5:dead"),
    ("RUNNING", "TaskReleased", "CANCELLED"): running("""
        t+1   cancel   t1              -> CancelRequested t1 #1
        t+6   release  t1              -> TaskReleased t1 #1 CANCELLED held=True
    """),
    ("RUNNING", "DeadlinePassed", "RUNNING"): running("""
        t+7   wait                     -> DeadlinePassed t1 #1 end alarm RUNNING
    """, "end=7:alarm"),
    ("LOST", "LeaseResumed", "RUNNING"): lost("""
        t+21  beat     r1 t1#1         -> LeaseResumed t1 #1 RUNNING
    """, "policy=wait wait=60"),
    ("LOST", "TaskCompleted", "COMPLETED"): lost("""
        t+21  complete r1 t1           -> TaskCompleted t1 #1 late=False robot, ack
    """, "policy=ask"),
    ("LOST", "AttemptFailed", "WAITING"): lost("""
        t+21  fail     r1 t1           -> AttemptFailed t1 #1 WAITING failures=1
    """, "policy=ask"),
    ("LOST", "AttemptFailed", "DEAD"): lost("""
        t+21  fail     r1 t1           -> AttemptFailed t1 #1 DEAD dead_reason=failed
    """, "policy=ask failures_max=1"),
    ("LOST", "LostWaitEnded", "WAITING"): lost("""
        t+30  wait                     -> LostWaitEnded t1 #1 WAITING lost=1
    """, "policy=wait wait=10"),
    ("LOST", "LostWaitEnded", "DEAD"): lost("""
        t+30  wait                     -> LostWaitEnded t1 #1 DEAD dead_reason=poison
    """, "policy=wait wait=10 lost_max=1"),
    ("LOST", "AttemptStopped", "WAITING"): lost("""
        t+21  stopped  r1 t1 own_deadline -> AttemptStopped t1 #1 WAITING lost=1
    """, "policy=wait wait=60"),
    ("LOST", "AttemptStopped", "LOST"): lost("""
        t+21  stopped  r1 t1 own_deadline -> AttemptStopped t1 #1 LOST lost=1
    """, "policy=ask"),
    ("LOST", "AttemptStopped", "DEAD"): lost("""
        t+21  stopped  r1 t1 own_deadline -> AttemptStopped t1 #1 DEAD dead_reason=poison
    """, "policy=wait wait=60 lost_max=1"),
    ("LOST", "TaskReleased", "WAITING"): lost("""
        t+21  release  t1              -> TaskReleased t1 #1 WAITING held=True held_until=
    """, "policy=never"),
    ("LOST", "TaskCancelled", "CANCELLED"): lost("""
        t+21  cancel   t1              -> TaskCancelled t1 #1 held=True held_until=
    """, "policy=never"),
    ("DEAD", "TaskRedriven", "WAITING"): dead("""
        t+2   redrive  t1              -> TaskRedriven t1 because, TaskAssigned t1 #2
    """),
    ("DEAD", "TaskDiscarded", "DISCARDED"): dead("""
        t+2   discard  t1              -> TaskDiscarded t1 because
        t+2   discard  t1              -> unchanged, nothing
    """),
    ("DEAD", "TaskCompleted", "COMPLETED"): dead("""
        t+2   resolve  t1              -> TaskCompleted t1 operator because
        t+2   resolve  t1              -> unchanged, nothing
    """),
}  # fmt: skip


def triples(world: World) -> set[tuple[str | None, str, str]]:
    """Every transition that happened."""
    return {(event.origin, event.name, event.to) for event in world.events if event.transition}  # type: ignore[attr-defined]


def test_every_allowed_transition_has_a_scenario() -> None:
    """The table of scenarios is the table of the vocabulary, no more and no less."""
    assert set(SCENARIOS) == TRANSITIONS


@pytest.mark.parametrize("triple", SCENARIOS, ids=lambda triple: "-".join(map(str, triple)))
def test_a_transition_occurs(triple: tuple[str | None, str, str]) -> None:
    """The scenario plays as written, this transition is in its log, and states follow from `to` without any rule."""
    world = play(SCENARIOS[triple])
    states = {event.task: event.to for event in world.events if event.transition}  # type: ignore[attr-defined]

    assert triple in triples(world)
    assert states == {task: world.at(task) for task in states}
