"""R4, F22: whatever is killed under load, nothing acknowledged is lost, no lease is live twice, every task ends.

A few rounds for every run; `python -m tests.system.rounds` plays as many as one likes.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.system.crew import Crew
from tests.system.judge import overlaps
from tests.system.product import Product, embedded, on_kafka
from tests.system.rounds import VICTIMS, play

ROUNDS = int(os.environ.get("FLEETLOG_ROUNDS", "3"))
SEED = int(os.environ.get("FLEETLOG_SEED", "7"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be ended, in reverse order."""
    with ExitStack() as made:
        yield made


def survive(
    product: Product, folder: Path, stack: ExitStack, rounds: int = ROUNDS, victims: Sequence[str] = VICTIMS
) -> None:
    """Plays the rounds and asks the judge."""
    stack.callback(product.stop)
    product.start()
    crew = Crew(product.url, folder)
    stack.callback(crew.stop)
    verdict, _ = play(product, crew, rounds, SEED, victims)
    assert verdict.acknowledged > 0
    assert verdict.completed >= verdict.acknowledged
    assert (verdict.lost, verdict.unended, verdict.overlapping, verdict.findings) == ([], [], [], [])


def test_r4_embedded(tmp_path: Path, stack: ExitStack) -> None:
    """Main, projector, or both die on the embedded log."""
    survive(embedded(tmp_path), tmp_path, stack)


def test_r4_f22_kafka(tmp_path: Path, stack: ExitStack, broker: Broker) -> None:
    """Owner, gateway, projector, or all of them die on a genuine Kafka."""
    survive(on_kafka(tmp_path, broker.address), tmp_path, stack)


def test_r4_a_broker_that_dies(tmp_path: Path, stack: ExitStack) -> None:
    """The only broker is killed under load and started again: all parts go on by themselves."""
    own = stack.enter_context(Broker())
    survive(on_kafka(tmp_path, own.address, [own]), tmp_path, stack, max(1, ROUNDS // 3), ["broker"])


def test_the_judge_sees_two_robots_at_one_target() -> None:
    """The check of exclusion can fail: overlapping work is found, work in turn is not."""
    in_turn = [("a", 1, "dock", 0.0, 1.0), ("b", 1, "dock", 1.0, 2.0), ("c", 1, "gate", 0.5, 3.0)]
    assert overlaps(in_turn) == []
    assert overlaps([*in_turn, ("d", 1, "dock", 1.5, 1.7)]) == [("b/1", "d/1")]
