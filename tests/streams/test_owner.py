"""The owner of a partition: batches happen once, take-over folds the log, time follows input, faults are set aside.

Played on the log in memory, where every fault can be set; the same owner runs on the other logs in tests/system.
"""

import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_core import from_json

from commands import inputs as i
from commands import messages as m
from commands.checker import Checker
from commands.decide import table
from commands.events import Event, decode_event
from commands.inputs import encode_command, encode_report
from commands.settings import FORMAT, PoolSettings
from streams.memory_log import CommitFault, MemoryLog, MemoryStore
from streams.owner import OwnerSettings, PartitionOwner
from streams.port import Topic, partition_of
from streams.processor import Processor

POOL = "hall"
FAST = PoolSettings(window_ms=500, lease_ms=1_500, accept_ms=500).as_json()


PATIENCE_S = float(os.environ.get("FLEETLOG_PATIENCE_S", "60"))
"""Shorter where a broken rule is to be noticed (`tests/mutations`)."""


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """What `what` returns once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("it did not come about")


class Office:
    """A log with owners, and a hand that writes commands and reports as a gateway would."""

    def __init__(self, store: MemoryStore, **settings: Any) -> None:
        self.store = store
        self.log = MemoryLog(store)
        self.partition = partition_of(POOL, store.partitions)
        self.settings = settings
        self.processors: list[Processor] = []
        self.robots: dict[str, tuple[int, int]] = {}
        self._counter = itertools.count(1)

    def open(self) -> Processor:
        """One more process that decides."""
        settings = OwnerSettings(name=f"owner-{len(self.processors)}", software="test", **self.settings)
        processor = Processor(MemoryLog(self.store), settings)
        self.processors.append(processor)
        processor.start()
        return processor

    def put(self, topic: Topic, value: bytes, pool: str = POOL) -> None:
        """One record, as it is."""
        faults: list[Any] = []
        self.log.append(topic, pool, value, (), lambda fault, offset: faults.append(fault))
        assert faults == [None]

    def ask(self, shape: Any, body: Any, command_id: str | None = None, pool: str = POOL) -> dict[str, Any]:
        """A command, and its answer."""
        command_id = command_id or str(uuid.uuid4())
        seen = len(self.outcomes())
        command = shape(id=command_id, pool=pool, actor="local", reply_to="gateway", create=True, body=body)
        self.put(Topic.COMMANDS, encode_command(command), pool)

        def answer() -> Any:
            return next((o["message"] for o in self.outcomes()[seen:] if o.get("of") == command_id), None)

        found: dict[str, Any] = wait_for(answer)
        return found

    def submit(self, task: str, **more: Any) -> dict[str, Any]:
        """A task of kind `weld`."""
        return self.ask(i.Submit, i.Submission(task=task, kind="weld", **more))

    def say(self, robot: str, shape: Any, **fields: Any) -> dict[str, Any]:
        """A robot's message in its current session, and its answer."""
        epoch, seq = self.robots.get(robot, (0, 0))
        if shape is not m.Hello:
            seq += 1
            fields |= {"epoch": epoch, "seq": seq}
            self.robots[robot] = (epoch, seq)
        message = shape(id=f"{robot}.{next(self._counter)}", **fields)
        seen = len(self.outcomes())
        report = i.Report(pool=POOL, robot=robot, gateway="gateway", actor="local", create=True, message=message)
        self.put(Topic.REPORTS, encode_report(report))

        def answer() -> Any:
            return next((o["message"] for o in self.outcomes()[seen:] if o["message"].get("of") == message.id), None)

        found: dict[str, Any] = wait_for(answer)
        return found

    def hello(self, robot: str, slots: int = 1) -> None:
        """A session that is ready for all its slots."""
        welcome = self.say(robot, m.Hello, slots=slots, capabilities=[], holding=[])
        self.robots[robot] = (welcome["epoch"], 0)
        self.say(robot, m.Ready, n=slots)

    def beat(self, robot: str, *held: tuple[str, int]) -> None:
        """A heartbeat that names what is held."""
        holding = [i.HeldByRobot(task=task, attempt=attempt) for task, attempt in held]
        beat = i.Beat(robot=robot, epoch=self.robots[robot][0], seq=0, holding=holding)
        self.put(Topic.REPORTS, encode_report(i.Heartbeats(pool=POOL, gateway="gateway", beats=[beat])))

    def records(self, topic: Topic, partition: int | None = None) -> list[Any]:
        """Everything in the partition of the pool."""
        number = self.partition if partition is None else partition
        return list(self.store.place(topic, number).records)

    def outcomes(self) -> list[dict[str, Any]]:
        """What was told, everywhere."""
        everywhere = range(self.store.partitions)
        return [from_json(r.value) for p in everywhere for r in self.records(Topic.OUTCOMES, p)]

    def events(self, name: str | None = None) -> list[Event]:
        """What happened, or what of one type."""
        events = [decode_event(record.value) for record in self.records(Topic.EVENTS)]
        return [event for event in events if name in (None, event.name)]

    def assigned(self, task: str) -> dict[str, Any]:
        """The newest `assign` message for a task."""
        found: dict[str, Any] = wait_for(
            lambda: [
                o["message"]
                for o in self.outcomes()
                if o["message"].get("type") == "assign" and o["message"]["task"] == task
            ]
        )[-1]
        return found

    def check(self) -> None:
        """The log keeps every invariant."""
        checker = Checker(POOL)
        findings: list[Any] = []
        for record in self.records(Topic.EVENTS):
            if record.key == POOL:
                findings += checker.event(record.value, record.header("hash"))
        assert findings + list(checker.finish()) == []

    def close(self) -> None:
        """Ends every process."""
        for processor in self.processors:
            processor.close()


@pytest.fixture
def office() -> Iterator[Office]:
    """A log with one partition and one process that decides."""
    made = Office(MemoryStore(partitions=1), defaults=FAST)
    made.open()
    yield made
    made.close()
    made.check()


def test_a_task_goes_to_a_robot_and_comes_back(office: Office) -> None:
    """Submission, assignment with payload and key, accept, completion: each with its answer after the commit."""
    office.hello("r1")
    assert office.submit("t1", payload={"json": {"seam": 7}})["status"] == "accepted"
    message = office.assigned("t1")
    submitted = office.events("TaskSubmitted")[0]
    assert message["payload"] == {"seam": 7}
    assert message["idempotency_key"] == submitted.id
    assert message["assignment_id"] == office.events("TaskAssigned")[0].id
    assert office.say("r1", m.Accept, task="t1", attempt=1)["lease_ms"] == 1_500
    assert office.say("r1", m.Complete, task="t1", attempt=1, result=3)["type"] == "ack"
    assert [event.name for event in office.events()][-1] == "TaskCompleted"


def test_f17_a_lease_ends_in_total_silence(office: Office) -> None:
    """F17: one lease, then nothing on any topic; the windows close and the lease ends all the same."""
    office.hello("r1")
    office.submit("t1")
    office.assigned("t1")
    office.say("r1", m.Accept, task="t1", attempt=1)
    expired: Any = wait_for(lambda: office.events("LeaseExpired"))[0]
    started: Any = office.events("LeaseStarted")[0]
    assert expired.occurred_at - started.occurred_at >= 1_500
    assert expired.last_window - expired.first_window == 1_000


def test_heartbeats_keep_a_lease(office: Office) -> None:
    """An attempt that is named in every window is never missed."""
    office.hello("r1")
    office.submit("t1")
    office.assigned("t1")
    office.say("r1", m.Accept, task="t1", attempt=1)
    for _ in range(20):
        office.beat("r1", ("t1", 1))
        time.sleep(0.2)
    assert office.events("LeaseExpired") == []
    assert office.say("r1", m.Complete, task="t1", attempt=1)["type"] == "ack"


def test_a_successor_goes_on_where_the_log_ends(office: Office) -> None:
    """Another process takes over: it folds the log, says so where counts are reset, and decides the next inputs."""
    office.hello("r1")
    office.submit("t1")
    office.assigned("t1")
    office.say("r1", m.Accept, task="t1", attempt=1)
    office.open()
    taken: Any = wait_for(lambda: office.events("OwnershipTaken"))[0]
    assert (taken.owner, taken.reason) == ("owner-1", "hand_over")
    assert office.say("r1", m.Complete, task="t1", attempt=1)["type"] == "ack"
    assert len(office.events("TaskCompleted")) == 1


@pytest.mark.parametrize("fault", list(CommitFault))
def test_an_unanswered_commit_happens_once(office: Office, fault: CommitFault) -> None:
    """Crash between 6 and 8: whether the batch was written or not, its command is decided exactly once."""
    office.submit("t0")
    office.store.next_commits.append(fault)
    assert office.submit("t1")["status"] == "accepted"
    submitted = [event.task for event in office.events("TaskSubmitted")]  # type: ignore[attr-defined]
    assert submitted == ["t0", "t1"]


def test_a_repeated_command_gets_the_same_answer(office: Office) -> None:
    """The command id is the idempotency key, across a take-over too."""
    first = office.ask(i.Submit, i.Submission(task="t1", kind="weld"), "same")
    office.open()
    second = office.ask(i.Submit, i.Submission(task="t1", kind="weld"), "same")
    other = office.ask(i.Submit, i.Submission(task="t2", kind="weld"), "same")
    assert {k: first["answer"][k] for k in second["answer"]} == second["answer"]
    assert other["reason"] == "command_id_conflict"
    assert len(office.events("TaskSubmitted")) == 1


def test_f07_garbage_is_set_aside_and_the_partition_goes_on(office: Office) -> None:
    """F07: what cannot be decoded becomes RecordQuarantined with its place, and who asked is told."""
    office.submit("t0")
    office.put(Topic.COMMANDS, b'{"v":1,"type":"submit","id":"c9","reply_to":"gateway","pool":"hall","actor":"x"}')
    office.put(Topic.REPORTS, b"\x00\xff")
    assert office.submit("t1")["status"] == "accepted"
    quarantined: Any = wait_for(
        lambda: len(office.events("RecordQuarantined")) == 2 and office.events("RecordQuarantined")
    )
    assert {event.topic for event in quarantined} == {"commands", "reports"}
    answer = next(o["message"] for o in office.outcomes() if o.get("of") == "c9")
    assert answer["reason"] == "quarantined"
    assert "offset" in answer["text"]


def test_f07_a_fault_in_deciding_is_set_aside(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """F07: an input that makes `decide` fail, again when alone, is quarantined; nothing of it is half done."""
    office.submit("t0")

    def broken(*_: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setitem(table._VERBS, "cancel", broken)
    answer = office.ask(i.CancelTask, i.TaskVerb(task="t0"))
    assert answer["reason"] == "quarantined"
    assert office.submit("t1")["status"] == "accepted"
    assert office.events("TaskCancelled") == []


def test_f18_time_never_overtakes_input(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """F18: while the log does not say where the reports end, no lease is taken away; then the report counts first."""
    office.hello("r1")
    office.submit("t1")
    office.assigned("t1")
    office.say("r1", m.Accept, task="t1", attempt=1)
    seat = office.processors[0]._owners[0]._seat
    real = seat.reports_end
    monkeypatch.setattr(seat, "reports_end", lambda: real() + 1)
    time.sleep(4)
    assert office.events("LeaseExpired") == []
    assert office.say("r1", m.Complete, task="t1", attempt=1)["type"] == "ack"
    monkeypatch.setattr(seat, "reports_end", real)
    office.submit("t2")
    assert office.events("LeaseExpired") == []


def test_a_batch_that_takes_longer_than_a_window_is_an_outage(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the drawing of its instants to its commit: silence counted meanwhile may be the owner's own."""
    office.ask(i.CreatePool, i.SettingsBody(settings=FAST))
    office.hello("r1")
    assert office.events("OwnershipTaken") == []
    dispatch, slow = PartitionOwner._dispatch, iter([FAST["window_ms"] / 1_000 + 0.1])

    def late(self: PartitionOwner, *arguments: Any) -> bool:
        time.sleep(next(slow, 0.0))
        return dispatch(self, *arguments)

    monkeypatch.setattr(PartitionOwner, "_dispatch", late)
    office.submit("t1", requirement=["nobody"])
    [taken] = wait_for(lambda: office.events("OwnershipTaken"))
    assert taken.reason == "outage"


def test_f06_snapshots_spare_the_fold(office: Office) -> None:
    """F06: a successor begins from the newest good one; a bad one is skipped for the other, or for all of the log."""
    made = Office(MemoryStore(partitions=1), defaults=FAST, snapshot_events=5)
    made.open()
    for n in range(20):
        made.submit(f"t{n}")
    snapshots = MemoryLog(made.store).find_snapshots(0)
    assert len(snapshots) == 2
    made.store.spoil_snapshot(0, snapshots[0].position)
    made.open()
    assert made.submit("t3")["answer"]["changed"] is False
    assert made.submit("last")["status"] == "accepted"
    made.close()
    made.check()


def test_a_foreign_key_is_set_aside(office: Office) -> None:
    """A record whose key does not belong to its partition is quarantined in the log's own pool."""
    store = MemoryStore(partitions=4)
    made = Office(store, defaults=FAST)
    made.open()
    wrong = next(f"p{n}" for n in range(100) if partition_of(f"p{n}", 4) != made.partition)
    command = i.Submit(
        id="c1", pool=wrong, actor="x", reply_to="gateway", create=True, body=i.Submission(task="t", kind="k")
    )
    made.put(Topic.COMMANDS, encode_command(command), POOL)
    made.submit("t1")
    log_pool = f"_log-{made.partition}"
    names = [decode_event(r.value).name for r in made.records(Topic.EVENTS) if r.key == log_pool]
    assert names == ["PoolCreated", "RecordQuarantined"]
    made.close()


def test_i5_an_altered_event_stops_the_partition_with_a_sentence(office: Office) -> None:
    """I5: a record that does not fit the chain is named, and nothing is decided on it."""
    office.submit("t1")
    place = office.store.place(Topic.EVENTS, 0)
    record = place.records[1]
    changed = type(record)(
        record.topic, 0, record.offset, record.key, record.value.replace(b"weld", b"melt"), record.headers, 0
    )
    place.records[1] = changed
    successor = office.open()
    why = wait_for(successor.why_not_ready)
    why = wait_for(lambda: (successor.why_not_ready() or "") if "stopped" in (successor.why_not_ready() or "") else "")
    assert "chain of pool hall breaks" in why
    place.records[1] = record


def test_a_raised_format_reaches_every_pool_of_the_partition(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command to the reserved pool raises all, once, and pools that come later begin with it."""
    for module in ("commands.decide.pools", "streams.log_format", "streams.takeover"):
        monkeypatch.setattr(f"{module}.FORMAT", FORMAT + 1)
    office.submit("t1")
    reserved, body = f"_log-{office.partition}", i.FormatBody(to_format=FORMAT + 1)
    for _ in range(2):
        assert office.ask(i.RaiseFormat, body, "raise-1", reserved)["status"] == "accepted"
    assert office.ask(i.RaiseFormat, i.FormatBody(to_format=FORMAT + 2), None, reserved)["reason"] == "invalid_field"
    later = next(f"p{n}" for n in range(100) if partition_of(f"p{n}", office.store.partitions) == office.partition)
    office.ask(i.Submit, i.Submission(task="t1", kind="weld"), None, later)

    raised: list[Any] = list(office.events("FormatRaised"))
    made: list[Any] = list(office.events("PoolCreated"))
    assert {(event.pool, event.from_format, event.to_format) for event in raised} == {
        (POOL, FORMAT, FORMAT + 1),
        (reserved, FORMAT, FORMAT + 1),
    }
    assert len(raised) == 2
    assert {event.pool: event.format for event in made} == {POOL: FORMAT, reserved: FORMAT, later: FORMAT + 1}
    assert all(event.actor == "local" for event in raised)
    office.check()


def test_many_threads_of_input_are_decided_in_order(office: Office) -> None:
    """Under load from several hands every command is decided once."""

    def hand(number: int) -> None:
        for n in range(50):
            command = i.Submit(
                id=f"{number}-{n}",
                pool=POOL,
                actor="local",
                reply_to="gateway",
                create=True,
                body=i.Submission(task=f"t{number}-{n}", kind="weld"),
            )
            office.put(Topic.COMMANDS, encode_command(command))

    hands = [threading.Thread(target=hand, args=(number,)) for number in range(4)]
    for one in hands:
        one.start()
    for one in hands:
        one.join()
    wait_for(lambda: len(office.events("TaskSubmitted")) == 200)
    assert [event.sequence for event in office.events()] == list(range(1, len(office.events()) + 1))


def test_an_unknown_pool_is_refused_and_forgotten(office: Office) -> None:
    """Without leave to create it a pool stays unknown, while time goes on acting in the others."""
    office.hello("r1")
    command = i.CancelTask(id="c1", pool="other", actor="local", reply_to="gateway", body=i.TaskVerb(task="t1"))
    office.put(Topic.COMMANDS, encode_command(command), "other")
    answer = wait_for(lambda: next((o["message"] for o in office.outcomes() if o.get("of") == "c1"), None))
    assert answer["reason"] == "no_such_pool"
    wait_for(lambda: office.events("WindowMissed"))
    assert office.submit("t1")["status"] == "accepted"
