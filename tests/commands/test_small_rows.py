"""What keeps a million waiting tasks small does what the plain containers would do."""

import random
from collections import OrderedDict
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import queue
from commands.crews import Crews
from commands.events import Deadlines, InstantDeadline, RunDeadline
from commands.ids import name_id
from commands.remembered import SEGMENT, Remembered, RememberedCommands
from commands.state import Robot, Task
from commands.timers import Timers
from tests.support.chaos import Chaos

INSTANT = st.integers(0, 2**53 - 1)
THEN = st.sampled_from(["alarm", "dead", "cancel"])
AT = st.builds(InstantDeadline, at=INSTANT, then=THEN)
DEADLINES = st.none() | st.builds(
    Deadlines, start=st.none() | AT, run=st.none() | st.builds(RunDeadline, ms=INSTANT, then=THEN), end=st.none() | AT
)


@settings(max_examples=200, deadline=None)
@given(INSTANT, st.integers(-1, 2**53), INSTANT, INSTANT, st.binary(min_size=16, max_size=16), DEADLINES, DEADLINES)
def test_a_packed_task_reads_as_it_was_written(
    sequence: int, offset: int, base: int, later: int, digest: bytes, first: Deadlines | None, then: Deadlines | None
) -> None:
    """Each field comes back whatever the others are, and setting one leaves the others alone."""
    eligible = max(base, later)
    task: Any = Task("t1", None, sequence, offset, digest, base, eligible)  # type: ignore[arg-type]
    for deadlines in (first, then):
        task.deadlines = deadlines
        task.offset = offset + 1
        assert (task.sequence, task.offset, task.digest) == (sequence, offset + 1, digest)
        assert (task.base_at, task.eligible_at, task.deadlines) == (base, eligible, deadlines)
        instants = [d.at for d in (deadlines.start, deadlines.end) if d is not None] if deadlines else []
        assert (task.instants, task.first_deadline) == (instants, min(instants, default=None))
    task.begin_at(later, later)
    assert (task.base_at, task.eligible_at, task.deadlines, task.sequence) == (later, later, then, sequence)


def test_a_waiting_task_has_no_past() -> None:
    """Counts of nothing take no room; the first that counts begins it."""
    task: Any = Task("t1", None, 1, -1, bytes(16), 0, 0)  # type: ignore[arg-type]
    task.failures = task.lost = task.again_at = 0
    task.current = task.story = None
    assert task._past is None
    task.failures = 2
    task.told().last_robot = "r1"
    assert (task.failures, task.lost, task.again_at, task.current) == (2, 0, 0, None)
    assert task.story is not None
    assert task.story.last_robot == "r1"


def memory(number: int) -> Remembered:
    """Some command."""
    states = [None, "WAITING", "COMPLETED"]
    return Remembered(number.to_bytes(16, "big"), number, number * 10, states[number % 3], number % 7, number % 2 == 0)


def test_remembered_commands_are_an_ordered_dict() -> None:
    """Over several segments: found, counted, forgotten and listed like the entries of an ordered dict."""
    dice = random.Random(1)
    plain: OrderedDict[bytes, Remembered] = OrderedDict()
    packed = RememberedCommands()
    for number in range(3 * SEGMENT):
        key = bytes.fromhex(name_id(number).replace("-", ""))
        packed.add(key, memory(number))
        plain[key] = memory(number)
        if dice.random() < 0.4 + 0.3 * (number % SEGMENT > SEGMENT // 2) and plain:
            plain.popitem(last=False)
            packed.drop_oldest()
        assert len(packed) == len(plain)
        assert packed.oldest_at() == next((row.at for row in plain.values()), None)
        if number % 500 == 0:
            assert list(packed.items()) == list(plain.items())
            assert all(packed.get(one) == row for one, row in plain.items())
    assert packed.get(bytes(16)) is None
    while plain:
        gone, _ = plain.popitem(last=False)
        packed.drop_oldest()
        assert packed.get(gone) is None
    packed.add(bytes(16), memory(5))
    assert packed.get(bytes(16)) == memory(5)


def test_keys_that_begin_alike_are_told_apart() -> None:
    """The index knows six bytes of a key; the record says which it is."""
    packed = RememberedCommands()
    keys = [b"sameplace" + bytes([number]) * 7 for number in range(50)]
    for number, key in enumerate(keys):
        packed.add(key, memory(number))
    assert [packed.get(key) for key in keys] == [memory(number) for number in range(50)]
    assert packed.get(b"sameplace" + bytes([99]) * 7) is None


def test_items_stay_as_they_were_when_asked_for() -> None:
    """A snapshot reads on while commands come and go."""
    packed = RememberedCommands()
    keys = [bytes.fromhex(name_id(n).replace("-", "")) for n in range(2 * SEGMENT)]
    for number, key in enumerate(keys[:-10]):
        packed.add(key, memory(number))
    items = packed.items()
    for number, key in enumerate(keys[-10:], len(keys) - 10):
        packed.add(key, memory(number))
    for _ in range(SEGMENT + 5):
        packed.drop_oldest()
    assert [key for key, _ in items] == keys[:-10]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 600_000), st.booleans()), max_size=80))
def test_timers_are_a_heap(steps: list[tuple[int, bool]]) -> None:
    """Entries come out in order, none early, whatever minute they lie in; the next instant is always told exactly."""
    timers, heap = Timers(), list[tuple[int, str, str]]()
    until = 0
    for number, (at, pops) in enumerate(steps):
        if not pops:
            timers.push(at, "due", f"t{number}")
            heappush(heap, (at, "due", f"t{number}"))
        else:
            until = max(until, at)
            while heap and heap[0][0] <= until:
                assert timers.pop(until) == heappop(heap)
            assert timers.pop(until) is None
        assert timers.next_at() == (heap[0][0] if heap else None)


def test_the_next_of_a_crew_is_the_smallest() -> None:
    """Robots change room, readiness and capabilities in any order: a crew's next is the one that waited longest."""
    dice = random.Random(3)
    crews, robots = Crews(), [Robot(f"r{number}", slots=4, online=True, offline=False) for number in range(30)]
    for robot in robots:
        crews.place(robot)
    for step in range(3_000):
        robot = dice.choice(robots)
        what = dice.randrange(5)
        if what == 0:
            robot.used, robot.served = (robot.used + dice.randrange(1, 4)) % 4, step
        elif what == 1:
            robot.ready = dice.randrange(5)
        elif what == 2:
            robot.capabilities = dice.choice([(), ("lift",)])
        elif what == 3:
            robot.draining = not robot.draining
        crews.place(robot)
        alike = [
            r for r in robots
            if r.may_work and (r.capabilities, r.slots, min(r.ready, r.slots), r.used)
            == (robot.capabilities, robot.slots, min(robot.ready, robot.slots), robot.used)
        ]  # fmt: skip
        crew = crews.of(robot.id)
        if not robot.may_work:
            assert crew is None
            continue
        assert crew is not None
        without = {r.id for r in alike if dice.random() < 0.2}
        left = [r for r in alike if r.id not in without]
        assert crew.next(without) is min(left, key=lambda r: (r.served, r.id), default=None)
        assert crew.first_id == min(r.id for r in alike)
        assert (crew.room, crew.key in crews.free) == (robot.room, robot.room > 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_target_with_many_tasks_chooses_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tasks than one heap is for: after each step every choice is the naive one."""
    monkeypatch.setattr(queue, "FEW", seed % 3)
    chaos = Chaos(seed, tasks=seed % 12)
    for _ in range(14):
        chaos.step()
    assert chaos.compared
