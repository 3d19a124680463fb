"""`fleetlog stats`: a line for each kind, robot or step, and one object for scripts."""

from __future__ import annotations

import json

import pytest

from tests.fleetlog.conftest import CommandLine


@pytest.mark.usefixtures("pool")
def test_figures_by_kind_step_and_robot(cli: CommandLine) -> None:
    """Tab-separated in a pipe, with columns of choice; the whole answer as JSON."""
    for kind in ("weld", "weld", "paint"):
        assert cli("submit", kind).code == 0
    kinds = cli("stats", "--columns", "kind,waiting,events.submitted")
    assert kinds.lines == ["paint\t1\t1", "weld\t2\t2", "(all)\t3\t3"]
    assert kinds.err.startswith("now: 3 WAITING, the oldest for ")
    assert "robots: none; figures of " in kinds.err
    steps = cli("stats", "--by", "steps", "--from", "10m", "--step", "5m", "--columns", "events.submitted,waiting")
    assert steps.lines[-1].endswith("\t3")
    assert sum(int(line.split("\t")[0] or 0) for line in steps.lines) == 3
    assert cli("stats", "--by", "robots").out == ""
    whole = json.loads(cli("stats", "--json").out)
    assert (whole["total"]["waiting"], [kind["kind"] for kind in whole["kinds"]]) == (3, ["paint", "weld"])


@pytest.mark.usefixtures("pool")
def test_what_cannot_be_meant(cli: CommandLine) -> None:
    """One sentence each."""
    assert cli("submit", "weld").code == 0
    assert "--step 'often' is no span" in cli("stats", "--step", "often").err
    assert "--from 'long ago' is no instant" in cli("stats", "--from", "long ago").err
    fine = cli("stats", "--step", "90s")
    assert (fine.code, "a step is whole minutes" in fine.err) == (1, True)
    assert "[no_such_pool]" in cli("stats", "--pool", "nowhere").err
