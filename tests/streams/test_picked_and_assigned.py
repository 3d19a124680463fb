"""F08: the owner dies between picking a task and its assignment being in the log, at every step of the batch."""

import pytest

from commands import messages as m
from commands.state import PoolState
from streams.memory_log import MemoryStore
from tests.docs.test_crashes import STEPS, ask
from tests.streams.test_owner import POOL, Office, wait_for


def state_of(office: Office) -> PoolState:
    """What the newest owner knows."""
    owner = office.processors[-1]._owners[0]
    return wait_for(lambda: owner._pools.get(POOL)).state  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", STEPS)
def test_f08_a_task_that_was_picked_is_waiting_or_assigned(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is assigned once, by whoever decides then, and as many slots are in use as there are live attempts: the slot
    of an assignment that never was is not lost, and the robot takes the next task when this one is done."""
    die, has_happened = STEPS[step]
    office = Office(MemoryStore(partitions=1), snapshot_events=1)
    owner = office.open()._owners[0]
    office.hello("r1", slots=1)
    die(owner, monkeypatch)
    ask(office, "t1")
    wait_for(lambda: not owner._thread.is_alive())
    assert len(office.events("TaskAssigned")) == has_happened

    monkeypatch.undo()
    office.open()
    assert office.assigned("t1")["attempt"] == 1
    assert [event.task for event in office.events("TaskAssigned")] == ["t1"]  # type: ignore[attr-defined]
    check_slots(office)
    assert office.say("r1", m.Accept, task="t1", attempt=1)["type"] == "ack"
    assert office.submit("t2")["status"] == "accepted"
    assert len(office.events("TaskAssigned")) == 1
    assert office.say("r1", m.Complete, task="t1", attempt=1)["type"] == "ack"
    assert office.assigned("t2")["attempt"] == 1
    check_slots(office)
    office.close()
    office.check()


def check_slots(office: Office) -> None:
    """Slots in use are those of attempts that are assigned, running or lost."""
    state = state_of(office)
    held = [task.current for task in state.tasks.values() if task.current is not None]
    assert state.robots["r1"].used == sum(current.slot_cost for current in held) == 1
