"""What docs/architecture.md says of an owner that dies between two steps of a batch, played at each of them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from commands import inputs as i
from commands.inputs import encode_command
from streams.memory_log import MemoryStore
from streams.owner import PartitionOwner
from streams.port import Seat, Topic
from tests.streams.test_owner import FAST, POOL, Office, wait_for


class Killed(BaseException):
    """Ends the owner's thread as the death of its process would: nothing is put in order."""


Dying = Callable[[PartitionOwner, pytest.MonkeyPatch], None]


def after(holder: Callable[[PartitionOwner], Any], name: str) -> Dying:
    """Dies when the step has been done for a batch with input."""

    def arrange(owner: PartitionOwner, patch: pytest.MonkeyPatch) -> None:
        step = getattr(holder(owner), name)

        entered = threading.Event()

        def done_and_dead(*arguments: Any) -> Any:
            entered.set()
            result = step(*arguments)
            if owner_has_input(owner) or has_input(result):
                raise Killed
            return result

        patch.setattr(holder(owner), name, done_and_dead)
        if name == "fetch":  # it waits inside the real one
            owner._seat.wake()
            assert entered.wait(60)

    return arrange


def before(holder: Callable[[PartitionOwner], Any], name: str) -> Dying:
    """Dies when everything before the step has been done."""

    def arrange(owner: PartitionOwner, patch: pytest.MonkeyPatch) -> None:
        def dead(*_: Any) -> Any:
            raise Killed

        patch.setattr(holder(owner), name, dead)

    return arrange


def owner_has_input(owner: PartitionOwner) -> bool:
    """Whether the running batch has produced anything."""
    return bool(owner._written.events)


def has_input(fetched: Any) -> bool:
    """Whether a fetch brought anything."""
    return bool(getattr(fetched, "commands", ()))


def its_seat(owner: PartitionOwner) -> Seat:
    """The owner's place at the log."""
    return owner._seat


def itself(owner: PartitionOwner) -> PartitionOwner:
    """The owner."""
    return owner


def its_log(owner: PartitionOwner) -> Any:
    """The owner's log."""
    return owner._log


def ask(office: Office, task: str) -> None:
    """Submits without waiting; the command is called like the task."""
    body = i.Submission(task=task, kind="weld")
    command = i.Submit(id=task, pool=POOL, actor="local", reply_to="gateway", create=True, body=body)
    office.put(Topic.COMMANDS, encode_command(command))


def answers(office: Office, command: str) -> list[dict[str, Any]]:
    """What was said to this command."""
    return [outcome["message"] for outcome in office.outcomes() if outcome.get("of") == command]


STEPS: dict[str, tuple[Dying, bool]] = {
    "1 fetched": (after(its_seat, "fetch"), False),
    "3 decided": (after(itself, "_take"), False),
    "4 time has acted": (after(itself, "_let_time_act"), False),
    "5 dispatched": (after(itself, "_dispatch"), False),
    "6 encoded": (before(its_seat, "commit"), False),
    "7 committed": (before(itself, "_count"), True),
    "8 before the snapshot": (before(itself, "_snapshot_if_due"), True),
    "8 between two slices of the snapshot": (before(itself, "_make_snapshot"), True),
    "8 in the snapshot": (before(its_log, "keep_snapshot"), True),
}
"""Where the owner dies -> how, and whether the batch has happened by then."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("step", STEPS)
def test_an_owner_that_dies_between_two_steps_decides_once(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner dies; its successor answers what is open; the command is decided exactly once, the log is sound."""
    die, has_happened = STEPS[step]
    office = Office(MemoryStore(partitions=1), defaults=FAST, snapshot_events=1)
    first = office.open()
    office.submit("t0")
    owner = first._owners[0]
    die(owner, monkeypatch)
    ask(office, "t1")
    wait_for(lambda: not owner._thread.is_alive())
    written = [event.task for event in office.events("TaskSubmitted")]  # type: ignore[attr-defined]
    assert written == (["t0", "t1"] if has_happened else ["t0"])

    monkeypatch.undo()
    office.open()
    assert wait_for(lambda: answers(office, "t1"))[0]["status"] == "accepted"
    assert office.submit("t2")["status"] == "accepted"
    submitted = [event.task for event in office.events("TaskSubmitted")]  # type: ignore[attr-defined]
    assert submitted == ["t0", "t1", "t2"]
    assert len(answers(office, "t1")) == 1
    office.close()
    office.check()
