"""Fleetlog beside others: figures, page and processes; one whole small run with Fleetlog alone, without a network."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.chart import Bar, bars
from benchmarks.peers import works
from benchmarks.peers.__main__ import PEERS, main
from benchmarks.peers.fleetlog_peer import FleetlogEmbedded
from benchmarks.peers.peer import Place
from benchmarks.peers.processes import PeerFailed, Processes, run, session_members, until
from benchmarks.peers.report import PAGE, charts, markdown, write
from benchmarks.peers.results import Found, Measured, RowFound, load


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that end with the test."""
    with Processes(tmp_path / "logs") as started:
        yield started


def a_run() -> Found:
    """Two rounds: one row with all figures, one that failed once and lost a task, one that is missing."""
    whole = RowFound(
        "fleetlog-embedded",
        "Fleetlog, embedded log",
        "the disk",
        "in the log",
        {"fast": "as it comes"},
        survives="kill -9",
    )
    other = RowFound("other", "Other | queue", versions={"other": "1.2"})
    other.measured.append(Measured("crash_default", 1, 0.5, {"again_s": None, "waited_s": 150.0}))
    for number in (2, 1):
        rate = {"tasks": 1_000, "per_s": 1_000.0 * number, "submitted_per_s": 4_000.0}
        whole.measured.append(Measured("throughput", number, 0.2, dict(rate)))
        whole.measured.append(Measured("latency", number, 0.2, {"p50_ms": 4.04, "p99_ms": 9.96}))
        whole.measured.append(Measured("crash_best", number, 0.2, {"again_s": 5.25, "waited_s": 150.0}))
    other.measured.append(Measured("throughput", 1, 1.5, failed="it ended: no words"))
    other.measured.append(Measured("throughput", 2, 1.5, {"per_s": 321.0, "submitted_per_s": 640.0}))
    gone = RowFound("gone", "Gone", missing="there is no wheel", remedy="install it")
    return Found(1_000, 30.0, 150.0, 2, 2, {"machine": "2 cores"}, [whole, other, gone])


def row_of(page: str, title: str) -> list[str]:
    """The cells of a row of the first table."""
    [line, *_] = [line for line in page.splitlines() if line.startswith(f"| **{title}**")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_percentiles_are_values_that_were_measured() -> None:
    """The smallest value that so large a share does not exceed; of one value, that one."""
    values = [float(number) for number in range(100, 0, -1)]
    assert (works.percentile(values, 0.5), works.percentile(values, 0.99)) == (50.0, 99.0)
    assert works.percentile(values, 1.0) == 100.0
    assert works.percentile([7.0], 0.99) == 7.0
    assert works.percentile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_the_table_says_what_was_found_round_by_round() -> None:
    """Figures in the order of the rounds; what failed, was lost or is missing stands in words."""
    page = markdown(a_run(), [])
    assert row_of(page, "Fleetlog, embedded log")[1:] == [
        "kill -9", "1,000, 2,000", "4,000, 4,000", "4.0, 4.0", "10.0, 10.0", "not measured", "5.2, 5.2",
    ]  # fmt: skip
    other = row_of(page, "Other \\| queue")
    assert other[2] == "failed: it ended: no words, 321"
    assert other[6] == "not within 150 s"
    assert "not installed: there is no wheel. Remedy: install it" in page
    assert "other 1.2" in page
    assert "0.2 to 1.5" in page


def test_a_busy_machine_is_said_first() -> None:
    """Where most measurements began under other work's load, the page says so above the table."""
    found = a_run()
    assert "kept this machine busy" not in markdown(found, [])
    for row in found.rows:
        for one in row.measured:
            one.load = 9.4
    page = markdown(found, [])
    assert page.index("load average 9 to 9") < page.index("| **Fleetlog")


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    """JSON, page and charts; the report made anew from the JSON is the same."""
    found = a_run()
    written = write(found, tmp_path)
    assert {path.name for path in written} >= {f"{PAGE}.md", f"{PAGE}.json", f"{PAGE}-tasks.svg", f"{PAGE}-killed.svg"}
    assert load(tmp_path / f"{PAGE}.json") == found
    page = (tmp_path / f"{PAGE}.md").read_text()
    (tmp_path / f"{PAGE}.md").unlink()
    assert main(["--report", "--out", str(tmp_path)]) == 0
    assert (tmp_path / f"{PAGE}.md").read_text() == page


def test_charts_have_a_bar_a_round() -> None:
    """Rows without a figure have none; values are said."""
    drawn = charts(a_run())
    texts = [node.text for node in ElementTree.fromstring(drawn[f"{PAGE}-tasks.svg"]).iter() if node.text]
    assert {"Fleetlog, embedded log", "Other | queue", "1,000", "2,000", "321"} <= set(texts)
    assert "Gone" not in texts
    rectangles = ElementTree.fromstring(bars("t", "s", [Bar("a", (1.0, 2.0)), Bar("b", ())], 0)).iter()
    assert sum(1 for node in rectangles if node.tag.endswith("rect")) == 1 + 2


def test_a_worker_is_killed_with_all_it_started(processes: Processes) -> None:
    """The whole session dies, and nothing of it is left."""
    script = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    child = processes.start("family", [sys.executable, "-c", script])
    until(lambda: len(session_members(child.pid)) == 2, "both run", within_s=60)
    child.kill()
    until(lambda: session_members(child.pid) == [], "both are gone", within_s=60)


def test_what_a_program_said_last_is_in_the_sentence(processes: Processes) -> None:
    """A program that fails, one that is not there, one that ended while it was waited for."""
    with pytest.raises(PeerFailed, match="ended with 3: no disk"):
        run([sys.executable, "-c", "print('no disk'); raise SystemExit(3)"])
    with pytest.raises(PeerFailed, match="cannot be started"):
        run(["/nowhere/at-all"])
    child = processes.start("server", [sys.executable, "-c", "print('port taken')"])
    with pytest.raises(PeerFailed, match="server ended before it answers: port taken"):
        until(bool, "it answers", within_s=60, child=child)


def test_the_command_line_knows_its_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--list names them; an unknown one, or no folder for the page, is wrong usage."""
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [peer.key for peer in PEERS]
    assert main(["--only", "celery", "--only", "nobody", "--out", str(tmp_path)]) == 2
    assert "no row is called nobody" in capsys.readouterr().err
    assert main(["--out", str(tmp_path / "none")]) == 2
    assert main(["--report", "--out", str(tmp_path)]) == 2


def test_a_whole_small_run_with_fleetlog_alone(tmp_path: Path) -> None:
    """All works on the embedded log: tasks are counted, starts are stamped, a killed worker's task runs again."""
    words = ["--only", "fleetlog-embedded", "--tasks", "50", "--seconds", "0.5", "--rounds", "1", "--wait", "120"]
    where = ["--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert main([*words, *where, "--work", "throughput", "--work", "latency", "--work", "crash_best"]) == 0
    [row] = load(tmp_path / f"{PAGE}.json").rows
    [rate], [wait], [again] = row.of("throughput"), row.of("latency"), row.of("crash_best")
    assert rate.found["tasks"] == 50
    assert 0 < rate.found["submit_s"] <= rate.found["total_s"]
    assert wait.found["tasks"] == 25
    assert 0 < wait.found["p50_ms"] <= wait.found["p99_ms"] <= wait.found["worst_ms"]
    assert again.found["again_s"] > 0
    assert row.versions["Fleetlog"]


def test_a_run_that_is_ended_ends_what_it_started(tmp_path: Path) -> None:
    """SIGTERM in the middle: exit code 130, and the server is gone."""
    words = ["--only", "fleetlog-embedded", "--tasks", "50", "--rounds", "1", "--work", "latency", "--seconds", "600"]
    command = [sys.executable, "-m", "benchmarks.peers", *words, "--out", str(tmp_path), "--cache", str(tmp_path)]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until((tmp_path / "data" / "stamps").exists, "tasks start", within_s=300)
        servers = _children_of(running.pid)
        assert servers
        running.terminate()
        assert running.wait(60) == 130
    finally:
        running.kill()
    until(lambda: not any(map(_alive, servers)), "the server is gone", within_s=60)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
    return [int(child) for child, parent in (line.split() for line in listed.splitlines()) if int(parent) == pid]


def test_stamps_are_whole_lines(tmp_path: Path) -> None:
    """A line that is still being written is not read."""
    place = Place(tmp_path, tmp_path)
    assert works.stamps(place, "note") == []
    place.stamps.write_text(json.dumps(["note", 1.0, 2.5]) + "\n" + json.dumps(["slow", os.getpid(), 3.0]) + '\n["no')
    assert works.stamps(place, "note") == [(1.0, 2.5)]
    assert works.stamps(place, "slow") == [(os.getpid(), 3.0)]


def test_a_peer_that_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Redis, and nothing to get one with: the run goes on, and the table has the reason and the remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--only", "celery-always", "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]) == 0
    page = (tmp_path / f"{PAGE}.md").read_text()
    assert "not installed: there is no redis-server on this machine. Remedy: install redis-server" in page
    assert load(tmp_path / f"{PAGE}.json").rows[0].measured == []


def test_a_work_that_fails_is_recorded_and_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a peer's parts raise: a sentence in the row, exit code 1, and the data are removed."""

    def break_down(self: FleetlogEmbedded) -> None:
        (self.place.data / "half").mkdir()
        raise RuntimeError("no disk")

    monkeypatch.setattr(FleetlogEmbedded, "begin", break_down)
    words = ["--only", "fleetlog-embedded", "--rounds", "1", "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--work", "latency", "--work", "throughput"]) == 1
    [row] = load(tmp_path / f"{PAGE}.json").rows
    assert [(one.work, one.failed) for one in row.measured] == [
        ("throughput", "RuntimeError: no disk"),
        ("latency", "RuntimeError: no disk"),
    ]
    assert not (tmp_path / "cache" / "data").exists()
