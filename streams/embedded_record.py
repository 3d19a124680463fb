"""How the embedded log stores a record: `docs/formats/embedded-log.md` in code.

Key: partition (2 bytes), offset (8). Value: version (1), CRC-32 (4) of the key and all that follows, appended_at (8),
length of the pool (4), number of headers (4); per header the lengths of name (4) and data (4); then the pool, each
header's name and data, and the value to the end. Integers are unsigned, big endian.
"""

import struct
import zlib
from typing import Final

from streams.port import Headers, LogCorrupt, Record, Topic

VERSION: Final = 1

_KEY: Final = struct.Struct(">HQ")
_START: Final = struct.Struct(">BI")
_FIXED: Final = struct.Struct(">QII")
_HEADER: Final = struct.Struct(">II")
_FIXED_END: Final = _START.size + _FIXED.size


def record_key(partition: int, offset: int) -> bytes:
    """The key under which a record is stored; keys of a partition sort by offset."""
    return _KEY.pack(partition, offset)


def record_offset(key: bytes) -> int:
    """The offset that a key names."""
    return int.from_bytes(key[2:], "big")


def encode_record(key: bytes, pool: str, value: bytes, headers: Headers, appended_at: int) -> bytes:
    """A record as stored under `key`. `appended_at` in ms."""
    name = pool.encode()
    parts = [_FIXED.pack(appended_at, len(name), len(headers))]
    tail = [name]
    for header, data in headers:
        word = header.encode()
        parts.append(_HEADER.pack(len(word), len(data)))
        tail += (word, data)
    parts += tail
    parts.append(value)
    body = b"".join(parts)
    return _START.pack(VERSION, zlib.crc32(body, zlib.crc32(key))) + body


def decode_record(topic: Topic, partition: int, key: bytes, stored: bytes) -> Record:
    """The record stored under `key`. Raises LogCorrupt where it is not what was written."""
    offset = record_offset(key)
    try:
        version, checksum = _START.unpack_from(stored)
        if checksum != zlib.crc32(stored[_START.size :], zlib.crc32(key)) or version != VERSION:
            raise corrupt(topic, partition, offset)
        appended_at, pool_length, headers_count = _FIXED.unpack_from(stored, _START.size)
        at = _FIXED_END + headers_count * _HEADER.size
        pool = stored[at : at + pool_length].decode()
        at += pool_length
        headers = []
        for i in range(headers_count):
            name_length, data_length = _HEADER.unpack_from(stored, _FIXED_END + i * _HEADER.size)
            name = stored[at : at + name_length].decode()
            at += name_length
            headers.append((name, stored[at : at + data_length]))
            at += data_length
        return Record(topic, partition, offset, pool, stored[at:], tuple(headers), appended_at)
    except (struct.error, UnicodeDecodeError):
        raise corrupt(topic, partition, offset) from None


def appended_at_of(stored: bytes) -> int:
    """When a stored record was appended (ms), without looking at the rest of it."""
    return int.from_bytes(stored[_START.size : _START.size + 8], "big")


def corrupt(topic: Topic, partition: int, offset: int) -> LogCorrupt:
    """The fault of a record that is damaged or missing."""
    return LogCorrupt(
        f"The record of {topic.value}, partition {partition}, offset {offset} is damaged or missing: restore the"
        " log from a backup."
    )
