"""Fixtures of the projections' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.projections.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A pool hall-a with the robot r1 (epoch 3, two slots), projected and readable."""
    world = World(tmp_path / "projections")
    yield world
    world.close()
