"""The replay of real work: what it measures is right on work whose waiting times are known."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import Row, chart, said
from benchmarks.replay import compare, main, replay
from benchmarks.replay_inputs import WORKS, Work
from benchmarks.replay_pool import Helper, Job, Replay, first_in_first_out

INPUTS = os.environ.get("FLEETLOG_INPUTS")


def job(name: str, at_s: float, run_s: float, **more: object) -> Job:
    """A job of one user."""
    return Job(name, round(at_s * 1_000), round(run_s * 1_000), "job", "anna", **more)  # type: ignore[arg-type]


def test_first_in_first_out_knows_exclusion_and_nothing_else() -> None:
    """One robot; the second job of a target waits for the first, a later one of another target passes it."""
    jobs = [job("a1", 0, 10, target="a"), job("a2", 1, 10, target="a"), job("b1", 2, 10, target="b", priority=9)]
    served = first_in_first_out(jobs, [Helper("r1"), Helper("r2")])
    assert served.at_ms == {"a1": 0, "b1": 2_000, "a2": 10_000}
    alone = first_in_first_out(jobs, [Helper("r1")])
    assert alone.at_ms == {"a1": 0, "a2": 10_000, "b1": 20_000}


def test_the_pool_serves_in_its_order() -> None:
    """The same jobs, one robot: the urgent one goes before; every life is four events."""
    jobs = [job("a1", 0, 10, target="a"), job("a2", 1, 10, target="a"), job("b1", 2, 10, target="b", priority=9)]
    served = Replay([Helper("r1")]).run(jobs)
    assert served.at_ms == {"a1": 0, "b1": 10_000, "a2": 20_000}
    assert served.by == dict.fromkeys(("a1", "a2", "b1"), "r1")
    assert served.events >= 4 * len(jobs)


def test_requirements_and_failures() -> None:
    """Only who is able; what failed then fails here and waits for nobody."""
    jobs = [job("p", 0, 5, requirement=("paint",), fails=True), job("w", 0, 5), job("q", 1, 5, requirement=("paint",))]
    helpers = [Helper("plain"), Helper("painter", ("paint",))]
    for served in (Replay(helpers).run(jobs), first_in_first_out(jobs, helpers)):
        assert {served.by["p"], served.by["q"]} == {"painter"}
        assert served.at_ms["q"] == 5_000


def test_long_runs_keep_their_lease() -> None:
    """A job of three hours is one attempt: robots beat once a window."""
    served = Replay([Helper("r1")]).run([job("long", 0, 10_800), job("next", 1, 1)])
    assert served.at_ms == {"long": 0, "next": 10_800_000}


def test_charts_and_figures(tmp_path: Path) -> None:
    """One chart by priority, one by user where there are several; both orders served the same jobs."""
    jobs = [Job(f"j{k}", k * 100, 3_000, "job", f"u{k % 3}", f"u{k % 3}", k % 2) for k in range(60)]
    work = Work("small", "Small work", "made up", jobs, [Helper("r1"), Helper("r2")])
    found = replay(work, tmp_path)
    assert found["jobs"] == 60
    assert sorted(found["waiting_s"]) == ["priority", "user"]
    for name in ("priority", "user"):
        ElementTree.parse(tmp_path / f"small-by-{name}.svg")
    compared = compare(work, jobs)
    assert compared.ours.at_ms.keys() == compared.fifo.at_ms.keys()


def test_a_chart_shows_what_it_was_given() -> None:
    """Labels are text, times are in a unit that suits them."""
    text = chart("A & B", "below", [Row("x < y", (0.05, 9.0), (120.0, 7_300.0))])
    drawn = [node.text for node in ElementTree.fromstring(text).iter() if node.text]
    assert {"A & B", "below", "x < y", "2 min", "10 h"} <= set(drawn)
    assert [said(seconds) for seconds in (0.25, 3, 90, 5_400)] == ["0.2 s", "3 s", "1.5 min", "1.5 h"]


def test_the_command_line_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """No folder, or a work that there is not: a sentence, and exit code 2."""
    assert main(["--inputs", "/nowhere"]) == 2
    assert "say where the inputs are" in capsys.readouterr().err
    assert main(["--inputs", "/", "nothing"]) == 2
    assert "there are grid, images, warehouse" in capsys.readouterr().err


@pytest.mark.skipif(INPUTS is None, reason="FLEETLOG_INPUTS does not say where the recordings are")
@pytest.mark.parametrize("name", WORKS)
def test_real_work(name: str) -> None:
    """The first jobs of each recording: the highest priority begins no later than first in first out, at the median."""
    found = replay(WORKS[name](Path(INPUTS or ""), 1_500), None)
    waits = found["waiting_s"]["priority"]
    highest = waits[next(iter(waits))]
    assert highest["p50"] <= highest["fifo_p50"], json.dumps(waits)
