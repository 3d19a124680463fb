"""What a task's card says after hand-written lists of events."""

from commands import events as e
from projections.cards import CHECKPOINTS_KEPT
from projections.rows import FIRST_KEY, Table
from projections.store import Folder, open_reader
from tests.projections.world import POOL, World
from tests.support.stored_events import START_AT, assigned, completed, expired, failed, hello, leased, submitted


def test_a_whole_life(world: World) -> None:
    """Submitted, assigned, leased, completed: each instant, the robot, the result in a row of its own."""
    world.write(submitted("t1", labels={"line": "3"}, target="dock-7", priority=4))
    waiting = world.task("t1")
    assert (waiting["state"], waiting["attempt"], waiting["priority"]) == ("WAITING", 0, 4)
    assert waiting["submitted_at"] == waiting["eligible_at"] == waiting["since_at"]
    world.write(assigned("t1"))
    assert world.task("t1")["accept_by"] == START_AT + 5_000
    world.write(leased("t1"))
    running = world.task("t1")
    assert (running["state"], running["robot"], running["epoch"], running["stop_after_ms"]) == (
        "RUNNING",
        "r1",
        3,
        15_000,
    )
    assert running["submitted_at"] < running["assigned_at"] < running["started_at"]
    world.write(completed("t1"))
    done = world.task("t1")
    assert (done["state"], done["robot"], done["completed_by"], done["ran_ms"]) == ("COMPLETED", "r1", "robot", 7)
    assert done["ended_at"] == world.log.now
    assert "epoch" not in done
    assert "stop_after_ms" not in done
    assert world.tables.payload(POOL, "t1").value == {"json": {"path": "/a/b.py"}}
    assert world.tables.result(POOL, "t1").value == {"json": {"ok": True}}
    assert "payload" not in done
    assert done["payload_bytes"] == len('{"json":{"path":"/a/b.py"}}')


def test_a_failure_waits_with_back_off_and_then_is_dead(world: World) -> None:
    """The failure's number, text, detail and back-off; then the dead letter with its reason; then a redrive."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    world.write(failed("t1", not_again_before=START_AT + 60_000))
    waiting = world.task("t1")
    assert (waiting["state"], waiting["failures"], waiting["not_again_before"]) == ("WAITING", 1, START_AT + 60_000)
    assert waiting["error"]["message"] == {"json": "disk full"}
    assert waiting["last_robot"] == "r1"
    assert "robot" not in waiting
    assert world.tables.error_detail(POOL, "t1").value == {"json": "a trace"}
    no_detail = e.Failure(type="ValueError", message={"json": "bad"})
    world.write(assigned("t1", attempt=2), leased("t1", attempt=2))
    world.write(failed("t1", attempt=2, to="DEAD", failures=2, dead_reason="fatal", error=no_detail))
    dead = world.task("t1")
    assert (dead["state"], dead["dead_reason"], dead["attempt"]) == ("DEAD", "fatal", 2)
    assert world.tables.error_detail(POOL, "t1").value is None
    changed = e.TaskChanges(priority=9)
    world.write(e.TaskRedriven(task="t1", origin="DEAD", reason="mended", changed=changed))
    again = world.task("t1")
    assert (again["state"], again["failures"], again["priority"], again["redrives"]) == ("WAITING", 0, 9, 1)
    assert again["eligible_at"] == world.log.now
    assert "dead_reason" not in again
    assert "ended_at" not in again


def test_a_lost_attempt_is_taken_up_again(world: World) -> None:
    """LOST keeps the robot and says until when it waits; the lease resumes; later the wait ends."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    world.write(expired("t1", "LOST", wait_until=START_AT + 90_000, policy="wait"))
    away = world.task("t1")
    assert (away["state"], away["robot"], away["wait_until"], away["lost"]) == ("LOST", "r1", START_AT + 90_000, 1)
    world.write(e.LeaseResumed(task="t1", origin="LOST", attempt=1, robot="r1", epoch=9, counts_from=START_AT))
    back = world.task("t1")
    assert (back["state"], back["epoch"]) == ("RUNNING", 9)
    assert "wait_until" not in back
    world.write(expired("t1", "LOST", wait_until=START_AT + 99_000, lost=2, policy="wait"))
    world.write(
        e.LostWaitEnded(task="t1", origin="LOST", to="DEAD", dead_reason="poison", attempt=1, robot="r1", lost=2)
    )
    assert world.task("t1")["dead_reason"] == "poison"


def test_a_hold_is_shown_until_it_ends(world: World) -> None:
    """A released task may run elsewhere while the slot stays held; force marks it."""
    world.write(submitted("t1", target="dock-7"), assigned("t1"), leased("t1"))
    release = e.TaskReleased(
        task="t1",
        origin="RUNNING",
        to="WAITING",
        attempt=1,
        robot="r1",
        reason="stuck",
        held=True,
        held_until=START_AT + 20_000,
    )
    world.write(release)
    assert world.task("t1")["holds"] == [{"attempt": 1, "robot": "r1", "slot_cost": 1, "until": START_AT + 20_000}]
    assert world.robot()["holds"] == {"t1/1": 1}
    assert world.robot()["used"] == 1
    assert world.robot()["state"] == "IDLE"
    target = world.tables.target(POOL, "dock-7").value
    assert target is not None
    assert target["holder"] == {"task": "t1", "attempt": 1, "robot": "r1", "held": True}
    world.write(e.HoldEnded(task="t1", attempt=1, robot="r1", target="dock-7", why="force"))
    assert "holds" not in world.task("t1")
    assert world.task("t1")["exclusion_not_guaranteed"] is True
    assert world.robot()["used"] == 0
    freed = world.tables.target(POOL, "dock-7").value
    assert freed is not None
    assert "holder" not in freed


def test_progress_and_windows_of_the_current_attempt_only(world: World) -> None:
    """ProgressNoted and WindowMissed change the card; what is about a former attempt changes nothing."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    item = e.ProgressItem(task="t1", attempt=1, progress=40, note={"json": "reading"})
    world.write(e.ProgressNoted(items=[item]))
    assert (world.task("t1")["progress"], world.task("t1")["note"]) == (40, {"json": "reading"})
    missed = [e.MissedAttempt(task="t1", attempt=1, missed=2)]
    world.write(e.WindowMissed(start=START_AT, length_ms=5_000, attempts=missed))
    assert world.task("t1")["missed"] == [2, START_AT]
    world.write(expired("t1", "WAITING"), assigned("t1", attempt=2), leased("t1", attempt=2))
    assert "progress" not in world.task("t1")
    world.write(e.ProgressNoted(items=[item]), e.WindowMissed(start=START_AT, length_ms=5_000, attempts=missed))
    assert "progress" not in world.task("t1")
    assert "missed" not in world.task("t1")


def test_the_newest_checkpoints_stay_readable(world: World) -> None:
    """Each checkpoint has a row; beyond CHECKPOINTS_KEPT the oldest goes."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    for number in range(1, CHECKPOINTS_KEPT + 3):
        saved = {"json": {"offset": number}}
        world.write(e.CheckpointSaved(task="t1", attempt=1, robot="r1", number=number, checkpoint=saved))
    assert world.task("t1")["checkpoint_number"] == CHECKPOINTS_KEPT + 2
    kept = world.tables.checkpoints(POOL, "t1").value
    assert [one["number"] for one in kept] == list(range(3, CHECKPOINTS_KEPT + 3))
    assert kept[-1]["checkpoint"] == {"json": {"offset": CHECKPOINTS_KEPT + 2}}
    store = open_reader(Folder(world.folder))
    bodies = list(store.scan(Table.BODIES, FIRST_KEY, b"\xff"))
    store.close()
    assert len(bodies) == CHECKPOINTS_KEPT + 1  # and the payload


def test_a_late_report_marks_the_task(world: World) -> None:
    """F03: a late report is counted and shown, and the state stays."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"), completed("t1"))
    report = e.ReportedLate(task="t1", attempt=1, robot="r1", kind="complete", state="COMPLETED", done_twice=True)
    world.write(report)
    card = world.task("t1")
    assert (card["state"], card["late_reports"], card["done_twice"]) == ("COMPLETED", 1, True)
    assert card["late_report"]["kind"] == "complete"


def test_an_accepted_clock_moves_what_is_open(world: World) -> None:
    """ClockAccepted moves accept_by, wait_until and held_until of this pool forward, and nothing backwards."""
    world.write(submitted("t1"), assigned("t1"), submitted("t2"), assigned("t2"), leased("t2"))
    world.write(expired("t2", "LOST", wait_until=START_AT + 90_000, policy="wait"))
    world.write(submitted("t3"), assigned("t3"), leased("t3"))
    world.write(expired("t3", "CANCELLED", held=True, held_until=START_AT + 30_000, policy="wait"))
    world.write(e.ClockAccepted(from_at=START_AT, to_at=START_AT + 1_000, reason="ntp"))
    assert world.task("t1")["accept_by"] == START_AT + 6_000
    assert world.task("t2")["wait_until"] == START_AT + 91_000
    assert world.task("t3")["holds"][0]["until"] == START_AT + 31_000
    world.write(e.ClockAccepted(from_at=START_AT + 1_000, to_at=START_AT, reason="ntp"))
    assert world.task("t1")["accept_by"] == START_AT + 6_000


def test_a_hello_takes_held_attempts_into_its_epoch(world: World) -> None:
    """What the verdict lets go on is shown with the new epoch."""
    world.write(submitted("t1"), assigned("t1"), leased("t1"))
    verdicts = [
        e.HeldVerdict(task="t1", attempt=1, verdict="run"),
        e.HeldVerdict(task="gone", attempt=1, verdict="stop"),
    ]
    world.write(hello(epoch=77, gateway="g2", superseded_epoch=3, held=verdicts))
    assert world.task("t1")["epoch"] == 77
    assert world.robot()["gateway"] == "g2"


def test_a_reused_id_begins_a_new_life(world: World) -> None:
    """An id that the owner forgot may come again: the card is new, bodies and indexes of the former life are gone."""
    world.write(submitted("t1", target="dock-7"), assigned("t1"), leased("t1"), completed("t1"))
    world.write(submitted("t1", kind="paint", payload=None, target="dock-8"))
    card = world.task("t1")
    assert (card["state"], card["kind"], card["attempt"]) == ("WAITING", "paint", 0)
    assert world.tables.result(POOL, "t1").value is None
    assert world.tables.payload(POOL, "t1").value is None
    assert world.ids("state=COMPLETED") == []
    assert world.ids("target=dock-7") == []
    assert world.ids("target=dock-8") == ["t1"]
    assert len(world.tables.history(POOL, "t1").value) == 5


def test_a_pause_of_a_task_ends_with_it(world: World) -> None:
    """A paused task stays paused as a dead letter; a discarded one is no longer."""
    world.write(
        submitted("t1"), assigned("t1"), leased("t1"), e.DispatchPaused(scope="task", name_="t1", reason="look")
    )
    world.write(failed("t1", to="DEAD", dead_reason="failed"))
    assert world.task("t1")["paused"]["reason"] == "look"
    assert world.ids("paused=true") == ["t1"]
    assert [record.value for record in world.tables.history(POOL, "t1").value][3].count(b"DispatchPaused.v1") == 1
    world.write(e.TaskDiscarded(task="t1", origin="DEAD", reason="hopeless"))
    assert "paused" not in world.task("t1")


def test_sealed_bodies_pass_as_they_are(world: World) -> None:
    """Bodies may come encrypted: the tables hand them on."""
    sealed = {"sealed": "q83vEg==", "key": "k1"}
    world.write(submitted("t1", payload=sealed))
    assert world.tables.payload(POOL, "t1").value == sealed
