"""The log port's own rules: which partition a pool lies on, and a record's headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.port import NoSuchPartition, Record, Topic, murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    """The values of Apache Kafka's own test (`UtilsTest.testMurmur2`)."""
    assert murmur2(data) == signed % 2**32


@given(st.text(min_size=1, max_size=40), st.integers(1, 200))
def test_every_pool_has_a_partition(pool: str, partitions: int) -> None:
    """Whatever the name, it lies on one of the partitions, always the same."""
    if pool.startswith("_log-"):
        return
    assert 0 <= partition_of(pool, partitions) < partitions
    assert partition_of(pool, partitions) == partition_of(pool, partitions)


def test_a_reserved_pool_lies_on_the_partition_it_names() -> None:
    """The one exception to the hash; a name that only looks like it is hashed."""
    assert [partition_of(f"_log-{p}", 12) for p in range(12)] == list(range(12))
    for looks in ("_log-x", "_log-\u00b2", "_log-"):
        assert partition_of(looks, 12) == (murmur2(looks.encode()) & 0x7FFFFFFF) % 12
    with pytest.raises(NoSuchPartition, match="no pool _log-12: this log has partitions 0 to 11"):
        partition_of("_log-12", 12)


def test_a_header_is_found_by_name() -> None:
    """The first of that name, or None."""
    record = Record(Topic.EVENTS, 0, 0, "p", b"", (("a", b"1"), ("b", b"2"), ("a", b"3")), 0)
    assert (record.header("a"), record.header("b"), record.header("c")) == (b"1", b"2", None)
