"""Payloads and checkpoints go out as the log holds them, whatever became of a batch that was not committed."""

from typing import Any

from pydantic_core import from_json

from commands import inputs as i
from commands import messages as m
from commands.inputs import encode_command, encode_report
from streams.body_store import BodyStore
from streams.local_log import LocalSeat
from streams.memory_log import CommitFault, MemoryLog, MemoryStore
from streams.owner import OwnerSettings, PartitionOwner
from streams.port import Topic

POOL = "hall"


def owner_of(store: MemoryStore, name: str) -> PartitionOwner:
    """An owner of the only partition, which works when its `step` is called."""
    log = MemoryLog(store)
    return PartitionOwner(log, LocalSeat(log, 0), BodyStore(log, 0, None, 1 << 20), OwnerSettings(name, "test"))


def put(store: MemoryStore, topic: Topic, value: bytes) -> None:
    """One input."""
    store.append(topic, POOL, value, (), lambda fault, offset: None)


def say(store: MemoryStore, message: m.Hello | m.Ready) -> None:
    """A report of robot r1."""
    report = i.Report(pool=POOL, robot="r1", gateway="g", actor="local", create=True, message=message)
    put(store, Topic.REPORTS, encode_report(report))


def submit(store: MemoryStore, task: str) -> None:
    """A task whose payload is its name."""
    body = i.Submission(task=task, kind="weld", payload={"json": task})
    put(store, Topic.COMMANDS, encode_command(i.Submit(id=f"c-{task}", pool=POOL, actor="local", reply_to="g",
                                                       create=True, body=body)))  # fmt: skip


def told(store: MemoryStore, kind: str) -> list[dict[str, Any]]:
    """What robots were told, of one type."""
    messages = [from_json(record.value)["message"] for record in store.place(Topic.OUTCOMES, 0).records]
    return [message for message in messages if message.get("type") == kind]


def test_a_batch_that_was_not_committed_leaves_no_payload_behind() -> None:
    """Another owner gave its numbers to other tasks, before the first one got the partition back."""
    store = MemoryStore(partitions=1)
    first, second = owner_of(store, "first"), owner_of(store, "second")
    first.step()
    for task in ("t1", "t2", "t3"):
        submit(store, task)
    store.next_commits.append(CommitFault.NOT_WRITTEN)
    first.step()
    second.step()
    say(store, m.Hello(id="r1.1", slots=3, capabilities=[], holding=[]))
    second.step()
    [welcome] = told(store, "welcome")
    first.step()
    say(store, m.Ready(id="r1.2", epoch=welcome["epoch"], seq=1, n=3))
    first.step()
    assert {assign["task"]: assign["payload"] for assign in told(store, "assign")} == {t: t for t in ("t1", "t2", "t3")}
