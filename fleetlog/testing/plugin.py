"""The pytest plugin: fixtures `fleet` and `fleet_with_faults`. Nothing of Fleetlog is loaded before a test asks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from fleetlog.testing import Fleet

FAULT_EVERY_S: Final = 4.0
_FLEET: Final = pytest.StashKey["Fleet"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--fleetlog-seed N`."""
    group = parser.getgroup("fleetlog")
    group.addoption("--fleetlog-seed", type=int, default=1, help="the seed of the fixtures fleet, fleet_with_faults")


def pytest_configure(config: pytest.Config) -> None:
    """The mark `fleetlog`."""
    config.addinivalue_line("markers", "fleetlog(**settings): what the fleet of a test is made with, as Fleet(...)")


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator["Fleet"]:
    """A fleet without faults but those that the test makes; its invariants are judged in the end."""
    yield from _fleet(request, {})


@pytest.fixture
def fleet_with_faults(request: pytest.FixtureRequest) -> Iterator["Fleet"]:
    """A fleet in which something goes wrong every few seconds; another seed, other faults (`--fleetlog-seed`)."""
    yield from _fleet(request, {"fault_every_s": FAULT_EVERY_S})


def _fleet(request: pytest.FixtureRequest, options: dict[str, Any]) -> Iterator["Fleet"]:
    from fleetlog.testing import Fleet

    options = {"seed": request.config.getoption("--fleetlog-seed")} | options
    for mark in reversed(list(request.node.iter_markers("fleetlog"))):  # the nearest one last
        options |= mark.kwargs
    made = request.node.stash[_FLEET] = Fleet(**options)
    yield made
    made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Where a test fails, the story of its fleet stands beside it."""
    report: pytest.TestReport = yield
    made = item.stash.get(_FLEET, None)
    if made is not None and report.when == "call" and report.failed:
        report.sections.append((f"Story of the fleet (seed {made.seed})", made.story()))
    return report
