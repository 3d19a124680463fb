"""The indexed dispatcher beside one that sorts everything: identical choices, always.

`FLEETLOG_POOLS=20000 pytest tests/commands/test_naive_order.py` plays that many random pools; a failure names its seed,
`FLEETLOG_SEED=17` plays that one alone.
"""

import os

import pytest

from tests.support.chaos import Chaos
from tests.support.world import choices

POOLS = int(os.environ.get("FLEETLOG_POOLS", "2000"))
STEPS = 14
AT_ONCE = 100
SEEDS = (
    [range(int(os.environ["FLEETLOG_SEED"]), int(os.environ["FLEETLOG_SEED"]) + 1)]
    if "FLEETLOG_SEED" in os.environ
    else [range(first, min(first + AT_ONCE, POOLS)) for first in range(0, POOLS, AT_ONCE)]
)


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_many_small_pools(seeds: range) -> None:
    """Each pool with tasks, robots and a sequence of commands and reports of its own: after each, every choice that is
    due is the naive one, with its level."""
    compared = 0
    for seed in seeds:
        chaos = Chaos(seed, tasks=seed % 12)
        try:
            for _ in range(STEPS):
                chaos.step()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
        assert chaos.world.findings == []
        compared += chaos.compared
    assert compared >= STEPS * len(seeds)


@pytest.mark.parametrize("seed", range(8))
def test_a_pool_that_goes_on(seed: int) -> None:
    """Longer; at the end a snapshot of the state and the fold of the log choose as the state itself does."""
    chaos = Chaos(seed)
    for _ in range(250):
        chaos.step()
    assert chaos.compared > 250
    assert len(chaos.world.named("TaskAssigned")) > 5
    chaos.world.verify()
    restored, folded = chaos.world.restored(), chaos.world.folded()
    now = chaos.world.now
    live = choices(chaos.world.state, now)
    assert choices(restored, now) == live
    assert choices(folded, now) == live
