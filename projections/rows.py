"""Keys and values of the rows: how the tables lie in RocksDB.

A name never holds a NUL, so NUL ends it inside a key; numbers are 8 bytes, big-endian, so that keys sort by them.
Every value begins with a CRC-32 over key and content: a flipped bit or a value under the wrong key is found.
"""

from enum import StrEnum
from struct import Struct
from typing import Any, Final
from zlib import crc32

from pydantic_core import from_json, to_json

_U64: Final = Struct(">Q")
_TAIL: Final = Struct(">QQ")
_CRC: Final = Struct("<I")
SEALED_BYTES_MIN: Final = 4


class Table(StrEnum):
    """The column families. `meta` is RocksDB's default one: format, positions."""

    META = "default"
    TASKS = "tasks"
    BODIES = "bodies"
    INDEX = "index"
    ENTITIES = "entities"
    HISTORY = "history"


class Entity(StrEnum):
    """What lies in `entities`, by the first byte of the key."""

    POOL = "P"
    PROGRESS = "N"
    ROBOT = "R"
    TARGET = "T"
    KIND = "K"
    SCHEDULE = "S"
    LIMIT = "L"
    REQUIREMENT = "Q"
    KIND_MINUTE = "M"
    ROBOT_STEP = "B"


class Index(StrEnum):
    """What lies in `index`, by the first byte of the key; the value is always the task's id.

    STATE: pool, state code and kind. DELAYED: pool and kind of waiting tasks that became or become eligible later
    than they were submitted, by that instant. ENDED: pool, by the instant of the end (terminal states alone).
    """

    STATE = "S"
    DELAYED = "E"
    ROBOT = "R"
    TARGET = "T"
    ENDED = "X"


STATE_CODES: Final[dict[str, str]] = {
    "WAITING": "W",
    "ASSIGNED": "A",
    "RUNNING": "R",
    "LOST": "L",
    "COMPLETED": "C",
    "CANCELLED": "K",
    "DEAD": "D",
    "DISCARDED": "G",
}
"""State -> its code in the index."""

FORMAT_KEY: Final = b"format"
STAMP_KEY: Final = b"\0stamp"
"""In each table: the number of the WriteBatch that wrote last. Equal in all, or files are missing."""
FIRST_KEY: Final = b"\1"
"""The first key that is not the stamp's."""


def seal(key: bytes, content: bytes) -> bytes:
    """The value to store under `key`: checksum and content."""
    return _CRC.pack(crc32(content, crc32(key))) + content


def unseal(key: bytes, value: bytes) -> bytes | None:
    """The content of a stored value, or None where the checksum is wrong."""
    content = value[SEALED_BYTES_MIN:]
    if len(value) < SEALED_BYTES_MIN or _CRC.unpack_from(value)[0] != crc32(content, crc32(key)):
        return None
    return content


def dump(card: Any) -> bytes:
    """The content of a row that is JSON."""
    return to_json(card)


def load(content: bytes) -> Any:
    """The JSON of a row."""
    return from_json(content)


def name_key(pool: str, name: str) -> bytes:
    """The key of a task's card."""
    return f"{pool}\0{name}".encode()


def body_key(pool: str, task: str, letter: str, number: int = 0) -> bytes:
    """The key of one body of a task: what it is by its letter, for checkpoints the number."""
    return f"{pool}\0{task}\0{letter}".encode() + _U64.pack(number)


def entity_key(entity: Entity, pool: str, name: str = "") -> bytes:
    """The key of an entity; pools and their progress have no name of their own."""
    return f"{entity.value}{pool}\0{name}".encode()


def index_range(index: Index, pool: str, group: str) -> bytes:
    """What all index keys of a group begin with; `tail_key` follows, so that they sort by it."""
    return f"{index.value}{pool}\0{group}\0".encode()


def tail_key(instant: int, sequence: int) -> bytes:
    """The end of an index key."""
    return _TAIL.pack(max(instant, 0), max(sequence, 0))


def index_tail(key: bytes) -> tuple[int, int]:
    """(instant, submission sequence) of an index key."""
    instant, sequence = _TAIL.unpack(key[-16:])
    return instant, sequence


def history_key(pool: str, task: str, sequence: int) -> bytes:
    """The key of a piece of a task's history that begins with `sequence`."""
    return f"H{pool}\0{task}\0".encode() + _U64.pack(sequence)


def history_range(pool: str, task: str) -> bytes:
    """What all history keys of a task begin with."""
    return f"H{pool}\0{task}\0".encode()


def offsets_key(pool: str, sequence: int) -> bytes:
    """The key of a run of offsets, the first of which belongs to `sequence`."""
    return f"O{pool}\0".encode() + _U64.pack(sequence)


def offsets_range(pool: str) -> bytes:
    """What all keys of a pool's offsets begin with."""
    return f"O{pool}\0".encode()


def tail_number(key: bytes) -> int:
    """The number that a history or offsets key ends with."""
    number: int = _U64.unpack(key[-8:])[0]
    return number


def pack_numbers(numbers: list[int]) -> bytes:
    """Numbers of 8 bytes each."""
    return Struct(f">{len(numbers)}Q").pack(*numbers)


def unpack_numbers(content: bytes) -> tuple[int, ...]:
    """The numbers that `pack_numbers` packed."""
    return Struct(f">{len(content) // 8}Q").unpack(content)


def next_key(partition: int) -> bytes:
    """The key of a partition's position."""
    return b"next" + partition.to_bytes(4, "big")


def after(prefix: bytes) -> bytes:
    """The first key behind all keys that begin with `prefix`, which must not end in 0xFF bytes alone."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,))
