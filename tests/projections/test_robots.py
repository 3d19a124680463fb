"""What is known of robots, targets and pools after hand-written lists of events."""

from commands import events as e
from projections.answers import Page
from tests.projections.world import POOL, World, filter_of
from tests.support.stored_events import START_AT, assigned, completed, failed, hello, leased, registered, submitted


def window(*robots: e.MissedRobot, returned: tuple[str, ...] = ()) -> e.WindowMissed:
    """A closed window in which robots were missed or returned."""
    return e.WindowMissed(start=START_AT, length_ms=5_000, robots=list(robots), returned=list(returned))


def test_every_change_of_state_has_an_instant_and_a_cause(world: World) -> None:
    """R1: IDLE, BUSY, IDLE, OFFLINE by silence, back, ERROR that keeps its lease, recovered, OFFLINE by bye."""
    steps: list[tuple[e.Event, str]] = [
        (submitted("t1"), "IDLE"),
        (assigned("t1"), "BUSY"),
        (leased("t1"), "BUSY"),
        (completed("t1"), "IDLE"),
        (window(e.MissedRobot(robot="r1", missed=1)), "IDLE"),
        (window(e.MissedRobot(robot="r1", missed=2)), "IDLE"),
        (window(e.MissedRobot(robot="r1", missed=3)), "OFFLINE"),
        (window(returned=("r1",)), "IDLE"),
        (submitted("t2"), "IDLE"),
        (assigned("t2"), "BUSY"),
        (leased("t2"), "BUSY"),
        (e.RobotFaulted(robot="r1", epoch=3, reason="reported", text={"json": "arm stuck"}), "ERROR"),
        (e.RobotRecovered(robot="r1", reason="reported"), "BUSY"),
        (completed("t2"), "IDLE"),
        (e.RobotFaulted(robot="r1", epoch=3, reason="does_not_accept"), "ERROR"),
        (hello(epoch=40), "IDLE"),
        (e.RobotFaulted(robot="r1", epoch=40, reason="two_programs"), "ERROR"),
        (hello(epoch=42), "ERROR"),
        (e.RobotRecovered(robot="r1", reason="cleared"), "IDLE"),
        (e.RobotSessionEnded(robot="r1", epoch=42, reason="bye"), "OFFLINE"),
    ]
    before = world.robot()
    for event, state in steps:
        world.write(event)
        card = world.robot()
        assert (card["state"], card["online"], "offline" in card) == (state, state != "OFFLINE", False), event
        if state != before["state"]:
            assert (card["since_at"], card["cause"]) == (event.occurred_at, event.type)
        else:
            assert (card["since_at"], card["cause"]) == (before["since_at"], before["cause"])
        before = card
    assert before["counts"] == {"completed": 2}


def test_a_robots_card_says_what_it_has_and_holds(world: World) -> None:
    """Slots, ready, capabilities, draining, attempts with their cost, and how its attempts ended."""
    world.write(e.RobotReadyChanged(robot="r1", epoch=3, n=2), e.RobotDrained(robot="r1", reason="service"))
    world.write(submitted("t1", slot_cost=2), assigned("t1", slot_cost=2), leased("t1"))
    card = world.robot()
    assert (card["slots"], card["ready"], card["used"], card["capabilities"]) == (2, 2, 2, ["gpu"])
    assert card["attempts"] == {"t1": [1, 2]}
    assert card["draining"]["reason"] == "service"
    world.write(
        failed("t1"), e.RobotUndrained(robot="r1"), e.RobotChanged(robot="r1", epoch=3, slots=5, capabilities=["cpu"])
    )
    card = world.robot()
    assert (card["slots"], card["used"], card["attempts"], card["counts"]) == (5, 0, {}, {"failed": 1})
    assert "draining" not in card


def test_a_retired_robot_is_gone_until_it_says_hello(world: World) -> None:
    """After RobotRetired there is no card; a new hello begins a new one."""
    world.write(e.RobotSessionEnded(robot="r1", epoch=3, reason="retired"), e.RobotRetired(robot="r1", reason="sold"))
    assert world.tables.robot(POOL, "r1").value is None
    world.write(registered(), hello(epoch=9))
    assert (world.robot()["state"], world.robot()["counts"]) == ("IDLE", {})


def test_robots_are_counted_by_state_and_listed_by_filter(world: World) -> None:
    """The pool's figures of robots follow every change; lists filter by state, capability and draining."""
    world.write(registered("r2"), hello("r2", epoch=8, capabilities=["cpu"]), registered("r3"))
    world.write(submitted("t1"), assigned("t1"), leased("t1"), e.RobotDrained(robot="r2"))
    pool = world.tables.pool(POOL).value
    assert pool is not None
    assert pool["robots"] == {"BUSY": 1, "IDLE": 1, "OFFLINE": 1}

    def listed(where: str) -> list[str]:
        page = world.tables.robots(filter_of(where, "robot"))
        assert isinstance(page, Page)
        return [card["id"] for card in page.items]

    assert listed("") == ["r1", "r2", "r3"]
    assert listed("state=OFFLINE") == ["r3"]
    assert listed("capability=cpu") == ["r2"]
    assert listed("draining=true id=r*") == ["r2"]
    assert listed("pool=other") == []


def test_a_target_is_there_while_it_has_open_tasks(world: World) -> None:
    """S3, shown: what waits at a target, what holds it, when it was served; forgotten when nothing is left."""
    world.write(submitted("t1", target="dock-7"), submitted("t2", target="dock-7"), assigned("t1"))
    card = world.tables.target(POOL, "dock-7").value
    assert card is not None
    assert (card["open"], card["waiting"], card["last_served_at"]) == (2, 1, world.log.now)
    assert card["holder"] == {"task": "t1", "attempt": 1, "robot": "r1"}
    world.write(leased("t1"), completed("t1"), e.TaskCancelled(task="t2", origin="WAITING"))
    assert world.tables.target(POOL, "dock-7").value is None
    world.write(e.DispatchPaused(scope="target", name_="dock-7", reason="crane"))
    page = world.tables.targets(POOL)
    assert isinstance(page, Page)
    assert [(one["name"], one["paused"]["reason"]) for one in page.items] == [("dock-7", "crane")]
    world.write(e.DispatchResumed(scope="target", name_="dock-7"))
    assert world.tables.target(POOL, "dock-7").value is None


def test_figures_per_kind_and_the_oldest_waiting(world: World) -> None:
    """Counts by state and kind; the oldest waiting is the earliest eligible, so a delayed task does not count yet."""
    world.write(submitted("late", not_before=START_AT + 3_600_000))
    world.write(submitted("t1"), submitted("t2"), submitted("p1", kind="paint"), after_ms=1_000)
    first = world.task("t1")["eligible_at"]
    figures = {one["kind"]: one for one in world.tables.figures(POOL).value}
    assert figures["weld"]["counts"] == {"WAITING": 3}
    assert figures["weld"]["oldest_waiting_at"] == first
    world.write(assigned("t1"), leased("t1"), completed("t1"), assigned("t2"), leased("t2"))
    figures = {one["kind"]: one for one in world.tables.figures(POOL).value}
    assert figures["weld"]["counts"] == {"COMPLETED": 1, "RUNNING": 1, "WAITING": 1}
    assert "oldest_waiting_at" not in figures["weld"]
    world.now = START_AT + 4_000_000
    figures = {one["kind"]: one for one in world.tables.figures(POOL).value}
    assert figures["weld"]["oldest_waiting_at"] == START_AT + 3_600_000
    pool = world.tables.pool(POOL).value
    assert pool is not None
    assert pool["tasks"] == {"COMPLETED": 1, "RUNNING": 1, "WAITING": 2}
    assert pool["oldest_waiting_at"] == world.task("p1")["eligible_at"]
