"""Projector and readers in processes of their own: kill -9 under load, reading while it writes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from projections.answers import Answer, Page
from projections.queries import Tables
from projections.store import StoreMissing
from tests.projections.world import POOL, World, filter_of, replayed
from tests.support.stored_events import ListLog, load_log, write_lives

KILL_ROUNDS = int(os.environ.get("FLEETLOG_KILL_ROUNDS", "6"))
CEILING_S = 60.0
TASKS = 3_000


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of lives of two pools, saved for other processes."""
    log = ListLog()
    write_lives(log, seed=21, tasks=TASKS)
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    log.save(path)
    return path


@contextmanager
def projecting(log: Path, folder: Path, records_max: int) -> Iterator[subprocess.Popen[str]]:
    """A projector process that has begun to fold; killed at the end if it still lives."""
    command = [sys.executable, "-m", "tests.projections.projecting", str(log), str(folder), str(records_max)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "folding\n"
        try:
            yield process
        finally:
            process.kill()


def test_f05_kill_9_under_load(saved: Path, tmp_path: Path) -> None:
    """F05, R4: killed at random moments between state and position, the tables equal those of a clean replay."""
    rng = random.Random(time.time_ns())
    folder, log = tmp_path / "killed", load_log(saved)
    interrupted = 0
    for _ in range(KILL_ROUNDS):
        with projecting(saved, folder, rng.choice([1, 4, 16, 64])) as process:
            time.sleep(rng.random() * 0.3)
            interrupted += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait(CEILING_S)
    world = World(folder, log, begun=False)
    already = sum(here for here, _ in world.projector.lag().values())
    assert world.projector.status.rebuilds == 0
    world.catch_up()
    digest = world.tables.digest()
    world.close()
    assert interrupted == KILL_ROUNDS
    assert already > 0
    assert digest == replayed(log, tmp_path / "clean")


def test_a_reader_in_another_process_sees_whole_batches(saved: Path, tmp_path: Path) -> None:
    """While the projector writes, each answer is true for its position: counts, index and cards agree, time never
    goes back, and at the end the reader sees what a clean replay gives."""
    tables, log = Tables(tmp_path / "live"), load_log(saved)
    seen: list[int] = []
    with projecting(saved, tmp_path / "live", 16) as process:
        deadline = time.monotonic() + CEILING_S
        while time.monotonic() < deadline:
            pools = tables.pools()
            seen.append(sum(pools.position.offsets.values()))
            assert seen[-1] == sum(one["progress"]["sequence"] for one in pools.value)
            page = tables.tasks(filter_of("state=RUNNING"), limit=1_000)
            assert isinstance(page, Page)
            assert all(card["state"] == "RUNNING" for card in page.items)
            count = tables.count(filter_of("state=COMPLETED kind=weld"))
            assert isinstance(count, Answer)
            if seen[-1] == sum(log.ends.values()):
                break
        process.kill()
    assert seen == sorted(seen)
    assert len(set(seen)) > 10, "the reader saw only few states: it did not read beside the writing"
    assert tables.digest() == replayed(log, tmp_path / "clean")
    tables.close()


def test_a_reader_waits_for_the_first_projector_and_follows_a_rebuild(saved: Path, tmp_path: Path) -> None:
    """Before there are tables, a sentence; when the projector begins new ones, the reader opens those."""
    tables = Tables(tmp_path / "tables")
    with pytest.raises(StoreMissing, match=r"There are no projections in .* yet: start `fleetlog projector`"):
        tables.pools()
    world = World(tmp_path / "tables")
    assert [one["progress"]["sequence"] for one in tables.pools().value] == [3]
    world.close()
    other = ListLog(log_id="99999999-2222-4333-8444-555555555555")
    write_lives(other, seed=5, tasks=5, pools=(POOL,))
    world = World(tmp_path / "tables", other, begun=False)
    assert tables.pools().value == []
    world.catch_up()
    assert [one["progress"]["sequence"] for one in tables.pools().value] == [other.sequences[POOL]]
    assert tables.positions().log == other.log_id
    tables.close()
    world.close()
