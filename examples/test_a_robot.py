"""Tests of a robot: a fleet in the test's own process, on a virtual clock, that loses robots, owners and connections.

    python -m pytest examples/test_a_robot.py       (needs fleetlog[server] and pytest)

What is tested is the robot of checkpoint_and_resume.py as it is. The fixtures come with Fleetlog; in the end of each
test they judge that nothing was lost, nothing was done twice at once, and nothing is stuck without a reason.
"""

from examples.checkpoint_and_resume import robot_named
from fleetlog.testing import Fleet

SLOWLY = {"upto": 100, "pause_s": 0.5}
RIGHT = 100 * 101 // 2


def test_it_adds_up(fleet: Fleet) -> None:
    """50 seconds of work, in an instant."""
    fleet.robot_like(robot_named("robot-a"))
    task = fleet.submit("sum", SLOWLY)
    fleet.advance(seconds=25)
    assert task.state == "RUNNING"
    fleet.advance(seconds=30)
    assert task.result == {"sum": RIGHT, "resumed_at": 1, "attempt": 1, "robot": "robot-a"}


def test_another_robot_goes_on(fleet: Fleet) -> None:
    """The first one dies in the middle; when its lease is over, the other one begins at its last checkpoint."""
    first = fleet.robot_like(robot_named("robot-a"))
    task = fleet.submit("sum", SLOWLY)
    fleet.advance(seconds=25)
    first.kill()
    fleet.robot_like(robot_named("robot-b"))
    assert task.wait().result == {"sum": RIGHT, "resumed_at": 41, "attempt": 2, "robot": "robot-b"}
    assert [event.robot for event in fleet.events("LeaseExpired", task)] == ["robot-a"]


def test_it_stops_when_nobody_wants_the_sum(fleet: Fleet) -> None:
    """Within a second, and its place is kept."""
    fleet.robot_like(robot_named("robot-a"))
    task = fleet.submit("sum", SLOWLY)
    fleet.advance(seconds=25)
    task.cancel("no longer needed")
    fleet.advance(seconds=1)
    assert task.state == "CANCELLED"
    assert task.checkpoint["next"] > 41


def test_it_is_right_whatever_goes_wrong(fleet_with_faults: Fleet) -> None:
    """Something breaks every few seconds (another seed, other faults: `--fleetlog-seed 2`); the sums are right."""
    for name in ("robot-a", "robot-b"):
        fleet_with_faults.robot_like(robot_named(name))
    tasks = [fleet_with_faults.submit("sum", SLOWLY, target=f"dock-{n % 2}") for n in range(4)]
    fleet_with_faults.advance(seconds=120)
    fleet_with_faults.settle()
    assert [task.result["sum"] for task in tasks] == [RIGHT] * 4
