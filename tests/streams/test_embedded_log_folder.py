"""The folder of an embedded log: who may open it, what is refused with which sentence, what outlives what."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.embedded_log import EmbeddedLog, create_embedded_log
from streams.embedded_reader import EmbeddedReader
from streams.port import (
    Fenced,
    LogCorrupt,
    LogFault,
    LogLocked,
    LogMisconfigured,
    LogState,
    LogUnavailable,
    Output,
    Seat,
    Snapshot,
    TakenOver,
    Topic,
)
from tests.streams.contract import Acks, own, put, read, say, values
from tests.streams.test_embedded_log import raw

POOL = "_log-0"


def child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process that runs a function of this file."""
    call = f"import sys; from tests.streams.test_embedded_log_folder import *; {code}"
    return subprocess.Popen([sys.executable, "-c", call, *map(str, arguments)], stdout=subprocess.PIPE)


def open_and_wait(folder: str) -> None:
    """Opens the log, says so, ends with its input."""
    log = EmbeddedLog.open(folder)
    put(log, Topic.EVENTS, POOL, [b"of the child"])
    say("opened")
    signal.pause()


def append_and_die(folder: str) -> None:
    """Appends twenty records, one group each, and is killed."""
    log = EmbeddedLog.open(folder, partitions=1)
    for i in range(20):
        put(log, Topic.EVENTS, POOL, [f"{i} ".encode() + b"x" * 300])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, Path]:
    """A log of twenty records whose process was killed, and its write-ahead log."""
    process = child("append_and_die(sys.argv[1])", tmp_path / "log")
    assert process.wait() == -signal.SIGKILL
    return tmp_path / "log", max((tmp_path / "log" / "db").glob("*.log"))


# --- who may open it ---


def test_i4_a_second_process_is_refused_with_folder_and_pid(tmp_path: Path) -> None:
    """The sentence names both; when the first process is dead the folder opens, with all it wrote."""
    process = child("open_and_wait(sys.argv[1])", tmp_path / "log")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"opened\n"
        with pytest.raises(LogLocked) as fault:
            EmbeddedLog.open(tmp_path / "log")
        assert str(tmp_path / "log") in str(fault.value)
        assert f"process {process.pid}" in str(fault.value)
    finally:
        process.kill()
        process.wait()
    log = EmbeddedLog.open(tmp_path / "log")
    assert values(read(log, Topic.EVENTS, 0)) == [b"of the child"]
    log.close()


def test_a_second_opening_in_one_process_is_refused(tmp_path: Path) -> None:
    """Closing lets the next one in; closing twice is allowed."""
    log = EmbeddedLog.open(tmp_path / "log")
    with pytest.raises(LogLocked):
        EmbeddedLog.open(tmp_path / "log")
    log.close()
    log.close()
    EmbeddedLog.open(tmp_path / "log").close()
    assert not (tmp_path / "log" / "pid").exists()


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    """Every use is refused with a fault of the log, never with RocksDB's."""
    log = EmbeddedLog.open(tmp_path / "log")
    _, seat, _ = own(log, 0)
    put(log, Topic.EVENTS, POOL, [b"a"])
    follower = log.follow(Topic.EVENTS, {0: 0})
    log.close()
    uses: list[Callable[[], object]] = [
        lambda: log.append(Topic.EVENTS, POOL, b"", (), Acks()),
        lambda: log.read_at(Topic.EVENTS, 0, 0),
        lambda: log.find_snapshots(0),
        lambda: log.keep_snapshot(0, Snapshot(1, "a", 1, [b"x"])),
        lambda: follower.poll(1, 0.0),
        seat.take_over,
    ]
    for use in uses:
        with pytest.raises(LogFault):
            use()


def test_i4_what_cannot_be_a_log_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """A missing folder, a file, another program's folder, a newer layout, a newer format, other partitions."""
    (tmp_path / "file").write_text("")
    (tmp_path / "foreign" / "db").mkdir(parents=True)
    for name in ("newer", "odd", "format", "here"):
        create_embedded_log(tmp_path / name, partitions=3)
    (tmp_path / "newer" / "layout").write_text("Fleetlog embedded log, layout 2\n")
    (tmp_path / "odd" / "layout").write_text("something\n")
    with raw(tmp_path / "format") as db:
        meta = db.get_column_family("meta")
        meta[b"log"] = b'{"log_id": "x", "format": 99, "partitions": 3}'
        meta.close()
    cases: list[tuple[str, dict[str, object], str]] = [
        ("nowhere", {"create": False}, "There is no log in .*nowhere"),
        ("file", {}, "is not a folder"),
        ("foreign", {}, "use another folder"),
        ("newer", {}, "layout 2, newer than this Fleetlog knows: update it"),
        ("odd", {}, "does not name the layout"),
        ("format", {}, "format 99, this Fleetlog knows formats up to 1: install a newer one"),
        ("here", {"partitions": 4}, "has 3 partitions, not 4"),
    ]
    for name, options, sentence in cases:
        with pytest.raises(LogMisconfigured, match=sentence):
            EmbeddedLog.open(tmp_path / name, **options)  # type: ignore[arg-type]
    for name in ("nowhere", "newer", "odd", "foreign"):
        with pytest.raises(LogMisconfigured):
            EmbeddedReader(tmp_path / name)
    with pytest.raises(LogMisconfigured, match="already"):
        create_embedded_log(tmp_path / "here")
    assert not (tmp_path / "nowhere").exists()


def test_a_new_log_gets_an_id_that_stays(tmp_path: Path) -> None:
    """Id and partitions are fixed when it is made; opening asks for neither."""
    head = create_embedded_log(tmp_path / "log", partitions=5)
    log = EmbeddedLog.open(tmp_path / "log", create=False)
    assert (log.log_id, log.format, log.partitions) == (head.log_id, 1, 5)
    log.close()
    assert create_embedded_log(tmp_path / "named", log_id="my-id").log_id == "my-id"


def test_a_making_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    """Killed between the folder and its head: opening makes the log, a reader says that it is not finished."""
    create_embedded_log(tmp_path / "log", partitions=2)
    with raw(tmp_path / "log") as db:
        meta = db.get_column_family("meta")
        del meta[b"log"]
        meta.close()
    with pytest.raises(LogMisconfigured, match="never finished"):
        EmbeddedReader(tmp_path / "log")
    log = EmbeddedLog.open(tmp_path / "log", partitions=4)
    assert log.partitions == 4
    log.close()


# --- what outlives what ---


def test_a_torn_tail_costs_only_what_was_torn(killed: tuple[Path, Path]) -> None:
    """A write-ahead log that ends within a group opens without that group, and goes on after it."""
    folder, ahead = killed
    os.truncate(ahead, ahead.stat().st_size - 100)
    log = EmbeddedLog.open(folder)
    kept = read(log, Topic.EVENTS, 0)
    assert [int(record.value.split()[0]) for record in kept] == list(range(19))
    assert put(log, Topic.EVENTS, POOL, [b"next"]) == [19]
    log.close()


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9])
def test_i5_damage_before_the_end_is_refused(killed: tuple[Path, Path], where: float) -> None:
    """A flipped bit within the write-ahead log: a sentence, and never a log that silently ends there."""
    folder, ahead = killed
    content = bytearray(ahead.read_bytes())
    content[int(len(content) * where)] ^= 1
    ahead.write_bytes(content)
    with pytest.raises(LogCorrupt, match=r"is damaged .* restore it from a backup"):
        EmbeddedLog.open(folder)


def test_i5_a_damaged_table_file_names_the_record(tmp_path: Path) -> None:
    """A flipped bit in a data block: topic, partition and offset of the first record that cannot be read."""
    log = EmbeddedLog.open(tmp_path / "log", partitions=1)
    put(log, Topic.EVENTS, POOL, [os.urandom(50_000) for _ in range(20)])
    log.close()
    table = max((tmp_path / "log" / "db").glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    log = EmbeddedLog.open(tmp_path / "log")
    with pytest.raises(LogCorrupt, match=r"events, partition 0, offset 9|events, partition 0, offset 10"):
        read(log, Topic.EVENTS, 0)
    log.close()


def test_a_missing_record_is_found(tmp_path: Path) -> None:
    """Offsets in the folder have no gap, so what is missing is not passed over in silence."""
    log = EmbeddedLog.open(tmp_path / "log", partitions=1)
    put(log, Topic.EVENTS, POOL, [b"a", b"b", b"c"])
    log.close()
    with raw(tmp_path / "log") as db:
        events = db.get_column_family("events")
        del events[b"\0\0" + (1).to_bytes(8, "big")]
        events.close()
    log = EmbeddedLog.open(tmp_path / "log")
    with pytest.raises(LogCorrupt, match="events, partition 0, offset 1 "):
        read(log, Topic.EVENTS, 0)
    with pytest.raises(LogCorrupt, match="events, partition 0, offset 1 "):
        log.read_at(Topic.EVENTS, 0, 1)
    assert values(read(log, Topic.EVENTS, 0, 2)) == [b"c"]
    log.close()


def take_over_when_it_goes(seat: Seat) -> TakenOver:
    """Asks until the log answers."""
    while True:
        try:
            return seat.take_over()
        except LogUnavailable:
            time.sleep(0.05)


def fill_the_disk_then_make_room(folder: str) -> None:
    """Runs under a limit on file sizes, which stands for a full disk; says what each call came to."""
    log = EmbeddedLog.open(folder, partitions=1)
    _, seat, taken = own(log, 0)
    put(log, Topic.COMMANDS, POOL, [b"before"])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    acks = Acks()
    for _ in range(5):
        log.append(Topic.COMMANDS, POOL, os.urandom(200_000), (), acks)
    answers = acks.wait(5)
    refused = [fault for fault, _ in answers if fault]
    assert refused
    assert all(isinstance(fault, LogUnavailable) for fault in refused)
    assert log.state() == LogState(warning=str(refused[-1]))
    try:
        seat.commit([Output(Topic.EVENTS, "p", os.urandom(400_000))], taken.reports_next, taken.commands_next + 1)
        raise AssertionError("committed without room")
    except Fenced:
        pass
    assert values(read(log, Topic.COMMANDS, 0))[:1] == [b"before"]
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert take_over_when_it_goes(seat) == taken
    seat.start()
    seat.commit([Output(Topic.EVENTS, "p", b"after")], taken.reports_next, taken.commands_next)
    put(log, Topic.COMMANDS, POOL, [b"after"])
    assert log.state() == LogState()
    kept = read(log, Topic.COMMANDS, 0)
    assert [record.offset for record in kept] == list(range(len(kept)))
    assert len(kept) == 2 + len([offset for fault, offset in answers if fault is None])
    assert values(read(log, Topic.EVENTS, 0)) == [b"after"]
    log.close()
    say("healed")


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """Appends are refused, a commit says Fenced, reads go on; with room again the log goes on by itself."""
    process = child("fill_the_disk_then_make_room(sys.argv[1])", tmp_path / "log")
    out, _ = process.communicate()
    assert (out, process.returncode) == (b"healed\n", 0)


def test_a_backup_is_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all that was acknowledged before, opens like any log, and what comes later goes to one only."""
    log = EmbeddedLog.open(tmp_path / "log", partitions=2)
    _, seat, taken = own(log, 0)
    put(log, Topic.COMMANDS, POOL, [b"c"])
    seat.commit([Output(Topic.EVENTS, "p", b"e")], taken.reports_next, taken.commands_next + 1)
    log.keep_snapshot(0, Snapshot(1, "a", 1, (b"s",)))
    log.backup(tmp_path / "backup")
    with monkeypatch.context() as other_file_system:
        other_file_system.setattr(
            Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("Invalid cross-device link"))
        )
        log.backup(tmp_path / "copied")
    with pytest.raises(LogMisconfigured, match="exists already"):
        log.backup(tmp_path / "backup")
    put(log, Topic.COMMANDS, POOL, [b"later"])
    for name in ("backup", "copied"):
        copy = EmbeddedLog.open(tmp_path / name, create=False)
        assert copy.log_id == log.log_id
        assert values(read(copy, Topic.COMMANDS, 0)) == [b"c"]
        assert values(read(copy, Topic.EVENTS, 0)) == [b"e"]
        assert copy.find_snapshots(0) == [Snapshot(1, "a", 1, (b"s",))]
        assert own(copy, 0)[2].commands_next == taken.commands_next + 1
        put(copy, Topic.COMMANDS, POOL, [b"of the copy"])
        copy.close()
    assert values(read(log, Topic.COMMANDS, 0)) == [b"c", b"later"]
    log.close()
    shutil.rmtree(tmp_path / "log")
    copy = EmbeddedLog.open(tmp_path / "backup")
    assert values(read(copy, Topic.COMMANDS, 0)) == [b"c", b"of the copy"]
    copy.close()
