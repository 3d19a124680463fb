"""Old logs are tests: what was recorded once still folds to the same rows, and every event type was recorded."""

import json
from pathlib import Path

import pytest

from commands.checker import Checker
from commands.events import EVENT_TYPES, decode_event, encode_event
from tests.golden.record import FOLDER, LOGS, end_of, fold, record

FILES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("log", FILES, ids=lambda log: log.stem)
def test_old_logs_still_mean_what_they_meant(log: Path) -> None:
    """If this fails, an old event now reads differently. Add a new version of it instead."""
    assert end_of(fold(log.read_bytes().splitlines())) == log.with_suffix(".end").read_text()


@pytest.mark.parametrize("log", FILES, ids=lambda log: log.stem)
def test_old_logs_keep_the_invariants(log: Path) -> None:
    """The checker reads what older software wrote."""
    checker = Checker("hall")
    assert [finding for line in log.read_bytes().splitlines() for finding in checker.event(line)] == []


@pytest.mark.parametrize("log", FILES, ids=lambda log: log.stem)
def test_an_event_is_written_as_it_was_read(log: Path) -> None:
    """No field of a stored event is lost or renamed by reading and writing it."""
    for line in log.read_bytes().splitlines():
        assert json.loads(encode_event(decode_event(line))) == json.loads(line)


def test_every_event_type_is_recorded() -> None:
    """A new type fails until it stands in a golden log."""
    recorded = {json.loads(line)["type"] for log in FILES for line in log.read_bytes().splitlines()}
    assert recorded == set(EVENT_TYPES)


def test_every_log_that_can_be_recorded_is_there() -> None:
    """`python -m tests.golden.record` was run."""
    assert {log.stem for log in FILES} >= set(LOGS)
    assert all(log.with_suffix(".end").exists() for log in FILES)


def test_recording_overwrites_nothing(tmp_path: Path) -> None:
    """A log that exists stays, byte for byte; only what is missing is written."""
    assert len(record(tmp_path)) == 2 * len(LOGS)
    kept = tmp_path / "lives.jsonl"
    kept.write_bytes(kept.read_bytes().splitlines(keepends=True)[0])
    (tmp_path / "lives.end").unlink()
    (tmp_path / "pool.jsonl").unlink()
    assert record(tmp_path) == ["pool.jsonl", "lives.end"]
    assert kept.read_bytes().count(b"\n") == 1
    assert record(tmp_path) == []
    assert record(tmp_path, ends=True) == [f"{name}.end" for name in sorted(LOGS)]
