"""When a lease of robots that are killed is lost, measured by the log's append times on either log.

Longer leases and more robots: `python -m tests.system.lease_loss`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.system.lease_loss import BATCH_MS, FLEETS, SLOTS, Loss, kill_robots, losses
from tests.system.product import Product, embedded, on_kafka

ROBOTS = 2


@pytest.fixture(params=["embedded", "kafka"])
def product(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Product]:
    """The running product, on either log."""
    if request.param == "embedded":
        made = embedded(tmp_path)
    else:
        made = on_kafka(tmp_path, request.getfixturevalue("broker").address)
    made.start()
    with ExitStack() as stack:
        stack.callback(made.stop)
        yield made


def test_no_lease_is_lost_before_its_windows(product: Product) -> None:
    """Every attempt of a killed robot expires, none before n windows have passed since the last message that named it.

    How late at most is measured by the script: a machine with other work may be late.
    """
    kill_robots(product, FLEETS[:1], ROBOTS, seed=1)
    reader = product.reader()
    found = losses(reader)
    reader.close()
    assert len({(loss.task, loss.attempt) for loss in found}) == len(found) == ROBOTS * SLOTS
    assert [loss for loss in found if loss.too_early] == []


@pytest.mark.parametrize(
    ("waited_ms", "handed_over", "early", "late"),
    [
        (2_999, False, True, False),
        (3_000, False, False, False),
        (4_000 + BATCH_MS, False, False, False),
        (4_001 + BATCH_MS, False, False, True),
        (9_000, True, False, False),
    ],
)
def test_what_is_too_early_or_too_late(waited_ms: int, handed_over: bool, early: bool, late: bool) -> None:
    """Three windows of a second: from 3 s to 4.5 s, later only after a hand-over."""
    loss = Loss("hall", "t", 1, 3, 1_000, waited_ms, handed_over)
    assert (loss.too_early, loss.too_late) == (early, late)
