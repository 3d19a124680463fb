"""The whole product on a virtual clock: whatever goes wrong, every rule holds; and each rule that is broken is noticed.

More seeds: `FLEETLOG_SEEDS=1000`, or `fleetlog sim --seeds 1000 --processes 2 --coverage`.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commands.remembered import RememberedCommands
from fleetlog.sim.coverage import Coverage
from fleetlog.sim.faults import FAULTS, STEPS
from fleetlog.sim.world import Plan, Result, World, simulate
from projections.fold import Fold
from robot_gateway.sdk import holdings
from streams.memory_log import MemoryStore
from streams.owner import PartitionOwner
from streams.port import Topic
from tests.support.broken_rules import early_expiry, failed_commit_counts

SEEDS = int(os.environ.get("FLEETLOG_SEEDS", "6"))
PLAN = Plan(seconds=120, fault_every_s=4.0)
STORM = Plan(seconds=100, fault_every_s=0.3)
STORMS = 7
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The parts complain about faults, as they should; here that is no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def good(result: Result) -> None:
    """No rule was broken; else the seed and the story."""
    assert not result.findings, f"seed {result.seed}: {result.findings}\n" + "\n".join(result.stories)
    assert result.acknowledged > 0


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_a_world_with_faults_breaks_no_rule(seed: int) -> None:
    """Now and then something goes wrong; in the end every task has ended, and the log, the robots and tables agree."""
    result = simulate(seed, PLAN)
    good(result)
    assert result.events > 500
    assert result.faults > 0


def test_a_world_full_of_faults_breaks_no_rule() -> None:
    """Several faults a second; each fault came after each step of an owner, and with tasks in each state."""
    seen = Coverage()
    for seed in range(1, STORMS + 1):
        good(simulate(seed, STORM, coverage=seen))
    by_step = {(fault, step) for (fault, step, _), count in seen.counts.items() if count}
    by_state = {(fault, state) for (fault, _, state), count in seen.counts.items() if count}
    assert by_step == {(fault, step) for fault in FAULTS for step in range(1, STEPS + 1)}
    assert by_state >= {(fault, state) for fault in FAULTS for state in ("WAITING", "ASSIGNED", "RUNNING", "LOST")}


def test_without_faults_nothing_is_lost_late_or_twice() -> None:
    """In peace no lease ends by silence, and nothing is said to be done twice."""
    result = simulate(1, Plan(seconds=60, fault_every_s=0.0, robots=5))
    good(result)
    assert (result.faults, result.said_twice) == (0, 0)


def test_the_same_seed_plays_the_same(tmp_path: Path) -> None:
    """Event for event, byte for byte; another seed plays something else."""
    first, again, other = (_digest(seed, tmp_path / name) for seed, name in ((3, "a"), (3, "b"), (4, "c")))
    assert first == again
    assert first != other


def _digest(seed: int, folder: Path) -> str:
    folder.mkdir()
    world = World(seed, Plan(seconds=30), folder)
    world.play()
    digest = hashlib.sha256()
    for partition in range(world.store.partitions):
        for record in world.store.place(Topic.EVENTS, partition).records:
            digest.update(record.value)
    return digest.hexdigest()


# ---- each rule broken once ----


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """Two owners may write at once."""
    take_over = MemoryStore.take_over

    def unfenced(self: MemoryStore, seat: Any) -> Any:
        taken = take_over(self, seat)
        self._owned[seat.partition].epoch = seat.epoch = 1
        return taken

    patch.setattr(MemoryStore, "take_over", unfenced)


def no_own_deadline(patch: pytest.MonkeyPatch) -> None:
    """Robots work on when nobody answers them."""
    patch.setattr(holdings, "DEADLINE_SHARE", 50.0)


def no_memory(patch: pytest.MonkeyPatch) -> None:
    """Commands that come again are decided again."""
    patch.setattr(RememberedCommands, "get", lambda self, key: None)


def events_skipped(patch: pytest.MonkeyPatch) -> None:
    """The projector leaves out an event now and then."""
    fold = Fold.fold

    def some(self: Fold, records: Any) -> None:
        fold(self, [r for r in records if r.offset % 50])

    patch.setattr(Fold, "fold", some)


def nobody_dispatches(patch: pytest.MonkeyPatch) -> None:
    """Tasks are taken and never given to anybody."""
    patch.setattr(PartitionOwner, "_dispatch", lambda self, touched, nows: False)


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        (no_fencing, {"sequence", "chain", "replay"}),
        (no_own_deadline, {"exclusion"}),
        (early_expiry, {"exclusion", "lease"}),
        (no_memory, {"submitted twice", "id twice", "stopped", "lost"}),
        (failed_commit_counts, {"replay", "sequence", "chain", "stopped"}),
        (events_skipped, {"stopped"}),
        (nobody_dispatches, {"stuck"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_noticed(broken: Patch, rules: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one rule of the product switched off, some world finds it, and by the rule that it breaks."""
    broken(monkeypatch)
    plan = Plan(seconds=60, fault_every_s=0.5, settle_s=120, verbs_every_s=0.0)
    found = set[str]()
    for seed in range(1, 9):
        found |= {finding.rule for finding in simulate(seed, plan).findings}
        if found & rules:
            return
    raise AssertionError(f"nothing of {rules} was noticed, only {found}")
