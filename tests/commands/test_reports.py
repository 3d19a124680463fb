"""What robots say of attempts: accepted, refused, repeated, late; and that the first report wins."""

import pytest

from commands import inputs as i
from commands.heartbeats import PROGRESS_PER_EVENT
from tests.support.play import play
from tests.support.world import World

RUNNING = """
    t+0   submit   t1 {options}
    t+0   robot    r1
    t+0   accept   r1 t1           -> LeaseStarted t1 #1, ack
"""

REPEATS = {
    "accept": "t+1 accept r1 t1 -> ack, nothing",
    "accept in LOST resumes": "t+20 wait\nt+21 accept r1 t1 #1 -> LeaseResumed t1\nt+21 again -> same, nothing",
    "checkpoint": "t+1 checkpoint r1 t1 1 -> CheckpointSaved t1 number=1\nt+1 again -> ack, nothing",
    "complete": "t+1 complete r1 t1 -> TaskCompleted t1, ack\nt+1 again -> ack, nothing\nt+99 again -> ack, nothing",
    "fail": "t+1 fail r1 t1 -> AttemptFailed t1, ack\nt+1 again -> ack, nothing",
    "fail to DEAD": "t+1 fail r1 t1 fatal -> AttemptFailed t1 DEAD\nt+1 again -> ack, nothing",
    "stopped": "t+1 drain r1\nt+1 stopped r1 t1 shutdown -> AttemptStopped t1, ack\nt+1 again -> ack, nothing",
    "stopped to CANCELLED": "t+1 cancel t1\nt+1 stopped r1 t1 cancel -> AttemptStopped t1\nt+1 again -> ack, nothing",
    "stopped to LOST": "t+1 stopped r1 t1 own_deadline -> AttemptStopped t1 LOST\nt+1 again -> ack, nothing",
    "late complete": "t+1 release t1 force\nt+1 fail r1 t1 #1 -> ReportedLate t1, late\nt+1 again -> late, nothing",
    "fault": "t+1 fault r1 -> RobotFaulted r1, ack\nt+1 again -> ack, nothing",
    "ready": "t+1 ready r1 0 -> RobotReadyChanged r1, ack\nt+1 again -> ack, nothing",
    "update": "t+1 update r1 slots=3 -> RobotChanged r1, ack\nt+1 again -> ack, nothing",
}


@pytest.mark.parametrize("kind", REPEATS)
def test_a_repeat_gets_the_same_answer_and_no_event(kind: str) -> None:
    """Sent again with the next number, as the protocol says: known by task, attempt and type, not by its id."""
    play(RUNNING.format(options="policy=ask") + REPEATS[kind])


LATER = {
    "runs elsewhere": "",
    "was completed elsewhere": "t+5 complete r2 t1 -> TaskCompleted t1 #2",
    "is dead": "t+5 fail r2 t1 fatal -> AttemptFailed t1 #2 DEAD",
}


@pytest.mark.parametrize("report", ["fail r1 t1", "stopped r1 t1 shutdown"])
@pytest.mark.parametrize("later", LATER)
def test_a_repeat_is_known_after_newer_attempts(report: str, later: str) -> None:
    """The ack was lost and the task went on meanwhile: the repeat is still no late report."""
    play(
        f"""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+0   robot    r2
        t+0   drain    r1
        t+1   {report}                 -> ack
        t+3   accept   r2 t1           -> LeaseStarted t1 #2
        {LATER[later]}
        t+6   {report} #1              -> ack, nothing
    """.replace("-> LeaseStarted", "-> TaskAssigned t1 #2 r2, LeaseStarted" if "fail" in report else "-> LeaseStarted")
    )


def test_a_repeated_reject_is_known_after_newer_attempts() -> None:
    """Its ack was lost; the task is somebody else's by now."""
    play("""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+0   robot    r2
        t+1   reject   r1 t1           -> AssignmentRejected t1 #1, TaskAssigned t1 #2 r2, ack
        t+1   again                    -> ack, nothing
        t+2   accept   r2 t1
        t+2   reject   r1 t1 #1        -> ack, nothing
    """)


REFUSALS = {
    "accept of an unknown task": "t+1 accept r1 ghost #1 -> refused unknown_task, nothing",
    "accept of somebody else's": "t+1 accept r2 t1 #1 -> refused not_yours, nothing",
    "accept of a coming attempt": "t+1 accept r1 t1 #2 -> refused not_current, nothing",
    "accept of what has ended": "t+1 complete r1 t1\nt+1 accept r1 t1 #1 -> refused not_current, nothing",
    "reject of what was accepted": "t+1 reject r1 t1 -> refused already_accepted, nothing",
    "reject of somebody else's": "t+1 reject r2 t1 other #1 -> refused not_yours, nothing",
    "checkpoint of somebody else's": "t+1 checkpoint r2 t1 1 #1 -> refused not_yours, nothing",
    "checkpoint of an old attempt": "t+1 complete r1 t1\nt+1 checkpoint r1 t1 1 #1 -> refused not_current, nothing",
    "complete of an unknown task": "t+1 complete r1 ghost #1 -> refused unknown_task, nothing",
    "complete of somebody else's": "t+1 complete r2 t1 #1 -> refused not_yours, nothing",
    "complete of a coming attempt": "t+1 complete r1 t1 #2 -> refused not_accepted, nothing",
    "complete of somebody else's, ended": "t+1 complete r1 t1\nt+1 complete r2 t1 #1 -> refused not_yours, nothing",
    "fail of somebody else's": "t+1 fail r2 t1 #1 -> refused not_yours, nothing",
    "stopped of somebody else's": "t+1 stopped r2 t1 stop #1 -> refused not_yours, nothing",
    "recovered without a fault": "t+1 recovered r1 -> refused not_in_error, nothing",
    "update to fewer slots than are in use": "t+1 drain r2\nt+1 update r1 slots=2\nt+1 ready r1 2\nt+1 submit t2"
    " -> TaskAssigned t2 r1\nt+1 update r1 slots=1 -> refused slots_in_use, nothing",
    "update of nothing": "t+1 update r1 -> refused invalid_field, nothing",
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_a_report_that_is_nobodys_truth_is_refused(what: str) -> None:
    """With the word of the list, and without an event."""
    play(RUNNING.format(options="") + "t+0 robot r2\n" + REFUSALS[what])


@pytest.mark.parametrize("report", ["checkpoint r1 t1 1", "complete r1 t1", "fail r1 t1", "stopped r1 t1 stop"])
def test_nothing_is_done_before_it_is_accepted(report: str) -> None:
    """ASSIGNED: not_accepted; and so it stays when the assignment was withdrawn or released."""
    play(f"""
        t+0   submit   t1
        t+0   robot    r1              -> TaskAssigned t1 #1
        t+1   {report}                 -> refused not_accepted, nothing
        t+2   drain    r1
        t+5   wait                     -> AssignmentWithdrawn t1 #1
        t+6   {report}                 -> refused {"not_current" if "checkpoint" in report else "not_accepted"}, nothing
        t+6   accept   r1 t1 #1        -> refused withdrawn, nothing
        t+7   undrain  r1              -> RobotUndrained r1, TaskAssigned t1 #2
        t+8   drain    r1
        t+8   release  t1              -> TaskReleased t1 #2
        t+9   complete r1 t1 #2        -> refused not_accepted, nothing
    """)


def test_late_complete_is_accepted_while_nobody_else_has_it() -> None:
    """By default: the task has not ended and no newer attempt was assigned."""
    play(
        RUNNING.format(options="")
        + """
        t+20  wait                     -> LeaseExpired t1 WAITING
        t+25  complete r1 t1 #1 result=7 -> TaskCompleted t1 #1 late=True cancel_requested=False ran_ms=, late
        t+25  again                    -> late, nothing
    """
    )


def test_late_complete_is_recorded_where_the_task_wants_that() -> None:
    """late: record. The task goes on waiting; the report is kept once."""
    play(
        RUNNING.format(options="late=record")
        + """
        t+20  wait                     -> LeaseExpired t1 WAITING
        t+25  complete r1 t1 #1        -> ReportedLate t1 #1 complete WAITING done_twice=False newer_attempt=, late
        t+25  again                    -> late, nothing
    """
    )


def test_late_complete_with_a_newer_attempt_is_probably_done_twice() -> None:
    """F03: kept, marked, and the newer attempt is not touched."""
    world = play(
        RUNNING.format(options="")
        + """
        t+19  robot    r2
        t+20  wait                     -> LeaseExpired t1, TaskAssigned t1 #2 r2
        t+21  accept   r2 t1
        t+22  complete r1 t1 #1 result=7 -> ReportedLate t1 #1 complete RUNNING newer_attempt=2 done_twice=True, late
        t+22  again                    -> late, nothing
        t+23  complete r2 t1           -> TaskCompleted t1 #2 late=False, ack
        t+24  fail     r1 t1 #1        -> ReportedLate t1 #1 fail COMPLETED done_twice=False, late
        t+24  again                    -> late, nothing
        t+25  stopped  r1 t1 stop #1   -> ReportedLate t1 #1 stopped COMPLETED, late
        t+25  again                    -> late, nothing
        t+26  complete r1 t1 #1        -> late, nothing
    """
    )

    assert world.named("ReportedLate")[0].result == {"json": "7"}
    assert world.named("ReportedLate")[1].error.type == "Broken"


@pytest.mark.parametrize("ended", ["t+21 cancel t1", "t+1 fail r1 t1 fatal", "t+20 wait\nt+21 discard t1"])
def test_late_reports_of_ended_tasks_are_recorded(ended: str) -> None:
    """CANCELLED, DEAD and DISCARDED stay what they are."""
    world = play(RUNNING.format(options="lost_max=1" if "discard" in ended else "") + ended)
    state = world.at("t1")
    robot = world.robots["r1"]
    before = len(world.named("ReportedLate"))
    for _ in range(2):
        assert robot.complete("t1", 1)["late"] is True
    [late] = world.named("ReportedLate")[before:]

    assert (late.kind, late.state, late.done_twice) == ("complete", state, False)
    assert world.at("t1") == state
    world.verify()


def test_a_completion_after_resolve_is_recorded() -> None:
    """The operator's word came first; the robot's own report is no repeat of it."""
    play(
        RUNNING.format(options="policy=never")
        + """
        t+20  wait                     -> LeaseExpired t1 LOST
        t+21  resolve  t1              -> TaskCompleted t1 operator
        t+22  complete r1 t1 #1        -> ReportedLate t1 #1 complete COMPLETED done_twice=True, late
        t+22  again                    -> late, nothing
    """
    )


def test_a_failed_attempt_cannot_complete() -> None:
    """The first report about the current attempt wins, also against the same robot."""
    play(
        RUNNING.format(options="first=60")
        + """
        t+1   fail     r1 t1           -> AttemptFailed t1 WAITING
        t+2   complete r1 t1 #1        -> ReportedLate t1 #1 complete WAITING, late
    """
    )


def test_checkpoints_are_numbered_within_the_task() -> None:
    """A number not above the last is a repeat; the next attempt is given the last value and goes on after it."""
    world = play(
        RUNNING.format(options="first=0")
        + """
        t+1   checkpoint r1 t1 1       -> CheckpointSaved t1 number=1
        t+1.5 checkpoint r1 t1 2       -> refused too_fast, nothing
        t+2   checkpoint r1 t1 2       -> CheckpointSaved t1 number=2
        t+4   checkpoint r1 t1 1       -> ack, nothing
        t+5   fail     r1 t1           -> AttemptFailed t1, TaskAssigned t1 #2 checkpoint_number=2
        t+7   accept   r1 t1
        t+7   checkpoint r1 t1 3       -> CheckpointSaved t1 #2 number=3
        t+8   stopped  r1 t1 shutdown checkpoint=4 -> CheckpointSaved number=4, AttemptStopped t1, TaskAssigned t1 #3
        t+9   accept   r1 t1
        t+9   stopped  r1 t1 shutdown checkpoint=4 -> AttemptStopped t1 #3, TaskAssigned t1 #4
    """
    )
    assign = world.robots["r1"].news("assign")[-1]

    assert assign["checkpoint"] == {"number": 4}
    assert world.state.tasks["t1"].story is not None
    refused = world.robots["r1"].news("refused")[0]
    assert refused["retry"] is True
    assert refused["retry_after_ms"] == 500


def test_checkpoints_in_the_instant_of_the_start_are_too_fast_as_well() -> None:
    """What comes in one batch with the start of the attempt has its instant."""
    play(
        RUNNING.format(options="first=60")
        + """
        t+0   checkpoint r1 t1 1       -> CheckpointSaved t1 number=1
        t+0   checkpoint r1 t1 2       -> refused too_fast, nothing
    """
    )


def test_a_checkpoint_resumes_a_lost_attempt() -> None:
    """It names the attempt; a repeated one does so too."""
    rows = "t+20 wait -> LeaseExpired t1 LOST\n"
    play(RUNNING.format(options="policy=ask") + rows + "t+21 checkpoint r1 t1 1 -> LeaseResumed, CheckpointSaved")
    play(
        RUNNING.format(options="policy=ask")
        + "t+1 checkpoint r1 t1 1\n"
        + rows
        + "t+21 checkpoint r1 t1 1 -> LeaseResumed t1, ack"
    )


@pytest.mark.parametrize("policy", ["wait wait=60", "ask", "never"])
def test_what_its_robot_stopped_does_not_run_again(policy: str) -> None:
    """After own_deadline the attempt is LOST. The robot names it until its ack comes; that must not resume it."""
    play(
        RUNNING.format(options=f"policy={policy}")
        + """
        t+4   stopped  r1 t1 own_deadline -> AttemptStopped t1 LOST
        t+5   beat     r1 t1#1         -> nothing
        t+6   checkpoint r1 t1 1 #1    -> refused not_current, nothing
        t+6   accept   r1 t1 #1        -> refused not_current, nothing
        t+7   hello    r1 holding=t1#1 -> RobotSessionStarted r1
        t+8   wait                     -> nothing
    """
    )


def test_heartbeats_get_a_stop_for_what_is_not_the_robots() -> None:
    """An attempt of somebody else, of an older number, unknown or ended; but not one whose own report is on its way."""
    world = World()
    r1, r2 = world.robot("r1", slots=2), world.robot("r2")
    world.submit("t1")
    world.submit("t2")
    world.submit("t3")
    first = world.state.tasks["t1"].current
    assert first is not None
    mine, other = (r1, r2) if first.robot == "r1" else (r2, r1)
    mine.accept("t1")
    other.beat(("t1", 1), ("ghost", 1), ("t1", 5))
    assert [(s["task"], s["attempt"], s["reason"]) for s in other.news("stop")] == [
        ("t1", 1, "unknown"),
        ("ghost", 1, "unknown"),
        ("t1", 5, "unknown"),
    ]
    mine.complete("t1")
    mine.beat(("t1", 1))
    assert mine.news("stop") == []
    other.beat(("t1", 1))
    assert other.news("stop")[-1]["reason"] == "ended"
    world.verify()


def test_a_heartbeat_of_an_old_session_counts_for_nothing() -> None:
    """F26: the epoch is over; neither is the robot heard nor its attempt named."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1")
    robot.accept("t1")
    old = robot.epoch
    robot.hello(("t1", 1))
    for _ in range(8):
        world.wait(2.5)
        robot.epoch = old
        robot.beat(("t1", 1))
    assert world.named("LeaseExpired")[0].reason == "missed_windows"
    world.verify()


def test_progress_is_written_once_a_second_with_what_changed() -> None:
    """At most one ProgressNoted a pool and second; what did not change is not said again; parts are bounded."""
    world = World()
    robot = world.robot("r1", slots=3)
    for task in ("t1", "t2", "t3"):
        world.submit(task)
        robot.accept(task)

    def beat(*progress: int) -> None:
        robot.beat(
            *(
                i.HeldByRobot(task=f"t{k}", attempt=1, progress=value, note=f"step {value}")
                for k, value in enumerate(progress, 1)
            )
        )

    beat(1, 1, 1)
    beat(2, 1, 1)
    world.wait(1)
    beat(2, 5, 1)
    world.wait(0.1)
    beat(2, 6, 1)
    world.wait(0.9)
    first, second = world.named("ProgressNoted")
    assert [(x.task, x.progress, x.note) for x in first.items] == [
        ("t1", 2, {"json": "step 2"}),
        ("t2", 1, {"json": "step 1"}),
        ("t3", 1, {"json": "step 1"}),
    ]
    assert [(x.task, x.progress) for x in second.items] == [("t2", 6)]
    assert second.occurred_at // 1000 > first.occurred_at // 1000
    robot.complete("t2")
    beat(9)
    world.wait(1)
    assert [x.task for x in world.named("ProgressNoted")[-1].items] == ["t1"]
    world.verify()


def test_the_longest_notes_fit_into_their_parts() -> None:
    """200 characters of six bytes each, for more attempts than one event takes."""
    world = World()
    many = PROGRESS_PER_EVENT + 1
    robot = world.robot("r1", slots=1024)
    for k in range(many):
        world.submit(f"{'x' * 120}{k}")
    for task in robot.assigned():
        robot.accept(task)
    robot.beat(*(i.HeldByRobot(task=t, attempt=1, progress=1, note="\x01" * 200) for t in robot.assigned()))
    world.wait(1)
    parts = world.named("ProgressNoted")
    assert [(len(event.items), event.part, event.parts) for event in parts] == [
        (PROGRESS_PER_EVENT, 1, 2),
        (1, 2, 2),
    ]
    world.verify()
