"""What must hold, whatever happens: read from the log and from the robots' own records, not from the product."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from commands.checker import Checker
from commands.cut import snapshot_lines
from commands.evolve import apply_stored, new_pool
from commands.messages import Assign
from commands.rows import canonical, restore
from commands.state import PoolState
from fleetlog.sim.robots import Work
from streams.memory_log import MemoryStore
from streams.port import Record, Topic

STORY_EVENTS: Final = 40


@dataclass(slots=True, frozen=True)
class Finding:
    """Something that must not be. `task` names the task that it is about, if any."""

    rule: str
    text: str
    pool: str | None = None
    task: str | None = None


@dataclass
class Referee:
    """Follows `events` of all partitions as they are written."""

    store: MemoryStore
    findings: list[Finding] = field(default_factory=list)
    events: int = 0
    said_twice: int = 0
    tasks: dict[tuple[str, str], str] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    _payloads: dict[tuple[str, str], Any] = field(default_factory=dict)
    _completed: list[tuple[str, str, str, Any]] = field(default_factory=list)
    _checkpoints: dict[tuple[str, str, int], Any] = field(default_factory=dict)
    _unsure: set[tuple[str, str, int]] = field(default_factory=set)
    _checkers: dict[str, Checker] = field(default_factory=dict)
    _at: dict[int, int] = field(default_factory=dict)

    def read(self) -> None:
        """Takes what was written since the last call."""
        for partition in range(self.store.partitions):
            records = self.store.place(Topic.EVENTS, partition).records
            start = self._at.get(partition, 0)
            for record in records[start:]:
                self._take(record)
            self._at[partition] = len(records)

    def read_if_here(self) -> None:
        """The same, where the log answers."""
        if not self.store.away:
            self.read()

    def _take(self, record: Record) -> None:
        self.events += 1
        checker = self._checkers.get(record.key)
        if checker is None:
            checker = self._checkers[record.key] = Checker(record.key)
        event: dict[str, Any] = from_json(record.value)
        for found in checker.event(record.value, record.header("hash")):
            self._say(found.rule, f"event {found.sequence}: {found.text}", record.key, event.get("task"))
        self._note(record.key, event)

    def _note(self, pool: str, event: dict[str, Any]) -> None:
        if event.get("done_twice"):
            self.said_twice += 1
        if event["type"] == "TaskSubmitted.v1":
            self._payloads[pool, event["task"]] = event.get("payload", {}).get("json")
        elif event["type"] == "CheckpointSaved.v1":
            self._checkpoints[pool, event["task"], event["number"]] = event["checkpoint"].get("json")
        elif event["type"] == "TaskCompleted.v1" and event["by"] == "robot":
            self._completed.append((pool, event["task"], event["robot"], event.get("result", {}).get("json")))
        if _gives_up_exclusion(event):
            self._unsure.add((pool, event["task"], event["attempt"]))
        if "to" in event:
            self.tasks[pool, event["task"]] = event["to"]
            if event["to"] == "ASSIGNED":
                self.attempts[pool, event["task"]] = event["attempt"]

    def open_tasks(self) -> dict[tuple[str, str], str]:
        """(pool, task) -> state of all that have not ended."""
        return {(pool, task): s for pool, c in self._checkers.items() for task, s in c.open_tasks.items()}

    # ---- at the end ----

    def acknowledged(self, acknowledged: Iterable[tuple[str, str]]) -> None:
        """Invariant 2, first half: every acknowledged submission is in the log."""
        for pool, task in acknowledged:
            if (pool, task) not in self.tasks:
                self._say("lost", f"the submission of {task} was acknowledged and is not in the log", pool, task)

    def ended(self, why: Callable[[str, str], str]) -> None:
        """Invariant 2, second half: once faults have stopped, every task ends; `why(pool, task)` asks the owner."""
        for (pool, task), state in self.open_tasks().items():
            self._say("stuck", f"{task} is {state} long after the last fault: {why(pool, task)}", pool, task)
        for checker in self._checkers.values():
            for found in checker.finish():
                self._say(found.rule, found.text, checker.pool)

    def exclusion(self, done: Iterable[Work], now_ms: float) -> None:
        """No robot that obeys works on a target while another does, by what they really did.

        What an operator freed without waiting for the robot is left out: that gives exclusion up, and says so.
        """
        by_target: dict[tuple[str, str], list[Work]] = {}
        for work in done:
            sure = (work.pool, work.task, work.attempt) not in self._unsure
            if work.target is not None and not work.deaf and sure:
                by_target.setdefault((work.pool, work.target), []).append(work)
        for (pool, target), works in by_target.items():
            works.sort(key=lambda work: work.began_ms)
            last: Work | None = None
            for work in works:
                ended_ms = now_ms if last is None or last.ended_ms is None else last.ended_ms
                if last is not None and work.began_ms < ended_ms and work.robot != last.robot:
                    text = f"{work.robot} began {work.task} on {target} while {last.robot} worked on {last.task}"
                    self._say("exclusion", text, pool, work.task)
                if last is None or (work.ended_ms or now_ms) >= ended_ms:
                    last = work

    def given(self, pool: str, robot: str, assigns: Iterable[Assign]) -> None:
        """What a robot was given to work on is what the log says: the task's own payload and checkpoint."""
        for assign in assigns:
            at, saved = (pool, assign.task), assign.checkpoint
            if assign.payload != self._payloads.get(at):
                self._say("payload", f"{robot} got {assign.payload} as the payload of {assign.task}", *at)
            if saved is not None and saved.value != self._checkpoints.get((*at, saved.number)):
                self._say("payload", f"{robot} got {saved} as a checkpoint of {assign.task}", *at)

    def results(self) -> None:
        """What a task is completed with is what its robot said: simulated handlers name theirs."""
        for pool, task, robot, result in self._completed:
            if (result or {}).get("by", robot) != robot:
                self._say("result", f"{task} was completed by {robot} with {result}", pool, task)

    def states(self, live: dict[str, PoolState], now: int) -> None:
        """Invariant 5: folded from the log, and restored from a snapshot, the state is the live one."""
        for pool, state in live.items():
            folded = new_pool(pool)
            try:
                for record in self._records(pool):
                    apply_stored(folded, record.value, record.offset)
            except Exception as fault:  # whatever two writers made of the log
                self._say("replay", f"the log cannot be folded after event {folded.sequence}: {fault!r}", pool)
                continue
            there = canonical(state)
            if canonical(folded) != there or folded.chain != state.chain:
                self._say("replay", "the state folded from the log is not the live one", pool)
            [restored] = restore(list(snapshot_lines(state)), now)
            if canonical(restored) != there:
                self._say("snapshot", "the state restored from a snapshot is not the live one", pool)

    def tables(self, listed: Mapping[tuple[str, str], str]) -> None:
        """The projections say what the log says; `listed`: the states that they list, by (pool, task)."""
        for (pool, task), state in self.tasks.items():
            said = listed.get((pool, task))
            if said != state:
                self._say("tables", f"the tables say {said} of {task}, the log says {state}", pool, task)

    def fault(self, text: str) -> None:
        """A part of the product stopped by itself."""
        self._say("stopped", text)

    def story(self, finding: Finding) -> list[str]:
        """The events about the finding's task, or the last ones of its pool, a line each."""
        lines = []
        for record in self._records(finding.pool) if finding.pool else []:
            event: dict[str, Any] = from_json(record.value)
            if finding.task is None or finding.task in (event.get("task"), event.get("target")):
                lines.append(_line(event, record))
        return lines[-STORY_EVENTS:]

    def _records(self, pool: str | None) -> Iterable[Record]:
        for partition in range(self.store.partitions):
            for record in self.store.place(Topic.EVENTS, partition).records:
                if record.key == pool:
                    yield record

    def _say(self, rule: str, text: str, pool: str | None = None, task: str | None = None) -> None:
        self.findings.append(Finding(rule, text, pool, task))


def _gives_up_exclusion(event: dict[str, Any]) -> bool:
    """Whether an operator frees at once what an attempt holds: by force, or because a LOST task is said to be done."""
    match event["type"]:
        case "TaskReleased.v1":
            return bool(event["force"])
        case "HoldEnded.v1":
            return bool(event["why"] == "force")
        case "TaskCompleted.v1":
            return bool(event["by"] == "operator" and event.get("attempt"))
    return False


_QUIET: Final = frozenset(
    {
        "v", "type", "event_id", "pool", "sequence", "occurred_at", "caused_by", "actor", "command_digest", "payload",
        "traceparent", "task", "from",
    }
)  # fmt: skip
"""What a story leaves out of an event."""


def _line(event: dict[str, Any], record: Record) -> str:
    rest = ", ".join(f"{name} {value}" for name, value in event.items() if name not in _QUIET and value is not None)
    return f"{event.get('occurred_at')}  {event['type'].partition('.')[0]:<22} {rest[:150]}"
