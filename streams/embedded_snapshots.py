"""Snapshots in the embedded log: chunks first, then the manifest that makes them one; the best two stay.

Keys: a letter (m manifest, c chunk), partition (2 bytes), position (8), length of the incarnation (4), incarnation, and
for a chunk its number (4). A manifest is a CRC-32 of its key and the JSON that follows; that holds time and the CRC-32
of each chunk.
"""

import json
import zlib
from typing import Final

from rocksdict import Rdict, WriteBatch, WriteOptions

from streams.embedded_store import Store, write_gently
from streams.port import CHUNK_BYTES_MAX, RecordTooLarge, Snapshot

KEPT: Final = 2
_MANIFEST: Final = b"m"
_CHUNK: Final = b"c"
_LAST: Final = b"\xff" * 5
"""Behind the number of any chunk."""


def keep_snapshot(store: Store, partition: int, snapshot: Snapshot) -> None:
    """Writes a snapshot, then lets all go but the two of the highest positions. Raises LogFault, RocksDB's faults.

    So a former owner that was paused, and whose position is lower, takes nothing away from the newer one.
    """
    if any(len(chunk) > CHUNK_BYTES_MAX for chunk in snapshot.chunks):
        raise RecordTooLarge(f"A chunk of a snapshot has at most {CHUNK_BYTES_MAX} bytes; make more of them.")
    with store.used():
        name = _name(partition, snapshot)
        _write_chunks(store, name, snapshot)
        known = {*_names(store.snapshots, _MANIFEST, partition), name}
        kept = sorted(known, key=_position, reverse=True)[:KEPT]
        left = [chunks for chunks in _names(store.snapshots, _CHUNK, partition) if chunks not in kept]

        def fill() -> WriteBatch:
            batch = WriteBatch(raw_mode=True)
            batch.put(_MANIFEST + name, _manifest(_MANIFEST + name, snapshot), store.snapshots_handle)
            for old in known - {*kept}:
                batch.delete(_MANIFEST + old, store.snapshots_handle)
            for old in left:
                batch.delete_range(_CHUNK + old, _CHUNK + old + _LAST, store.snapshots_handle)
            return batch

        write_gently(store.db, fill, WriteOptions())
        store.db.flush_wal(True)


def find_snapshots(store: Store, partition: int) -> tuple[list[Snapshot], int]:
    """Good snapshots, highest position first, and how many were bad."""
    names = sorted(_names(store.snapshots, _MANIFEST, partition), key=_position, reverse=True)
    found = [_read(store.snapshots, name) for name in names]
    good = [snapshot for snapshot in found if snapshot]
    return good, len(found) - len(good)


def _write_chunks(store: Store, name: bytes, snapshot: Snapshot) -> None:
    # Not through the write-ahead log: readers in other processes would load it all, and the flush makes it durable.
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[assignment,method-assign]  # a property, whatever the stubs say
    for number, chunk in enumerate(snapshot.chunks):

        def fill(key: bytes = _CHUNK + name + number.to_bytes(4, "big"), chunk: bytes = chunk) -> WriteBatch:
            batch = WriteBatch(raw_mode=True)
            batch.put(key, chunk, store.snapshots_handle)
            return batch

        write_gently(store.db, fill, options)
    store.snapshots.flush(True)


def _name(partition: int, snapshot: Snapshot) -> bytes:
    incarnation = snapshot.incarnation.encode()
    numbers = partition.to_bytes(2, "big") + snapshot.position.to_bytes(8, "big") + len(incarnation).to_bytes(4, "big")
    return numbers + incarnation


def _position(name: bytes) -> bytes:
    return name[2:]


def _manifest(key: bytes, snapshot: Snapshot) -> bytes:
    fields = {"made_at": snapshot.made_at, "chunks": [zlib.crc32(chunk) for chunk in snapshot.chunks]}
    body = json.dumps(fields).encode()
    return zlib.crc32(body, zlib.crc32(key)).to_bytes(4, "big") + body


def _names(family: Rdict, kind: bytes, partition: int) -> list[bytes]:
    """The names of all snapshots of a partition that have something of this kind."""
    names: list[bytes] = []
    prefix = kind + partition.to_bytes(2, "big")
    found = family.iter()
    found.seek(prefix)
    while (key := found.key()) is not None and key.startswith(prefix):
        name = key[1:] if kind == _MANIFEST else key[1:-4]
        names.append(name)
        found.seek(kind + name + _LAST)
    found.status()
    return names


def _read(family: Rdict, name: bytes) -> Snapshot | None:
    """The snapshot of this name, or None where it is not what was written."""
    key = _MANIFEST + name
    stored = family.get(key)
    if stored is None or int.from_bytes(stored[:4], "big") != zlib.crc32(stored[4:], zlib.crc32(key)):
        return None
    fields = json.loads(stored[4:])
    chunks: list[bytes] = []
    for number, checksum in enumerate(fields["chunks"]):
        chunk = family.get(_CHUNK + name + number.to_bytes(4, "big"))
        if chunk is None or zlib.crc32(chunk) != checksum:
            return None
        chunks.append(chunk)
    position = int.from_bytes(name[2:10], "big")
    return Snapshot(position, name[14:].decode(), fields["made_at"], tuple(chunks))
