"""Deadlines: start, run and end, each with alarm, dead and cancel; what meets them, and when they count again."""

import pytest

from tests.support.play import play

WAITING = {"alarm": "WAITING", "dead": "DEAD", "cancel": "CANCELLED"}


@pytest.mark.parametrize("which", ["start", "end"])
@pytest.mark.parametrize("then", WAITING)
def test_a_waiting_task_is_ended_by_its_deadline(which: str, then: str) -> None:
    """Once, at its instant, whatever else happens; an alarm only says so."""
    play(f"""
        t+0   submit   t1 {which}=10:{then}
        t+9   wait                     -> nothing
        t+10  wait                     -> DeadlinePassed t1 {which} {then} {WAITING[then]} attempt=
        t+60  wait                     -> nothing
    """)


@pytest.mark.parametrize("which", ["run", "end"])
@pytest.mark.parametrize("then", ["alarm", "dead", "cancel"])
def test_a_running_task_is_asked_to_end(which: str, then: str) -> None:
    """It goes on RUNNING; unless it is an alarm the robot gets `cancel`, and the end of the attempt decides."""
    end = {"alarm": "WAITING", "dead": "DEAD", "cancel": "CANCELLED"}[then]
    world = play(f"""
        t+0   submit   t1 {which}=10:{then}
        t+0   robot    r1
        t+0   keep     r1
        t+0   accept   r1 t1
        t+10  wait                     -> DeadlinePassed t1 #1 {which} {then} RUNNING
        t+11  fail     r1 t1           -> AttemptFailed t1 {end}
    """)
    told = world.robots["r1"].news("cancel")

    assert [message.get("reason") for message in told] == ([] if then == "alarm" else ["deadline"])


def test_a_start_deadline_is_met_by_assignment() -> None:
    """While ASSIGNED it waits, and once accepted it is met for good: what comes back later is not late to start."""
    play("""
        t+0   submit   t1 start=4:dead
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+4.5 accept   r1 t1           -> LeaseStarted t1
        t+5   fail     r1 t1           -> AttemptFailed t1 WAITING
        t+9   wait                     -> TaskAssigned t1 #2
        t+12  wait                     -> AssignmentWithdrawn t1 #2, TaskAssigned t1 #3
    """)


def test_a_start_deadline_counts_again_after_withdrawal() -> None:
    """An assignment that came to nothing does not meet it: it acts at the first moment in WAITING."""
    play("""
        t+0   submit   t1 start=3:dead
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+5   wait                     -> AssignmentWithdrawn t1 #1 accept_timeout, DeadlinePassed t1 start DEAD
    """)
    play("""
        t+0   submit   t1 start=3:dead
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+4   reject   r1 t1           -> AssignmentRejected t1 #1, DeadlinePassed t1 start DEAD
    """)


def test_a_start_deadline_passed_in_assigned_acts_when_the_robot_has_gone() -> None:
    """Withdrawn by bye, the task waits, and its start deadline ends it at once."""
    play("""
        t+0   submit   t1 start=3:dead
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+4   bye      r1 -> AssignmentWithdrawn t1 bye, RobotSessionEnded r1, DeadlinePassed t1 DEAD
    """)


def test_a_deadline_that_passes_in_lost_acts_when_the_lease_resumes() -> None:
    """LOST waits for the next transition; RUNNING again, the robot is asked to end."""
    play("""
        t+0   submit   t1 end=30:cancel policy=wait wait=60
        t+0   robot    r1
        t+0   accept   r1 t1
        t+20  wait                     -> LeaseExpired t1 LOST
        t+40  beat     r1 t1#1 -> LeaseResumed t1, DeadlinePassed t1 end RUNNING, told r1 cancel t1 #1 deadline
        t+42  stopped  r1 t1 cancel    -> AttemptStopped t1 CANCELLED
    """)


def test_a_run_deadline_passes_in_lost_too() -> None:
    """The time of an attempt runs on while nobody hears of it."""
    play("""
        t+0   submit   t1 run=30:dead policy=wait wait=60
        t+0   robot    r1
        t+0   accept   r1 t1
        t+20  wait                     -> LeaseExpired t1 LOST
        t+40  beat     r1 t1#1         -> LeaseResumed t1, DeadlinePassed t1 run RUNNING deadline=1790000070000
    """)


def test_a_run_deadline_counts_for_each_attempt() -> None:
    """The next attempt has its time again, and a deadline of its own."""
    world = play("""
        t+0   submit   t1 run=3:alarm first=0
        t+0   robot    r1
        t+0   accept   r1 t1
        t+4   fail     r1 t1           -> DeadlinePassed t1 #1 run, AttemptFailed t1, TaskAssigned t1 #2
        t+5   accept   r1 t1
        t+9   wait                     -> DeadlinePassed t1 #2 run
    """)

    assert len({event.id for event in world.named("DeadlinePassed")}) == 2


def test_deadlines_count_anew_after_a_redrive() -> None:
    """One that ends the task and has passed must be changed with the redrive; an alarm may come once more."""
    play("""
        t+0   submit   t1 end=10:dead
        t+10  wait                     -> DeadlinePassed t1 DEAD
        t+20  redrive  t1              -> refused deadline_passed, nothing
        t+20  redrive  t1 end=+10:dead -> TaskRedriven t1
        t+30  wait                     -> DeadlinePassed t1 DEAD deadline=1790000070000
    """)
    play("""
        t+0   submit   t1 end=5:alarm failures_max=1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+6   fail     r1 t1           -> DeadlinePassed t1 end, AttemptFailed t1 DEAD
        t+7   drain    r1
        t+8   redrive  t1              -> TaskRedriven t1, DeadlinePassed t1 end WAITING
    """)


def test_a_changed_deadline_counts_from_its_change() -> None:
    """The old instant is forgotten, told or not."""
    play("""
        t+0   submit   t1 end=10:dead
        t+5   change   t1 end=20:dead  -> TaskChanged t1
        t+15  wait                     -> nothing
        t+20  wait                     -> DeadlinePassed t1 DEAD
    """)


def test_a_passed_or_absurd_deadline_is_refused() -> None:
    """Said at submission and at change, with the field."""
    world = play("""
        t+10  submit   t1 end=10:dead  -> refused deadline_passed, nothing
        t+10  submit   t1 run=0:dead   -> refused invalid_field, nothing
        t+10  submit   t1              -> TaskSubmitted t1
        t+11  change   t1 start=5:dead -> refused deadline_passed, nothing
        t+11  change   t1 end=99999999999999:dead -> refused invalid_field, nothing
    """)

    assert world.at("t1") == "WAITING"
