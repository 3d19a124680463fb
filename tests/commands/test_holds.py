"""Holds: what stays held after a lease, by which rule, until when, and what ends it."""

import pytest

from tests.support.play import play
from tests.support.world import START_AT

RUNS: str = """
    t+0   submit   t1 target=dock {options}
    t+0   submit   t2 target=dock
    t+0   robot    r1 slots=2
    t+0   robot    r2 slots=2
    t+0   keep     r2
    t+0   accept   r1 t1           -> LeaseStarted t1 #1 r1
"""
EXPIRES = RUNS + "    t+20  wait                     -> {expired}\n"


@pytest.mark.parametrize(
    ("options", "until"),
    [("", 1_790_000_066_000), ("policy=wait wait=12", 1_790_000_081_000), ("lease=20", 1_790_000_071_000)],
)
def test_release_holds_until_the_robot_has_surely_stopped(options: str, until: int) -> None:
    """now + stop_after_ms in whole windows + two windows: slot and target, and with it the next task of the target."""
    world = play(
        RUNS.format(options=options)
        + f"""
        t+1   release  t1              -> TaskReleased t1 WAITING held=True held_until={until}, told r1 stop t1 released
    """
    )
    world.wait((until - 1 - world.now) / 1000)
    assert world.state.targets["dock"].holder == ("t1", 1)
    assert world.state.robots["r1"].used == 1
    world.wait(0.001)
    [ended] = world.named("HoldEnded")
    assert (ended.why, ended.target, ended.occurred_at) == ("time", "dock", until)
    assert world.named("TaskAssigned")[-1].task == "t1"
    world.verify()


@pytest.mark.parametrize("policy", ["ask", "never"])
def test_release_under_ask_and_never_holds_without_an_end(policy: str) -> None:
    """The robot has no own deadline: only its word or an operator's force frees what it had, with the reason given."""
    world = play(
        RUNS.format(options=f"policy={policy}")
        + """
        t+1   release  t1              -> TaskReleased t1 held=True held_until=
        t+999 wait                     -> nothing
        t+999 release  t1 force        -> HoldEnded t1 #1 force dock, TaskAssigned t1 #2
    """
    )
    assert [ended.reason for ended in world.named("HoldEnded")] == ["because"]


@pytest.mark.parametrize(
    ("word", "report"),
    [
        ("stopped", "stopped r1 t1 stop #1"),
        ("complete", "complete r1 t1 #1"),
        ("fail", "fail r1 t1 #1"),
    ],
)
def test_the_robots_own_report_ends_its_hold(word: str, report: str) -> None:
    """After a release, each kind of final report of that attempt frees slot and target at once."""
    first = "TaskCompleted t1 late=True" if word == "complete" else f"ReportedLate t1 {word}"
    play(
        RUNS.format(options="")
        + f"""
        t+1   release  t1              -> TaskReleased t1 held=True
        t+2   {report}                 -> {first}, HoldEnded t1 #1 stopped, TaskAssigned, late
        t+2   again                    -> late, nothing
    """
    )


def test_the_robots_bye_ends_its_holds() -> None:
    """I work on nothing: every hold of the robot ends."""
    play(
        RUNS.format(options="policy=ask")
        + """
        t+1   release  t1              -> TaskReleased t1 held=True held_until=
        t+2   bye      r1              -> HoldEnded t1 #1 stopped, RobotSessionEnded r1, TaskAssigned t1 #2 r2
    """
    )


def test_another_robots_word_ends_no_hold() -> None:
    """Only the robot that had the attempt can say that it stopped."""
    play(
        RUNS.format(options="")
        + """
        t+1   release  t1              -> TaskReleased t1 held=True
        t+2   stopped  r2 t1 stop #1   -> refused not_yours, nothing
    """
    )


def test_release_with_force_holds_nothing() -> None:
    """Free at once; the event says that exclusion is not guaranteed (force)."""
    play(
        RUNS.format(options="")
        + """
        t+1   release  t1 force        -> TaskReleased t1 held=False force=True, TaskAssigned t1 #2
    """
    )
    play(RUNS.format(options="") + "t+1 release t1 force unexplained -> refused reason_required, nothing")
    play(RUNS.format(options="") + "t+1 release t1 unexplained -> refused reason_required, nothing")


@pytest.mark.parametrize(
    ("options", "then", "expired", "ended"),
    [
        ("policy=wait wait=30", "cancel", "LeaseExpired t1 CANCELLED held=True held_until=1790000115000", 75),
        ("policy=ask", "cancel", "LeaseExpired t1 CANCELLED held=True held_until=", None),
        ("policy=never run=5:dead", "", "LeaseExpired t1 DEAD held=True held_until=", None),
        ("policy=requeue", "cancel", "LeaseExpired t1 CANCELLED held=False", 20),
        ("lost_max=1", "", "LeaseExpired t1 DEAD held=False", 20),
    ],
)
def test_expiry_to_an_end_holds_by_policy(options: str, then: str, expired: str, ended: int | None) -> None:
    """Under wait, ask and never nobody knows whether the robot still works; under requeue its own deadline is over."""
    world = play(
        RUNS.format(options=options)
        + (f"t+1 {then} t1\n" if then else "")
        + f"""
        t+19  wait
        t+20  wait                     -> {expired}{", TaskAssigned t2 #1 r2" if ended == 20 else ""}
        t+80  wait
    """
    )
    freed = [(event.occurred_at - START_AT) // 1000 for event in world.named("TaskAssigned") if event.task == "t2"]

    assert freed[:1] == ([] if ended is None else [ended])


def test_cancel_in_lost_holds_like_a_release() -> None:
    """Its last heartbeat may have been answered just now: under wait until that cannot count any more, under ask
    without end."""
    play(
        EXPIRES.format(options="policy=wait wait=30", expired="LeaseExpired t1 LOST wait_until=1790000090000")
        + """
        t+25  cancel   t1              -> TaskCancelled t1 held=True held_until=1790000120000, told r1 stop t1 ended
        t+79  wait                     -> nothing
        t+80  wait                     -> HoldEnded t1 #1 time, TaskAssigned t2 r2
    """
    )
    play(
        EXPIRES.format(options="policy=ask", expired="LeaseExpired t1 LOST wait_until=")
        + """
        t+25  cancel   t1              -> TaskCancelled t1 held=True held_until=
        t+99  complete r1 t1 #1        -> ReportedLate t1 complete CANCELLED, HoldEnded t1 #1 stopped, TaskAssigned t2
    """
    )


@pytest.mark.parametrize(
    ("options", "before", "ends"),
    [
        ("policy=wait wait=30", "t+20 wait -> LeaseExpired t1 LOST wait_until=1790000090000", "LostWaitEnded t1"),
        ("", "t+20 release t1 -> TaskReleased t1 WAITING held=True held_until=1790000085000", "HoldEnded t1 #1 time"),
    ],
)
def test_an_owner_whose_clock_is_ahead_ends_no_wait_and_no_hold_early(options: str, before: str, ends: str) -> None:
    """Its clock says that an hour has passed since the last event; the robot may be at work for as long as it was."""
    world = play(RUNS.format(options=options) + ("t+10 beat r1 t1#1\n" if not options else "") + before)
    left_s = 30 if options else 25
    world.take_over(gap_s=3_600)
    world.wait(left_s - 1)
    assert world.state.targets["dock"].holder == ("t1", 1)
    assert not world.named("LostWaitEnded") + world.named("HoldEnded")
    world.wait(1)
    assert len(world.named(ends.split()[0])) == 1
    world.verify()


def test_a_robot_whose_task_was_cancelled_in_lost_is_told_to_stop() -> None:
    """It was away when the cancel came; when it names the attempt again it must not go on."""
    play(
        EXPIRES.format(options="policy=ask", expired="LeaseExpired t1 LOST")
        + """
        t+25  bye      r2
        t+25  cancel   t1              -> TaskCancelled t1 held=True
        t+60  beat     r1 t1#1         -> nothing, told r1 stop t1 #1 ended
        t+61  stopped  r1 t1 stop #1   -> ReportedLate t1 stopped, HoldEnded t1 #1 stopped, late
        t+62  beat     r1 t1#1         -> nothing
    """
    )


def test_resolve_frees_at_once() -> None:
    """LOST or DEAD with a hold: the operator's word is enough."""
    play(
        EXPIRES.format(options="policy=never", expired="LeaseExpired t1 LOST")
        + """
        t+21  resolve  t1              -> TaskCompleted t1 operator, TaskAssigned t2, told r1 stop t1 ended
    """
    )
    play(
        RUNS.format(options="policy=never run=5:dead")
        + """
        t+20  wait                     -> DeadlinePassed t1 run, LeaseExpired t1 DEAD held=True
        t+21  resolve  t1              -> TaskCompleted t1 operator, HoldEnded t1 #1 force, TaskAssigned t2
    """
    )


def test_force_frees_what_an_ended_task_still_holds() -> None:
    """Also long after: an ended task is remembered as long as it holds something."""
    play(
        EXPIRES.format(options="policy=ask", expired="LeaseExpired t1 LOST")
        + """
        t+21  cancel   t1              -> TaskCancelled t1 held=True held_until=
        t+21  silent   r2
        t+700000 robot r2
        t+700000 submit t3 requirement=none
        t+700001 submit t1 target=dock policy=ask priority=3 -> refused id_conflict
        t+700002 release t1 force      -> HoldEnded t1 #1 force, TaskAssigned t2
        t+700003 release t1 force      -> refused no_such_task, nothing
    """
    )


def test_a_held_slot_counts_as_used() -> None:
    """The robot gets no more than its slots, held ones included; update below them is refused."""
    play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+1   release  t1              -> TaskReleased t1 held=True
        t+1   submit   t2              -> TaskSubmitted t2, nothing
        t+2   update   r1 slots=1      -> ack, nothing
        t+3   stopped  r1 t1 stop #1   -> ReportedLate t1, HoldEnded t1, TaskAssigned t1 #2
    """)


def test_a_forgotten_attempt_may_be_finished_after_all() -> None:
    """Its late completion counts, because nobody else has it yet, and frees what was held."""
    play("""
        t+0   submit   t1 target=dock
        t+0   robot    r1
        t+0   accept   r1 t1
        t+2   robot    r1              -> RobotSessionStarted r1, LeaseExpired t1 not_held held=True
        t+3   complete r1 t1 #1        -> TaskCompleted t1 late=True, HoldEnded t1 #1 stopped, late
    """)
