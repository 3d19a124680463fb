"""Random worlds: many robots, tasks, targets and operators under every fault, with all checks after every step.

A failing seed fails again: `FLEETLOG_SEED=17 pytest tests/commands/test_random_worlds.py` runs that one alone,
`FLEETLOG_SEEDS=1000` runs that many.
"""

import os

import pytest

from commands import pool as pool_module
from commands.decide import Context, Decision, decide
from commands.rows import canonical
from commands.state import PoolState
from tests.support.agents import Turmoil

SEEDS = (
    [int(os.environ["FLEETLOG_SEED"])]
    if "FLEETLOG_SEED" in os.environ
    else list(range(int(os.environ.get("FLEETLOG_SEEDS", "16"))))
)
STEPS = 250


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_the_log_tells_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay equals live after every step, through the wire; a snapshot equals live and chooses alike; the checker
    finds nothing; nobody works beside another on one target; deciding changes nothing; once faults stop, all ends."""

    def watched(state: PoolState, asked: object, context: Context) -> Decision:
        before = canonical(state)
        decision = decide(state, asked, context)
        assert canonical(state) == before, f"deciding {asked} changed the state"
        return decision

    monkeypatch.setattr(pool_module, "decide", watched)
    turmoil = Turmoil(seed, force=seed % 2 == 1)
    for step in range(STEPS):
        turmoil.step()
        if step % 50 == 0:
            turmoil.check_all()
    turmoil.calm()
