"""The pool itself: creation, settings, clock steps, faults that freeze it, input that cannot be decided or stored."""

from typing import Any

import pytest

from commands import candidates, pool, queue
from commands import events as e
from commands import inputs as i
from commands import messages as m
from commands.decide import table
from commands.ids import ZERO_HASH, chain_hash
from commands.rows import canonical
from commands.settings import PoolSettings
from tests.support.play import play
from tests.support.world import START_AT, World


def test_a_pool_begins_with_its_settings() -> None:
    """PoolCreated is sequence 1 and holds all of them: those of the log, with those of the command laid over."""
    world = World(settings={"ageing_ms": 30_000})
    answer = world.do(i.CreatePool, i.SettingsBody(settings={"lease_ms": 30_000}))
    [created] = world.events
    assert created.sequence == 1
    assert isinstance(created, e.PoolCreated)
    assert created.settings == PoolSettings(ageing_ms=30_000, lease_ms=30_000).as_json()
    assert answer["changed"] is True
    assert world.do(i.CreatePool, i.SettingsBody())["changed"] is False
    world.verify()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"window_ms": 7_000}, "impossible_settings"),
        ({"lease_ms": 14_999}, "impossible_settings"),
        ({"window_ms": 10_000}, "impossible_settings"),
        ({"window": 5_000}, "unknown_field"),
        ({"window_ms": "5000"}, "invalid_field"),
        ({"window_ms": True}, "invalid_field"),
        ({"window_ms": 499}, "invalid_field"),
        ({"window_ms": 5_000.5}, "invalid_field"),
        ({"backoff_factor": float("nan")}, "invalid_field"),
        ({"late": "never"}, "invalid_field"),
        ({"late": ["accept"]}, "invalid_field"),
        ({"on_lost": None}, "invalid_field"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    """F19: at creation and later, with the field; nothing is written."""
    world = World()
    command = i.CreatePool(id="c", pool="hall", actor="a", reply_to="g1", body=i.SettingsBody(settings=settings))
    world.take(command)
    assert world.answers["c"]["reason"] == reason
    assert world.events == []
    world.submit("t1")
    change = i.ConfigurePool(id="d", pool="hall", actor="a", reply_to="g1", body=i.SettingsBody(settings=settings))
    world.take(change)
    assert world.answers["d"]["reason"] == reason
    assert world.named("PoolConfigured") == []


def test_an_unknown_pool_is_refused() -> None:
    """A mistyped name must not become a queue that nobody serves; a bad name cannot."""
    world = World()
    for command in (
        i.Submit(id="c1", pool="hall", actor="a", reply_to="g1", body=i.Submission(task="t1", kind="weld")),
        i.Explain(id="c2", pool="hall", actor="a", reply_to="g1", body=i.TaskVerb(task="t1")),
    ):
        world.take(command)
        assert world.answers[command.id]["reason"] == "no_such_pool"
    hello = m.Hello(id="b.1", slots=1, capabilities=[], holding=[])
    world.take(i.Report(pool="hall", robot="r1", gateway="g1", actor="a", message=hello))
    assert world.answers["b.1"]["reason"] == "no_such_pool"
    world.take(i.Heartbeats(pool="hall", gateway="g1", beats=[i.Beat(robot="r1", epoch=1, seq=1, holding=[])]))
    bad = World(name="-hall")
    bad.submit("t1")
    assert world.events == bad.events == []
    world.verify()


def test_settings_that_are_as_they_were_change_nothing() -> None:
    """CommandNoted; and what differs is told alone."""
    world = play("""
        t+0   submit   t1
        t+1   set      ageing_ms=60000 -> unchanged, nothing
        t+1   set      ageing_ms=60000 accept_ms=7000 -> PoolConfigured
        t+1   submit   t2
    """)

    assert world.named("PoolConfigured")[0].changed == {"accept_ms": 7_000}
    assert world.named("TaskSubmitted")[-1].accept_ms == 7_000


def test_a_settings_change_touches_no_task_that_waits() -> None:
    """TaskSubmitted stores effective values."""
    world = play("""
        t+0   submit   t1
        t+1   set      lease_ms=60000 failures_max=9
        t+2   robot    r1              -> TaskAssigned t1 lease_ms=15000
    """)

    assert world.state.tasks["t1"].terms.failures_max == 3


def test_formats_only_rise() -> None:
    """As high as this software writes; the same again changes nothing."""
    world = World()
    world.submit("t1")
    assert world.do(i.RaiseFormat, i.FormatBody(to_format=1))["changed"] is False
    assert world.do(i.RaiseFormat, i.FormatBody(to_format=2))["reason"] == "invalid_field"
    world.state.format = 0
    assert world.do(i.RaiseFormat, i.FormatBody(to_format=1))["changed"] is True
    assert world.named("FormatRaised")[0].from_format == 0


# ---- the clock ----


def test_a_clock_step_is_accepted_by_an_operator_alone() -> None:
    """Refused while the clock is trusted, and without a reason."""
    world = World()
    world.submit("t1")
    assert world.do(i.AcceptClock, i.ReasonBody(reason="new battery"))["reason"] == "clock_trusted"
    world.wall_at = world.now + 3_600_000
    assert world.do(i.AcceptClock, i.ReasonBody(reason=""))["reason"] == "reason_required"
    assert world.do(i.AcceptClock, i.ReasonBody(reason="new battery"))["changed"] is True
    [accepted] = world.named("ClockAccepted")
    assert (accepted.from_at, accepted.to_at) == (START_AT, START_AT + 3_600_000)


@pytest.mark.parametrize("jump_s", [3_600, 63_072_000])
def test_a_clock_that_jumps_forward_ends_nothing_early(jump_s: int) -> None:
    """F27: accept-by, waits and holds move with it, and no window of the span is closed."""
    world = play("""
        t+0   submit   running
        t+0   submit   lost policy=wait wait=60
        t+0   submit   held
        t+0   robot    r1 slots=3
        t+0   accept   r1 running
        t+0   accept   r1 lost
        t+0   accept   r1 held
        t+4   beat     r1 running#1 held#1
        t+9   beat     r1 running#1 held#1
        t+14  beat     r1 running#1 held#1
        t+19  beat     r1 running#1 held#1
        t+21  release  held            -> LeaseExpired lost LOST, TaskReleased held
        t+22  robot    r2 slots=2      -> TaskAssigned held #2 r2
        t+22  submit   assigned        -> TaskAssigned assigned r2
    """)
    hold = world.named("TaskReleased")[0].held_until - world.now
    wait = world.named("LeaseExpired")[0].wait_until - world.now
    events = len(world.events)
    world.wall_at = world.now + jump_s * 1000
    world.do(i.AcceptClock, i.ReasonBody(reason="because"))
    world.now = world.wall_at
    world.wall_at = None
    began = world.now
    world.tick()
    assert [event.name for event in world.events[events:]] == ["ClockAccepted"]
    world.keep(world.robots["r2"])
    world.wait(100)
    after: dict[str, int] = {}
    for event in world.events[events:]:
        after.setdefault(f"{event.name} {getattr(event, 'task', '')}", event.occurred_at - began)
    assert after["AssignmentWithdrawn assigned"] == 5_000
    assert after["HoldEnded held"] == hold
    assert after["LostWaitEnded lost"] == wait
    assert 15_000 < after["LeaseExpired running"] <= 20_000
    world.verify()


def test_a_clock_that_jumps_back_takes_nothing() -> None:
    """Time never falls: instants stay as they are, counts begin anew."""
    world = play("""
        t+0   submit   t1
        t+0   robot    r1
        t+0   accept   r1 t1
        t+16  wait
    """)
    world.wall_at = world.now - 7_200_000
    world.do(i.AcceptClock, i.ReasonBody(reason="because"))
    world.wall_at = None
    world.wait(18.9)
    assert world.named("LeaseExpired") == []
    world.wait(0.2)
    assert len(world.named("LeaseExpired")) == 1
    assert all(a.occurred_at <= b.occurred_at for a, b in zip(world.events, world.events[1:], strict=False))
    world.verify()


# ---- faults inside ----


def broken(*_: Any, **__: Any) -> Any:
    """A fault on purpose."""
    raise RuntimeError("broken on purpose")


def test_a_fault_of_the_dispatcher_freezes_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and reports are taken; nothing is assigned, no window closed, no timer acts; until unfreeze."""
    world = World()
    robot = world.robot("r1", slots=2)
    world.submit("t1")
    robot.accept("t1")
    monkeypatch.setattr(candidates, "_order", broken)
    world.submit("t2", not_before=world.now + 5_000)
    world.wait(6)
    [frozen] = world.named("PoolFrozen")
    assert frozen.where == "dispatch"
    assert "broken on purpose" in frozen.error
    events = len(world.events)
    monkeypatch.undo()
    world.wait(60)
    assert len(world.events) == events
    assert world.submit("t3")["state"] == "WAITING"
    assert robot.checkpoint("t1", 1)["type"] == "ack"
    assert world.at("t3") == "WAITING"
    assert world.verb(i.Explain, "t3")["holds"][0]["reason"] == "pool_frozen"
    assert world.do(i.UnfreezePool, i.ReasonBody(reason=""))["reason"] == "reason_required"
    began = world.now
    assert world.do(i.UnfreezePool, i.ReasonBody(reason="mended"))["changed"] is True
    assert world.named("PoolUnfrozen")[0].reason == "mended"
    assert world.do(i.UnfreezePool, i.ReasonBody(reason="mended"))["reason"] == "not_frozen"
    assert world.at("t2") == "ASSIGNED"
    world.wait(30)
    [expired] = world.named("LeaseExpired")
    assert expired.occurred_at - began > 15_000
    world.verify()


def test_a_fault_of_a_tick_freezes_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window is closed in the same tick any more."""
    from commands import clockwork

    world = World()
    robot = world.robot("r1")
    world.submit("t1", accept_ms=10_000)
    monkeypatch.setitem(clockwork._ACTS, "accept", broken)
    world.wait(10)
    [frozen] = world.named("PoolFrozen")
    assert (frozen.where, world.events[-1].name) == ("tick", "PoolFrozen")
    assert frozen.occurred_at == START_AT + 10_000
    assert robot.accept("t1")["type"] == "ack"
    world.verify()


@pytest.mark.parametrize("fault", [MemoryError, OSError])
def test_faults_of_the_operating_system_freeze_nothing(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """They stop the process."""
    world = World()
    world.robot("r1")

    def no_memory(*_: Any) -> Any:
        raise fault

    monkeypatch.setattr(candidates, "_order", no_memory)
    with pytest.raises(fault):
        world.submit("t1")


def test_what_decide_raises_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """F07: the input is set aside by the owner; nothing of it is half done, and the next one is decided."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1")
    before, chain, events = canonical(world.state), world.state.chain, len(world.events)
    monkeypatch.setitem(table._VERBS, "cancel", broken)
    monkeypatch.setitem(table._ATTEMPT_REPORTS, "accept", broken)
    with pytest.raises(RuntimeError):
        world.verb(i.CancelTask, "t1")
    with pytest.raises(RuntimeError):
        robot.accept("t1")
    assert (canonical(world.state), world.state.chain) == (before, chain)
    monkeypatch.undo()
    world.settle()
    assert len(world.events) == events
    robot.seq -= 1
    assert robot.accept("t1")["type"] == "ack"
    world.verify()


def test_an_event_that_cannot_be_stored_refuses_all_of_its_decision() -> None:
    """too_large, for a command and for a report; not one event of the decision is written."""
    world = World()
    large = {"json": [1e15] * 50_000}
    answer = world.do(
        i.SubmitAll,
        i.Submissions(
            tasks=[i.Submission(task="t1", kind="weld"), i.Submission(task="t2", kind="weld", payload=large)]
        ),
    )
    assert answer["reason"] == "too_large"
    assert [event.name for event in world.events] == ["PoolCreated"]
    robot = world.robot("r1")
    world.submit("t3")
    robot.accept("t3")
    answer = robot.complete("t3", result=large["json"])
    assert (answer["type"], answer["reason"], answer["retry"]) == ("refused", "too_large", False)
    assert world.at("t3") == "RUNNING"
    assert robot.complete("t3", 1)["type"] == "ack"
    world.verify()


def test_a_checkpoint_is_measured_as_it_is_stored() -> None:
    """It travels in an assign beside the payload, so it may not grow beyond its limit by how numbers are written."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1")
    robot.accept("t1")
    large = [1e15] * 14_000  # five bytes each when sent, 19 when stored
    for answer in (
        robot.checkpoint("t1", 1, large),
        robot.stopped("t1", "shutdown", checkpoint=m.CheckpointValue(number=1, value=large)),
    ):
        assert (answer["type"], answer["reason"]) == ("refused", "too_large")
    assert world.at("t1") == "RUNNING"
    assert world.named("CheckpointSaved") == []
    assert robot.checkpoint("t1", 1, large[:13_700])["type"] == "ack"
    world.verify()


@pytest.mark.parametrize(("name", "where"), [("AssignmentWithdrawn", "tick"), ("TaskAssigned", "dispatch")])
def test_an_event_that_nobody_asked_for_and_cannot_be_stored(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It freezes its pool, and does not stop the partition with all other pools."""
    world = World()
    world.robot("r1")
    world.submit("t1")
    sealed = pool.Pool._sealed

    def too_large(self: pool.Pool, event: e.Event, *rest: Any) -> bytes:
        if event.name == name:
            raise pool.EventTooLarge(f"{name} is too large")
        return sealed(self, event, *rest)

    monkeypatch.setattr(pool.Pool, "_sealed", too_large)
    world.wait(6)
    monkeypatch.undo()
    [frozen] = world.named("PoolFrozen")
    assert (frozen.where, frozen.error) == (where, f"EventTooLarge: {name} is too large")
    assert world.do(i.UnfreezePool, i.ReasonBody(reason="mended"))["changed"] is True
    world.verify()


def test_the_chain_is_over_the_bytes_as_stored() -> None:
    """hash = SHA-256(previous hash, value), beginning with 32 zero bytes."""
    world = play("t+0 submit t1\nt+0 robot r1\nt+0 accept r1 t1\nt+1 complete r1 t1")
    chain = ZERO_HASH
    for row in world.log:
        chain = chain_hash(chain, row.value)
        assert row.hash == chain


def test_nulls_survive() -> None:
    """A null inside a payload, result or checkpoint is a value, not an absent field; a null checkpoint is one."""
    world = World()
    robot = world.robot("r1")
    world.submit("t1", payload={"json": {"a": None, "b": [None]}})
    robot.accept("t1")
    assert robot.checkpoint("t1", 1, None)["type"] == "ack"
    robot.complete("t1", result={"a": None})
    stored = [e.decode_event(row.value) for row in world.log]
    assert next(x.payload for x in stored if isinstance(x, e.TaskSubmitted)) == {"json": {"a": None, "b": [None]}}
    assert next(x.checkpoint for x in stored if isinstance(x, e.CheckpointSaved)) == {"json": None}
    assert next(x.result for x in stored if isinstance(x, e.TaskCompleted)) == {"json": {"a": None}}
    world.verify()


def test_many_needs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirements that nobody waits for any more take no memory for ever."""
    monkeypatch.setattr(queue, "NEEDS_KEPT", 10)
    world = World()
    world.keep(world.robot("r1", capabilities=[f"c{k}" for k in range(30)]))
    for k in range(30):
        world.submit(f"t{k}", requirement=[f"c{k}"])
        world.verb(i.CancelTask, f"t{k}")
    assert len(world.state.queue.needs) <= 10
    world.submit("last", requirement=["c3"])
    assert world.at("last") == "ASSIGNED"
    world.verify()
