"""I5: flipped bits and truncated files of the projections are found by a checksum, named, never served, and mended."""

import random
import time
from pathlib import Path

import pytest

from projections.projector import Projector
from projections.queries import Tables
from projections.rows import Table, name_key, unseal
from projections.store import Folder, Store, StoreCorrupt
from tests.projections.test_processes import projecting
from tests.projections.world import POOL, World, replayed
from tests.support.stored_events import ListLog, submitted, write_lives

CEILING_S = 60.0


def flip(content: bytes, bit: int) -> bytes:
    """The bytes with one bit flipped."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_of_a_row_is_found(world: World) -> None:
    """Whatever bit of a stored value is flipped or byte cut off, or if it is another row's, it is no value."""
    world.write(submitted("t1"), submitted("t2"))
    world.projector.close()
    key, value = name_key(POOL, "t1"), stored(world.folder, name_key(POOL, "t1"))
    assert unseal(key, value) is not None
    for bit in range(8 * len(value)):
        assert unseal(key, flip(value, bit)) is None
    for cut in range(len(value)):
        assert unseal(key, value[:cut]) is None
    assert unseal(key, stored(world.folder, name_key(POOL, "t2"))) is None


def test_a_damaged_row_is_named_and_not_served(world: World) -> None:
    """A reader gets a sentence that names the table and the key."""
    world.write(submitted("t1"))
    world.projector.close()
    key = name_key(POOL, "t1")
    damage(world.folder, key, flip(stored(world.folder, key), 77))
    reading_fails(world.folder, r"does not match its checksum \(table tasks, key b'hall-a\\x00t1'")


def stored(folder: Path, key: bytes) -> bytes:
    """The sealed bytes of a task's row."""
    store = Folder(folder).open_current()
    assert store is not None
    try:
        value = store._tables[Table.TASKS][key]
        assert isinstance(value, bytes)
        return value
    finally:
        store.close()


def damage(folder: Path, key: bytes, value: bytes) -> None:
    """Puts other sealed bytes under the key of a task's row."""
    store = Folder(folder).open_current()
    assert store is not None
    store._tables[Table.TASKS][key] = value
    store.close()


def reading_fails(folder: Path, match: str) -> None:
    """A reader of the task t1 gets a sentence and not a card."""
    tables = Tables(folder)
    with pytest.raises(StoreCorrupt, match=match):
        tables.task(POOL, "t1")
    tables.close()


def test_the_projector_mends_what_a_reader_found(world: World) -> None:
    """A reader that meets a damaged row says so in the folder; the running projector builds the tables anew."""
    world.write(submitted("t1"), submitted("t2"))
    world.tables.close()
    store = world.projector._store
    assert isinstance(store, Store)
    store._tables[Table.TASKS][name_key(POOL, "t1")] = b"rubbish"
    with pytest.raises(StoreCorrupt):
        world.tables.task(POOL, "t1")
    deadline = time.monotonic() + CEILING_S
    while not world.projector.status.rebuilds and time.monotonic() < deadline:
        world.projector.step(0.05)
    world.catch_up()
    assert "key b'hall-a\\x00t1'" in (world.projector.status.rebuilt or "")
    assert world.task("t1")["state"] == "WAITING"


def test_the_projector_mends_what_it_meets_itself(world: World) -> None:
    """A damaged row under an event: the tables are built anew, and the event is folded then."""
    world.write(submitted("t1"))
    store = world.projector._store
    assert isinstance(store, Store)
    store._tables[Table.TASKS][name_key(POOL, "t1")] = b"rubbish"
    world.projector._cards._pools.clear()  # type: ignore[union-attr]
    world.write(submitted("t1", kind="paint"))
    assert world.projector.status.rebuilds == 1
    assert world.task("t1")["kind"] == "paint"


@pytest.fixture(scope="module")
def lives() -> ListLog:
    """A log of some hundred lives."""
    log = ListLog()
    write_lives(log, seed=11, tasks=300)
    return log


def in_files(folder: Path, log: ListLog) -> Path:
    """Tables of `log` in files, closed; the folder of the RocksDB."""
    world = World(folder, log, begun=False)
    world.catch_up()
    store = world.projector._store
    assert isinstance(store, Store)
    store.flush()
    path = store.path
    world.close()
    return path


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_i5_damaged_files_are_built_anew_or_read_right(lives: ListLog, tmp_path: Path, pattern: str, how: str) -> None:
    """Each file of the RocksDB damaged in turn: whatever is served equals the clean tables, or nothing is served."""
    clean = replayed(lives, tmp_path / "clean")
    rng = random.Random(f"{pattern} {how}")
    path = in_files(tmp_path / "damaged", lives)
    for name in sorted(file.name for file in path.glob(pattern)):
        path = in_files(tmp_path / "damaged", lives)
        file = path / name
        if not file.exists():
            continue
        content = file.read_bytes()
        if how == "missing":
            file.unlink()
        else:
            cut = rng.randrange(len(content))
            file.write_bytes(flip(content, cut * 8 + 3) if how == "flipped" else content[:cut])
        served = digest_or_none(tmp_path / "damaged")
        assert served in (None, clean)
        projector = Projector(lives, tmp_path / "damaged")
        projector.open()
        settle(projector, served is not None)
        projector.close()
        assert digest_or_none(tmp_path / "damaged") == clean


def settle(projector: Projector, whole: bool) -> None:
    """Folds to the end; where tables are not whole, the projector must find it or be told, and build anew."""
    deadline = time.monotonic() + CEILING_S
    while not whole and not projector.status.rebuilds and time.monotonic() < deadline:
        projector.step(0.05)
    while any(here < end for here, end in projector.lag().values()):
        projector.step(0)


def digest_or_none(folder: Path) -> str | None:
    """The digest of what the tables serve, or None where they serve nothing."""
    tables = Tables(folder)
    try:
        return tables.digest()
    except StoreCorrupt:
        return None
    finally:
        tables.close()


def test_i5_a_damaged_write_ahead_log_loses_the_end_and_gets_it_again(lives: ListLog, tmp_path: Path) -> None:
    """Rows and positions end together where the WAL is cut or flipped; the projector folds the rest again."""
    clean = replayed(lives, tmp_path / "clean")
    saved = tmp_path / "events.jsonl"
    lives.save(saved)
    rng = random.Random(5)
    for number in range(6):
        folder = tmp_path / f"wal-{number}"
        with projecting(saved, folder, 16) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
        wal = max((folder / "tables-1").glob("*.log"), key=lambda file: file.stat().st_size)
        content = wal.read_bytes()
        assert len(content) > 100_000
        cut = rng.randrange(20_000, len(content) - 1_000)
        wal.write_bytes(flip(content, cut * 8) if number % 2 else content[:cut])
        again = World(folder, lives, begun=False)
        assert any(here < end for here, end in again.projector.lag().values())
        again.catch_up()
        assert again.tables.digest() == clean
        again.close()
