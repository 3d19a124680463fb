"""R4 on three brokers: one short round for those who ask for it; `python -m tests.chaos` plays as many as one likes."""

import os
from pathlib import Path

import pytest

from tests.chaos.__main__ import play
from tests.chaos.arena import ACTS
from tests.chaos.plan import KINDS, plan

SEED = int(os.environ.get("FLEETLOG_SEED", "7"))


@pytest.mark.skipif(
    os.environ.get("FLEETLOG_CHAOS") != "1",
    reason="chaos needs three brokers and minutes: set FLEETLOG_CHAOS=1, or run `python -m tests.chaos`",
)
@pytest.mark.timeout(1_800)
def test_one_round_of_chaos(tmp_path: Path) -> None:
    """Faults of one round by the seed; then nothing acknowledged is lost and the referee finds nothing."""
    verdict, gaps = play(tmp_path, 1, SEED)
    assert verdict.acknowledged > 0
    assert len(gaps) == 1
    assert verdict.good, verdict


def test_a_plan_is_its_seed_and_leaves_nothing_out() -> None:
    """The same seed, the same faults; as many rounds as there are kinds bring every kind, none meets one part twice."""
    rounds = plan(len(KINDS), 3)
    assert rounds == plan(len(KINDS), 3) != plan(len(KINDS), 4)
    assert {fault.what for faults in plan(2 * len(KINDS), 3) for fault in faults} == set(KINDS) == set(ACTS)
    assert all(len({fault.whom for fault in faults}) == len(faults) for faults in rounds)
