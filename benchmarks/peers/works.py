"""The three works, each on a peer that was just started on empty data."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peers.peer import Kind, Peer, Place, Profile
from benchmarks.peers.processes import Child, PeerFailed

WORKERS: Final = 4
RATE_PER_S: Final = 50.0
WARM_UP: Final = 200
WARM_UP_S: Final = 180.0
SETTLE_S: Final = 2.0
LONGEST_S: Final = 1_800.0
BEGIN_S: Final = 60.0
INTO_S: Final = 0.5
"""A worker is killed so long after its task has begun."""


@dataclass(slots=True, frozen=True)
class Throughput:
    """`tasks` no-op tasks from the first submission to the last record; `submit_s`: of it, until all were submitted."""

    tasks: int
    submit_s: float
    total_s: float

    @property
    def per_s(self) -> float:
        return self.tasks / self.total_s

    @property
    def submitted_per_s(self) -> float:
        return self.tasks / self.submit_s


@dataclass(slots=True, frozen=True)
class Latency:
    """Submission to the start of the handler, at a steady pace."""

    tasks: int
    rate_per_s: float
    p50_ms: float
    p99_ms: float
    worst_ms: float


@dataclass(slots=True, frozen=True)
class Crash:
    """`again_s`: from SIGKILL until the task's handler started elsewhere; None: not within `waited_s`."""

    again_s: float | None
    waited_s: float


def throughput(peer: Peer, tasks: int) -> Throughput:
    """`tasks` no-op tasks on four workers that wait for them. Raises PeerFailed."""
    warm_up(peer, peer.start_workers(WORKERS))
    submitted = peer.submit_many(Kind.NOTHING, tasks)
    ended_s = until_completed(peer, WARM_UP + tasks, LONGEST_S)
    return Throughput(tasks, submitted.ended_s - submitted.began_s, ended_s - submitted.began_s)


def latency(peer: Peer, seconds: float) -> Latency:
    """RATE_PER_S tasks a second for so long onto four idle workers. Raises PeerFailed."""
    warm_up(peer, peer.start_workers(WORKERS))
    tasks = max(1, round(seconds * RATE_PER_S))
    peer.submit_paced(Kind.NOTE, tasks, RATE_PER_S)
    give_up = time.monotonic() + LONGEST_S
    while len(found := stamps(peer.place, "note")) < tasks:
        if time.monotonic() > give_up:
            raise PeerFailed(f"{len(found)} of {tasks} tasks started within {LONGEST_S:g} s")
        time.sleep(0.1)
    waits_ms = [1_000 * (started - sent) for sent, started in found]
    return Latency(tasks, RATE_PER_S, percentile(waits_ms, 0.5), percentile(waits_ms, 0.99), max(waits_ms))


def crash(peer: Peer, wait_s: float) -> Crash:
    """One of two workers is killed 0.5 s into a task of 3 s; the other stays. Raises PeerFailed."""
    workers = [*peer.start_workers(1), *peer.start_workers(1)]
    warm_up(peer, workers)
    peer.submit_one(Kind.SLOW)
    give_up = time.monotonic() + BEGIN_S
    while not (begun := stamps(peer.place, "slow")):
        if time.monotonic() > give_up:
            raise PeerFailed(f"the task to be interrupted did not begin within {BEGIN_S:g} s")
        time.sleep(0.01)
    pid, began_s = begun[0]
    time.sleep(max(0.0, began_s + INTO_S - time.monotonic()))
    peer.kill_worker(_worker_of(int(pid), workers))
    killed_s = time.monotonic()
    while time.monotonic() < killed_s + wait_s:
        if len(begun := stamps(peer.place, "slow")) > 1:
            return Crash(begun[1][1] - killed_s, wait_s)
        time.sleep(0.02)
    return Crash(None, wait_s)


def warm_up(peer: Peer, workers: Sequence[Child]) -> None:
    """Some tasks, so that all is loaded; then a pause, so that workers are idle."""
    peer.submit_many(Kind.NOTHING, WARM_UP)
    try:
        until_completed(peer, WARM_UP, WARM_UP_S)
    except PeerFailed as fault:
        raise PeerFailed(f"{fault}; {workers[0].name} says: {workers[0].words()}") from None
    time.sleep(SETTLE_S)
    for worker in workers:
        if not worker.running:
            raise PeerFailed(f"{worker.name} ended: {worker.words()}")


def until_completed(peer: Peer, submitted: int, within_s: float) -> float:
    """When the last was recorded as completed (monotonic); the peer is asked rarely if its answer costs time."""
    give_up = time.monotonic() + within_s
    while True:
        asked_s = time.monotonic()
        completed = peer.completed(submitted)
        answered_s = time.monotonic()
        if completed >= submitted:
            return answered_s
        if answered_s > give_up:
            raise PeerFailed(f"{completed} of {submitted} tasks were completed within {within_s:g} s")
        time.sleep(max(0.02, 5 * (answered_s - asked_s)))


def measure(peer: Peer, profile: Profile, work: Any, size: float) -> Any:
    """Start the peer, let it do one work, stop it, however it ends."""
    try:
        peer.start(profile)
        return work(peer, size)
    finally:
        peer.stop()


def stamps(place: Place, kind: str) -> list[tuple[float, float]]:
    """The two numbers of each whole line of this kind, in the order written."""
    if not place.stamps.exists():
        return []
    lines = place.stamps.read_text().rpartition("\n")[0].splitlines()
    return [(first, second) for name, first, second in map(json.loads, lines) if name == kind]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _worker_of(pid: int, workers: Sequence[Child]) -> Child:
    session = os.getsid(pid)
    for worker in workers:
        if worker.pid == session:
            return worker
    raise PeerFailed("the task runs in a process that belongs to no worker")
