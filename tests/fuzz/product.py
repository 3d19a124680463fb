"""`fleetlog up` in a process of its own, to be fuzzed; a robot and two submitters at work beside it; and the verdict.

with Fuzzed(folder) as fuzzed:
    ...                       # whatever anybody may send
    fuzzed.verdict()          # the process is as it was, those beside finished, and the log is whole
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from commands.rows import canonical
from fleetlog.checking import Invariants
from fleetlog.composition import open_reader, tables_folder
from fleetlog.settings import Settings
from projections.audit import verify
from projections.digest import rows_digest
from projections.projector import Projector
from projections.store import Folder
from projections.store import open_reader as open_tables
from robot_gateway.sdk import Client, Robot
from robot_gateway.submit import SUBMIT_PROTOCOL
from streams.port import LogReader, Record, Topic
from streams.takeover import load
from tests.support.ending import with_us
from tests.support.fleet import CEILING_S, until
from tests.support.ports import free_port

BESIDE = "beside"
"""The pool of those who work on beside the fuzzing."""
GROWTH_BYTES_MAX = 400 << 20
"""Far more than caches need, far less than anything that is kept for each of thousands of messages."""
SETTINGS = (
    "disk.min_free_bytes=0",
    "processor.snapshot_events=40",
    "log.partitions=1",
    "log.sync=false",
    "projector.after_wait_s=0.3",
    # Nobody beside loses anything because this machine is slow.
    "pool.lease_s=3600",
    "pool.accept_s=600",
)
FAULT = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b|never retrieved|never awaited")


@dataclass
class Accepted:
    """What the product has said yes to: pool and task -> payload; and what it has said no to."""

    payloads: dict[tuple[str, str], Any] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)


class Fuzzed:
    """One partition, so that whatever is done to any pool is done to the owner of all. `options`: further settings."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.settings = Settings.model_validate({"log": {"at": f"embedded:{folder / 'data'}"}})
        self.accepted = Accepted()
        self.crew: Any = None
        self._options = options
        self._said = folder / "said.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._rss_at_begin = 0

    # ---- the process ----

    def __enter__(self) -> Self:
        self._stack.callback(self.stop)
        self.start()
        self.client = self._stack.enter_context(httpx.Client(base_url=self.url, timeout=CEILING_S))
        self.beside = Beside(self.url)
        self._stack.callback(self.beside.stop)
        self.beside.start()
        self._rss_at_begin = self.rss_bytes()
        return self

    def __exit__(self, *rest: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Begins, or begins again; returns when it is ready."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "fleetlog", "up", "--data", str(self.folder / "data")]
        words += ["--listen", f"127.0.0.1:{port}"]
        for option in (*SETTINGS, *self._options):
            words += ["--set", option]
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(with_us(words), stdout=said, stderr=said)
        until(self._ready, "readiness")

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._said.read_text()
        try:
            return httpx.get(f"{self.url}/readyz", timeout=CEILING_S).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """Ends it in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(CEILING_S)
            self._process = None

    def rss_bytes(self) -> int:
        """Memory of the main process, where the gateway and the owner live."""
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def faults(self) -> list[str]:
        """Lines of the process's own log that speak of a fault of ours."""
        return [line for line in self._said.read_text(errors="replace").splitlines() if FAULT.search(line)]

    def unharmed(self) -> None:
        """The process lives, is ready, and logged no fault."""
        assert not self.faults(), self._said.read_text(errors="replace")[-4000:]
        assert self._ready(), "it is not ready any more"

    # ---- what was said ----

    def note(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        """A submission on `/v1/submit` and its answer: what is accepted must be stored, what is refused must not."""
        tasks = asked.get("tasks")
        if answer["type"] != "accepted" or not isinstance(tasks, list) or len(tasks) != len(answer["tasks"]):
            return
        for task, told in zip(tasks, answer["tasks"], strict=True):
            if told.get("status") == 201:
                self.accepted.payloads[asked["pool"], told["task"]["id"]] = task.get("payload")

    # ---- the end ----

    def verdict(self) -> None:
        """All that must hold whatever was sent: of the process, of those beside, of the log and what is built of it."""
        self.unharmed()
        grown = self.rss_bytes() - self._rss_at_begin
        assert grown < GROWTH_BYTES_MAX, f"the process grew by {grown >> 20} MiB"
        self.beside.finish()
        self.unharmed()
        seen = self._cards()
        self.stop()
        with ExitStack() as stack:
            log = open_reader(self.settings)
            stack.callback(log.close)
            events = self._verified(log)
            self._nothing_half_stored(events)
            self.beside.undisturbed(events)
            _snapshots_agree(log)
            _rebuild_agrees(log, tables_folder(self.settings), self.folder / "rebuilt")
        self.start()
        again = self._cards()
        assert {name: again.get(name) for name in seen} == seen, "after a start from snapshots it tells something else"
        self.unharmed()
        self.stop()

    def _cards(self) -> dict[str, Any]:
        """What the gateway tells of all tasks, by pool and id, when nothing moves any more."""
        cards: dict[str, Any] = {}
        with httpx.Client(base_url=self.url, timeout=CEILING_S) as client:
            for state in ("COMPLETED", "CANCELLED", "DISCARDED"):
                query: dict[str, Any] = {"limit": 1000, "where": f"state={state}"}
                while True:
                    page = client.get("/v1/tasks", params=query).json()
                    cards |= {f"{card['pool']}/{card['id']}": card for card in page["items"]}
                    if page["next"] is None:
                        break
                    query["cursor"] = page["next"]
        return cards

    def _verified(self, log: LogReader) -> list[dict[str, Any]]:
        """Chains, sequences, ids, invariants; and nothing that was set aside or stopped the dispatcher."""
        records = list(_all_events(log))
        report = verify(records, [Invariants()])
        assert report.verified, report.problems
        events = [json.loads(record.value) for record in records]
        bad = [e for e in events if e["type"].partition(".")[0] in ("RecordQuarantined", "PoolFrozen")]
        assert not bad, bad[:3]
        return events

    def _nothing_half_stored(self, events: list[dict[str, Any]]) -> None:
        """What was accepted is there as it was sent; what was refused is not there."""
        submitted = {
            (e["pool"], e["task"]): e.get("payload", {}).get("json")
            for e in events
            if e["type"].startswith("TaskSubmitted")
        }
        for key, payload in self.accepted.payloads.items():
            assert key in submitted, key
            assert _same(submitted[key], payload), (key, payload)
        assert not self.accepted.refused & submitted.keys()


def _same(stored: Any, sent: Any) -> bool:
    """The same JSON; 1 and true are not, and integers are not floats."""
    return json.dumps(stored, sort_keys=True) == json.dumps(sent, sort_keys=True)


def _all_events(log: LogReader) -> Iterator[Record]:
    ends = {p: log.end(Topic.EVENTS, p) for p in range(log.partitions)}
    follower = log.follow(Topic.EVENTS, {p: log.beginning(Topic.EVENTS, p) for p in ends})
    try:
        while any(follower.positions()[p] < end for p, end in ends.items()):
            yield from follower.poll(5_000, 1.0)
    finally:
        follower.close()


def _digest_of(folder: Path) -> str:
    """One number for all that the tables say."""
    store = open_tables(Folder(folder))
    try:
        return rows_digest(store)
    finally:
        store.close()


class _NoSnapshots:
    """A log that has none, so that everything is folded."""

    def __init__(self, log: LogReader) -> None:
        self._log = log

    def find_snapshots(self, partition: int) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def _snapshots_agree(log: LogReader) -> None:
    """The state folded from the log alone, and that restored from a snapshot, are the same byte for byte."""
    for partition in range(log.partitions):
        end = log.end(Topic.EVENTS, partition)
        now = time.time_ns() // 1_000_000
        assert log.find_snapshots(partition), "no snapshot was made"
        plain: Any = _NoSnapshots(log)
        folded = load(plain, partition, end, now, lambda: None).pools
        restored = load(log, partition, end, now, lambda: None).pools
        assert {n: canonical(p) for n, p in folded.items()} == {n: canonical(p) for n, p in restored.items()}


def _rebuild_agrees(log: LogReader, live: Path, rebuilt: Path) -> None:
    """Tables built anew are those that were written as it happened."""
    digests = []
    for folder in (live, rebuilt):
        projector = Projector(log, folder)
        projector.open()
        while projector.step(0.2):
            pass
        assert not projector.status.rebuilds or folder == rebuilt, projector.status.rebuilt
        projector.close()
        digests.append(_digest_of(folder))
    assert digests[0] == digests[1]


class Beside:
    """A robot by the SDK, a submitter over HTTP and one on `/v1/submit`, who do what they should, all the time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._stopped = False
        self._failures: list[BaseException] = []
        self.tasks: list[str] = []
        self.robot = Robot("beside-1", pool=BESIDE, gateway=url, capabilities=["steady"], slots=4)
        self.robot.task("steady")(_double)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True)
            for work in (self._over_http, self._over_stream)
        ]

    def start(self) -> None:
        """Begins; returns when each has done something."""
        self.robot.start()
        for thread in self._threads:
            thread.start()
        until(lambda: self._failures or len(self.tasks) >= 2, "work beside")

    def stop(self) -> None:
        """Ends all, once."""
        self._stop_submitting()
        if not self._stopped:
            self._stopped = True
            self.robot.stop(grace_s=5)

    def _stop_submitting(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(CEILING_S)

    def _all_done(self) -> bool:
        counts = [
            httpx.get(f"{self._url}/v1/tasks/count", params={"where": f"pool={BESIDE} state={state}"}).json()["count"]
            for state in ("WAITING", "ASSIGNED", "RUNNING")
        ]
        return not any(counts)

    def finish(self) -> None:
        """One more task each, then they end; nothing went wrong for any of them."""
        done = len(self.tasks)
        until(lambda: self._failures or len(self.tasks) >= done + 2, "work beside, at the end")
        self._stop_submitting()
        until(self._all_done, "the end of all work beside")
        self.stop()
        assert not self._failures, self._failures

    def undisturbed(self, events: list[dict[str, Any]]) -> None:
        """Every task ran once, in one session of the robot, which was never missed."""
        mine = [e for e in events if e["pool"] == BESIDE]
        kinds = [e["type"].partition(".")[0] for e in mine]
        assert kinds.count("RobotSessionStarted") == 1
        assert not {"LeaseExpired", "AssignmentWithdrawn", "AttemptFailed", "ReportedLate"} & set(kinds)
        completed = {e["task"] for e in mine if e["type"].startswith("TaskCompleted")}
        assert set(self.tasks) <= completed, set(self.tasks) - completed

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self._failures.append(failure)

    def _over_http(self) -> None:
        client = Client(self._url, pool=BESIDE)
        while not self._stop.is_set():
            handle = client.submit("steady", {"n": len(self.tasks)}, requirement=["steady"])
            result = handle.result(timeout_s=CEILING_S)
            assert result is not None
            self.tasks.append(handle.id)
            self._stop.wait(0.7)

    def _over_stream(self) -> None:
        with open_submit(self._url) as stream:
            while not self._stop.is_set():
                task = {"kind": "steady", "payload": {"n": 1}, "requirement": ["steady"]}
                asked = {"type": "submit", "id": str(uuid.uuid4()), "pool": BESIDE, "tasks": [task]}
                stream.send(json.dumps(asked))
                answer = json.loads(stream.recv(timeout=CEILING_S))
                assert answer["of"] == asked["id"], answer
                assert answer["type"] == "accepted", answer
                self.tasks.append(answer["tasks"][0]["task"]["id"])
                self._stop.wait(0.7)


def _double(ctx: Any, payload: Any) -> Any:
    return {"double": 2 * payload["n"]}


def open_submit(url: str) -> ClientConnection:
    """A connection to `/v1/submit`."""
    address = url.replace("http", "ws", 1) + "/v1/submit"
    return connect(address, subprotocols=[Subprotocol(SUBMIT_PROTOCOL)], compression=None, max_size=None)
