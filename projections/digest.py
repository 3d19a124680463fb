"""One number for all that the tables say: equal for a rebuilt projection and a clean replay of the same log (F05)."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from projections.rows import FIRST_KEY, Table, tail_number, unpack_numbers
from projections.store import Store

_EVERYTHING: Final = (FIRST_KEY, b"\xff" * 16)


def rows_digest(store: Store) -> str:
    """SHA-256 (hex) over all rows but the positions, however the batches that wrote them were cut."""
    digest = sha256()
    for piece in _pieces(store):
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return digest.hexdigest()


def _pieces(store: Store) -> Iterator[bytes]:
    for table in (Table.TASKS, Table.BODIES, Table.INDEX, Table.ENTITIES):
        yield table.value.encode()
        for key, content in store.scan(table, *_EVERYTHING):
            yield key
            yield content
    for key, content in store.scan(Table.HISTORY, *_EVERYTHING):
        yield from _flat(key, content)


def _flat(key: bytes, content: bytes) -> Iterator[bytes]:
    """Each entry of a history or offsets row by itself: how many lie in one row depends on the batches."""
    numbers = unpack_numbers(content)
    name = key[:-8]
    if name.startswith(b"O"):
        first = tail_number(key)
        for index, offset in enumerate(numbers):
            yield name + b"%d %d" % (first + index, offset)
        return
    for index in range(0, len(numbers), 2):
        yield name + b"%d %d" % numbers[index : index + 2]
