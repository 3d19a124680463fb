"""Limits: how many of a kind or limit key run at once, how many begin in a time, and what both leave alone."""

import random
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from commands import inputs as i
from commands.cut import snapshot_lines
from commands.decide import limits as decide_limits
from commands.limits import Limit
from commands.rows import canonical, restore
from tests.support.play import play
from tests.support.world import START_AT, World, choices


def assigned(world: World) -> list[str]:
    """Tasks in the order of their assignments."""
    return [event.task for event in world.named("TaskAssigned")]


def limit(world: World, scope: Any, name: str, **values: Any) -> dict[str, Any]:
    """Sets a limit; the answer."""
    return world.do(i.SetLimit, i.LimitBody(scope=scope, name=name, **values))


# ---- how many run ----


def test_a_kind_runs_only_so_often_at_once() -> None:
    """Others go on; when one leaves, the next of it begins."""
    play("""
        t+0   limit    kind weld running=2 -> LimitSet kind weld running=2
        t+0   submit   w1
        t+0   submit   w2
        t+0   submit   w3
        t+0   submit   c1 kind=cut
        t+0   robot    r1 slots=9      -> TaskAssigned w1, TaskAssigned w2, TaskAssigned c1
        t+1   accept   r1 w1
        t+1   accept   r1 w2
        t+2   complete r1 w1           -> TaskCompleted w1, TaskAssigned w3
    """)


LEAVES = {
    "complete": "t+1 complete r1 w1",
    "fail": "t+1 fail r1 w1 after=50",
    "fail fatally": "t+1 fail r1 w1 fatal",
    "stop": "t+1 stopped r1 w1 shutdown",
    "release": "t+1 release w1",
    "reject": "t+0 robot r2\nt+1 reject r1 w1",
    "lapse": "t+5 wait",
    "cancel before it runs": "t+1 cancel w1",
    "expire": "t+0 keep r2\nt+0 robot r2\nt+25 wait",
}


@pytest.mark.parametrize("how", LEAVES)
def test_whatever_ends_an_attempt_makes_room(how: str) -> None:
    """And the count is that of the rows, live, folded and restored."""
    accepts = "" if how in ("reject", "lapse", "cancel before it runs") else "t+0 accept r1 w1"
    world = play(f"""
        t+0   limit    kind weld running=1
        t+0   submit   w1 priority=9
        t+0   robot    r1 slots=9
        t+0   submit   w2
        {accepts}
        {LEAVES[how]}
    """)
    assert assigned(world)[1] in ("w2", "w1")
    held = sum(task.current is not None for task in world.state.tasks.values())
    for state in (world.state, world.folded(), world.restored()):
        assert sum(state.limits.held.values()) == held == 1


def test_a_lost_task_counts_until_it_is_decided() -> None:
    """Its robot may still work: nothing more begins until an operator or the robot says so."""
    play("""
        t+0   limit    kind weld running=1
        t+0   submit   w1 policy=ask
        t+0   robot    r1
        t+0   accept   r1 w1
        t+25  robot    r2              -> LeaseExpired w1 LOST
        t+25  keep     r2
        t+25  submit   w2              -> TaskSubmitted w2
        t+30  resolve  w1              -> TaskCompleted w1, TaskAssigned w2
    """)


def test_a_key_counts_over_all_kinds() -> None:
    """A tenant, a licence, a line: whatever the tasks have in common."""
    play("""
        t+0   limit    key ann running=1
        t+0   submit   a1 limit_key=ann
        t+0   submit   a2 limit_key=ann kind=cut
        t+0   submit   b1 limit_key=bob kind=cut
        t+0   robot    r1 slots=9      -> TaskAssigned a1, TaskAssigned b1
        t+0   accept   r1 a1
        t+1   complete r1 a1           -> TaskCompleted a1, TaskAssigned a2
    """)


def test_both_limits_of_a_task_hold() -> None:
    """That of its kind and that of its key."""
    play("""
        t+0   limit    kind weld running=2
        t+0   limit    key ann running=1
        t+0   submit   a1 limit_key=ann
        t+0   submit   a2 limit_key=ann
        t+0   submit   b1
        t+0   submit   b2
        t+0   robot    r1 slots=9      -> TaskAssigned a1, TaskAssigned b1
        t+0   accept   r1 a1
        t+0   accept   r1 b1
        t+1   complete r1 b1           -> TaskCompleted b1, TaskAssigned b2
        t+2   complete r1 a1           -> TaskCompleted a1, TaskAssigned a2
    """)


def test_a_limit_below_what_runs_takes_nothing_away() -> None:
    """Nothing more begins until fewer run; removed, everything goes on at once."""
    play("""
        t+0   robot    r1 slots=9
        t+0   keep     r1
        t+0   submit   w1
        t+0   submit   w2
        t+0   submit   w3              -> TaskAssigned w3
        t+0   accept   r1 w1
        t+0   accept   r1 w2
        t+0   accept   r1 w3
        t+1   limit    kind weld running=2
        t+1   submit   w4              -> TaskSubmitted w4
        t+2   complete r1 w1           -> TaskCompleted w1
        t+3   complete r1 w2           -> TaskCompleted w2, TaskAssigned w4
        t+3   accept   r1 w4
        t+3   submit   w5              -> TaskSubmitted w5
        t+4   unlimit  kind weld       -> LimitRemoved kind weld, TaskAssigned w5
    """)


def test_what_is_limited_keeps_no_robot() -> None:
    """A large task at its limit reserves nothing: it could not use the room."""
    play("""
        t+0   limit    kind weld running=1
        t+0   submit   w1 priority=9
        t+0   robot    r1 slots=4      -> TaskAssigned w1
        t+0   accept   r1 w1
        t+1   submit   large cost=4 priority=9
        t+1   submit   small kind=cut  -> TaskAssigned small
    """)


def test_a_target_waits_with_its_first_task() -> None:
    """Its tasks keep their order: one of another kind behind the one at its limit does not pass."""
    play("""
        t+0   limit    kind weld running=1
        t+0   submit   w1
        t+0   robot    r1 slots=4      -> TaskAssigned w1
        t+0   accept   r1 w1
        t+1   submit   w2 target=dock
        t+1   submit   c1 target=dock kind=cut -> TaskSubmitted c1
        t+1   submit   c2 target=door kind=cut -> TaskAssigned c2
        t+2   complete r1 w1           -> TaskCompleted w1, TaskAssigned w2
    """)


def test_what_is_limited_stands_before_nobody() -> None:
    """`why` counts only tasks that could be given out before this one."""
    world = World()
    world.dispatching = False
    for k in range(5):
        world.submit(f"w{k}")
    world.submit("c1", kind="cut")
    world.submit("c2", kind="cut")
    robot = world.robot("r1")
    [in_queue] = world.verb(i.Explain, "c2")["holds"]
    assert in_queue["ahead"] == 6
    world.dispatching = True
    world.tick()
    robot.accept("w0")
    limit(world, "kind", "weld", running=1)
    [busy] = world.verb(i.Explain, "c2")["holds"]
    assert (busy["reason"], busy["ahead"]) == ("no_robot_free", 1)


# ---- how many begin in a time ----


def test_a_rate_lets_a_burst_begin_and_then_one_after_the_other() -> None:
    """2 a second, 3 together: three at once, then one every half second; after quiet the burst is whole again."""
    world = World()
    limit(world, "kind", "weld", rate_per_s=2.0, burst=3)
    for k in range(6):
        world.submit(f"w{k}", accept_ms=600_000)
    robot = world.robot("r1", slots=99)
    world.keep(robot)
    world.wait(60)
    for k in range(6, 10):
        world.submit(f"w{k}", accept_ms=600_000)
    world.wait(5)
    instants = [(event.occurred_at - START_AT) / 1_000 for event in world.named("TaskAssigned")]
    assert instants == [0, 0, 0, 0.5, 1, 1.5, 60, 60, 60, 60.5]
    world.verify()


def test_without_a_burst_one_begins_at_a_time() -> None:
    """2.5 a second is one every 400 ms; other kinds are not delayed; the clock alone brings the next."""
    play("""
        t+0   robot    r1 slots=99
        t+0   keep     r1
        t+0   limit    kind weld rate=2.5 -> LimitSet kind weld rate_per_s=2.5 burst=1
        t+0   submit   w1              -> TaskAssigned w1
        t+0   submit   w2              -> TaskSubmitted w2
        t+0   submit   c1 kind=cut     -> TaskAssigned c1
        t+0.399 wait                   -> nothing
        t+0.4 wait                     -> TaskAssigned w2
        t+0.4 submit   w3              -> TaskSubmitted w3
        t+0.8 wait                     -> TaskAssigned w3
    """)


def test_an_assignment_that_came_to_nothing_is_paid_for() -> None:
    """What was begun counts, also if the robot did not want it."""
    play("""
        t+0   limit    kind weld rate=0.1
        t+0   robot    r1
        t+0   robot    r2
        t+0   keep     r1 r2
        t+0   submit   w1              -> TaskAssigned w1 r1
        t+1   reject   r1 w1           -> AssignmentRejected w1
        t+9   wait                     -> nothing
        t+10  wait                     -> TaskAssigned w1 r2
    """)


def test_a_limit_that_is_set_begins_anew() -> None:
    """Another one lets its whole burst begin; the same one once more changes nothing, so the rate goes on."""
    world = play("""
        t+0   robot    r1 slots=9
        t+0   keep     r1
        t+0   limit    kind weld rate=0.01
        t+0   submit   w1              -> TaskAssigned w1
        t+0   submit   w2
        t+1   limit    kind weld rate=0.01 -> unchanged, CommandNoted
        t+2   limit    kind weld rate=0.01 burst=1 -> unchanged, CommandNoted
        t+3   limit    kind weld rate=0.02 -> LimitSet kind weld, TaskAssigned w2
    """)
    assert assigned(world) == ["w1", "w2"]


def test_a_rate_goes_on_over_a_take_over_and_from_a_snapshot() -> None:
    """The instant is in the log and in the rows: a new owner lets the next begin when the old one would have."""
    world = World()
    limit(world, "kind", "weld", rate_per_s=0.1)
    robot = world.robot("r1", slots=9)
    world.keep(robot)
    world.submit("w1", accept_ms=600_000)
    world.submit("w2", accept_ms=600_000)
    world.wait(4)
    restored = world.restored()
    assert restored.timers.next_at() is not None
    assert choices(restored, START_AT + 9_999) == []
    assert choices(world.restored(), START_AT + 10_000) == [("w2", "r1")]
    world.take_over(gap_s=1)
    world.wait(10)
    assert [(event.task, event.occurred_at - START_AT) for event in world.named("TaskAssigned")] == [
        ("w1", 0),
        ("w2", 10_000),
    ]
    world.verify()


def test_snapshots_without_limits_are_read() -> None:
    """Rows of a time before limits acted: without the list, and with limits of which nothing was spent."""
    world = play("t+0 limit kind weld running=2 rate=5\nt+0 submit w1\nt+0 robot r1")
    head, *rest = snapshot_lines(world.state)
    line = from_json(head)
    line[3]["limits"] = [["kind", "weld", {"running": 2, "rate_per_s": None, "burst": None}]]
    [old] = restore([to_json(line), *rest], world.now)
    assert old.limits.rows == {("kind", "weld"): Limit(running=2)}
    assert old.limits.held == {("kind", "weld"): 1}
    del line[3]["limits"]
    [older] = restore([to_json(line), *rest], world.now)
    assert older.limits.rows == {}


@given(
    rate=st.floats(0.5, 1_000), burst=st.integers(1, 20), gaps=st.lists(st.integers(0, 3_000), min_size=1, max_size=60)
)
@settings(max_examples=300, deadline=None)
def test_a_rate_is_kept_and_not_undercut(rate: float, burst: int, gaps: list[int]) -> None:
    """In no span of time more than burst + rate x span begin; whoever comes when that leaves room is not delayed."""
    limit_, begun, now = Limit(rate_per_s=rate, burst=burst), list[int](), START_AT
    for gap in gaps:
        now += gap
        opens_at = max(now, limit_.opens_at())
        allowed = _first_allowed(begun, now, rate, burst)
        assert allowed <= opens_at <= allowed + 2 + ceil(len(begun) * rate / 1_000_000)
        now = opens_at
        limit_.spend(now)
        begun.append(now)
        for first in range(len(begun)):
            span_s = (now - begun[first]) / 1_000
            assert len(begun) - first <= burst + rate * span_s + 1e-6


def _first_allowed(begun: list[int], now: int, rate: float, burst: int) -> int:
    """The first instant, not before `now`, at which one more keeps every span to burst + rate x span."""
    waits = [at + ceil((len(begun) - k + 1 - burst) * 1_000 / rate - 1e-6) for k, at in enumerate(begun)]
    return max([now, *waits])


# ---- commands ----

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "/running"),
    "none at all": ({"running": 0}, "/running"),
    "too many": ({"running": 1_000_001}, "/running"),
    "no rate": ({"rate_per_s": 0.0}, "/rate_per_s"),
    "a rate that falls": ({"rate_per_s": -1.0}, "/rate_per_s"),
    "a rate too high": ({"rate_per_s": 1_000.1}, "/rate_per_s"),
    "a burst without a rate": ({"running": 1, "burst": 2}, "/burst"),
    "an empty burst": ({"rate_per_s": 1.0, "burst": 0}, "/burst"),
    "a burst too large": ({"rate_per_s": 1.0, "burst": 1_000_001}, "/burst"),
    "a name that is none": ({"name": "a b", "running": 1}, "/name"),
    "a kind of 65 characters": ({"name": "k" * 65, "running": 1}, "/name"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_limit_is_refused(what: str) -> None:
    """By its field; nothing is written."""
    values, field = WRONG[what]
    world = World()
    answer = world.do(i.SetLimit, i.LimitBody(scope="kind", **({"name": "weld"} | values)))
    assert (answer["reason"], answer["field"]) == ("invalid_field", field)
    assert world.named("LimitSet") == []


def test_a_key_may_be_longer_than_a_kind() -> None:
    """As in submissions."""
    world = World()
    assert limit(world, "key", "k" * 128, running=1)["changed"] is True
    assert limit(world, "key", "k" * 129, running=1)["reason"] == "invalid_field"


def test_removing_what_is_not_there() -> None:
    """no_such_limit; a kind's limit is not a key's."""
    play("""
        t+0   submit   w1
        t+0   unlimit  kind weld       -> refused no_such_limit
        t+0   limit    kind weld running=1
        t+0   unlimit  key weld        -> refused no_such_limit
        t+0   unlimit  kind weld       -> LimitRemoved kind weld
    """)


def test_a_pool_has_so_many_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there may still be replaced."""
    monkeypatch.setattr(decide_limits, "LIMITS_MAX", 2)
    world = World()
    assert limit(world, "kind", "a", running=1)["changed"] is True
    assert limit(world, "kind", "b", running=1)["changed"] is True
    assert "at most 2 limits" in limit(world, "kind", "c", running=1)["text"]
    assert limit(world, "kind", "b", running=2)["changed"] is True


def test_the_answer_says_what_was_set() -> None:
    """With the burst that a rate has where none was given."""
    world = World()
    answer = limit(world, "kind", "weld", running=4, rate_per_s=2.5)
    assert {name: answer[name] for name in ("scope", "name", "running", "rate_per_s", "burst", "changed")} == {
        "scope": "kind", "name": "weld", "running": 4, "rate_per_s": 2.5, "burst": 1, "changed": True,
    }  # fmt: skip
    [event] = world.named("LimitSet")
    assert (event.running, event.rate_per_s, event.burst) == (4, 2.5, 1)


# ---- what it costs ----


def test_what_waits_at_a_limit_is_not_looked_at() -> None:
    """2,000 tasks of a limited kind are one lane that is skipped: its heap is not touched while others are assigned."""
    world = World(settings={"window_ms": 60_000, "lease_ms": 180_000})
    limit(world, "kind", "weld", running=1)
    for k in range(2_000):
        world.submit(f"w{k}")
    world.robot("r1", slots=1000)
    lane = next(lane for lane in world.state.queue.lanes.values() if lane.kind == "weld")
    before = list(lane.heap)
    for k in range(50):
        world.submit(f"c{k}", kind="cut")
    assert assigned(world) == ["w0", *(f"c{k}" for k in range(50))]
    assert lane.heap == before


@pytest.mark.parametrize("seed", range(6))
def test_everything_limited_still_ends(seed: int) -> None:
    """Random limits, kinds and keys on few robots: nothing is forgotten when room or time comes back."""
    dice = random.Random(seed)
    world = World()
    robot = world.robot("r1", slots=6)
    world.keep(robot)
    for scope, name in (("kind", "a"), ("kind", "b"), ("key", "ann"), ("key", "bob")):
        rate = dice.choice([None, 0.5, 20.0])
        limit(world, scope, name, running=dice.choice([1, 2]), rate_per_s=rate)
    for k in range(60):
        target = dice.choice([None, "s1", "s2"])
        world.submit(f"t{k}", kind=dice.choice(["a", "b"]), limit_key=dice.choice([None, "ann", "bob"]), target=target)
    ended = 0
    for _ in range(2_000):
        world.wait(dice.choice([0.01, 0.3, 1]))
        for task in [t for t in robot.assigned() if world.at(t) == "ASSIGNED"]:
            robot.accept(task)
        if robot.holds and dice.random() < 0.7:
            robot.complete(dice.choice(list(robot.holds)))
            ended += 1
        if ended == 60:
            break
    assert ended == 60
    assert world.state.limits.held == {}
    world.verify()


def test_rows_tell_all_of_a_limit() -> None:
    """Equal states have equal rows, other ones others: the instant of the rate is part of them."""
    world = play("t+0 limit kind weld rate=0.1 burst=2\nt+0 robot r1\nt+0 submit w1")
    row = world.state.limits.rows["kind", "weld"]
    assert Limit.from_row(row.as_row()) == row
    before = canonical(world.state)
    world.state.limits.rows["kind", "weld"] = replace(row, paid_until_us=row.paid_until_us + 1)
    assert canonical(world.state) != before
