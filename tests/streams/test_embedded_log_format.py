"""What the embedded log stores: records byte for byte, damage found, the folder's layout."""

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.settings import FORMAT
from streams.embedded_log import EmbeddedLog
from streams.embedded_reader import EmbeddedReader
from streams.embedded_record import appended_at_of, decode_record, encode_record, record_key, record_offset
from streams.port import Headers, LogCorrupt, LogMisconfigured, Output, Topic
from tests.streams.contract import own, put
from tests.streams.test_embedded_log import raw

HEADERS = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=40)), max_size=4).map(tuple)


@given(st.text(max_size=50), st.binary(max_size=300), HEADERS, st.integers(0, 2**63), st.integers(0, 2**40))
def test_a_record_comes_back_as_it_was(pool: str, value: bytes, headers: Headers, at: int, offset: int) -> None:
    """Encoding and decoding are each other's reverse; time and offset can be read alone."""
    key = record_key(7, offset)
    stored = encode_record(key, pool, value, headers, at)
    record = decode_record(Topic.EVENTS, 7, key, stored)
    assert (record.key, record.value, record.headers, record.appended_at) == (pool, value, headers, at)
    assert (record.partition, record.offset, record_offset(key)) == (7, offset, offset)
    assert appended_at_of(stored) == at


@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    """Wherever it is: version, checksum, lengths, pool, headers or value; a cut end and a foreign key as well."""
    key = record_key(1, 5)
    stored = encode_record(key, "hall-a", b'{"id":1}', (("type", b"TaskAssigned.v1"),), 1_700_000_000_000)
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    spoilt = bytearray(stored)
    spoilt[bit // 8] ^= 1 << bit % 8
    cut = stored[: data.draw(st.integers(0, len(stored) - 1))]
    for foreign, damaged in ((key, bytes(spoilt)), (key, cut), (record_key(1, 6), stored)):
        with pytest.raises(LogCorrupt, match=r"events, partition 1, offset [56] "):
            decode_record(Topic.EVENTS, 1, foreign, damaged)


def test_the_format_is_as_documented(tmp_path: Path) -> None:
    """Byte for byte what `docs/formats/embedded-log.md` says: it is read for ever."""
    with_clock = EmbeddedLog.open(tmp_path / "log", partitions=2, log_id="the-log", clock=lambda: 0x0102030405)
    _, seat, _ = own(with_clock, 1)
    put(with_clock, Topic.COMMANDS, "_log-1", [b"VALUE"], (("to", b"g"),))
    seat.commit([Output(Topic.EVENTS, "pool", b"E")], 3, 4)
    with_clock.close()
    assert (tmp_path / "log" / "layout").read_text() == "Fleetlog embedded log, layout 1\n"
    with raw(tmp_path / "log") as db:
        commands, meta = db.get_column_family("commands"), db.get_column_family("meta")
        stored = dict(commands.items())
        key = b"\0\1" + b"\0" * 8
        assert list(stored) == [key]
        assert stored[key][0] == 1
        assert int.from_bytes(stored[key][1:5], "big") == zlib.crc32(key + stored[key][5:])
        assert stored[key][5:] == (
            b"\0\0\0\1\2\3\4\5" + b"\0\0\0\6" + b"\0\0\0\1" + b"\0\0\0\2\0\0\0\1" + b"_log-1" + b"to" + b"g" + b"VALUE"
        )
        assert json.loads(meta[b"log"] or b"") == {"log_id": "the-log", "format": 1, "partitions": 2}
        assert meta[b"inputs\0\1"] == (3).to_bytes(8, "big") + (4).to_bytes(8, "big")
        assert int.from_bytes(meta[b"group"] or b"", "big") == 3
        commands.close()
        meta.close()


def test_a_reader_stops_at_a_format_that_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in another process finds a raised format; an older one stops with a sentence."""
    with monkeypatch.context() as newer:
        newer.setattr("streams.log_format.FORMAT", FORMAT + 1)
        log = EmbeddedLog.open(tmp_path / "log", partitions=1, sync=False)
        log.raise_format(FORMAT + 1)
        log.close()
        reader = EmbeddedReader(tmp_path / "log")
        assert (reader.log_id, reader.format) == (log.log_id, FORMAT + 1)
        reader.close()
    with pytest.raises(LogMisconfigured, match=f"has format {FORMAT + 1}, this Fleetlog knows formats up to {FORMAT}"):
        EmbeddedReader(tmp_path / "log")
