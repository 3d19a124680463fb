"""Inputs on a genuine broker: bounded memory, nothing lost by pausing, reports before commands, damaged inputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from streams import kafka_log_seat
from streams.kafka_log_member import Member
from streams.kafka_log_seat import KafkaSeat
from streams.port import LogCorrupt, LogFault, LogUnavailable, Output, Record, RecordTooLarge, Topic
from tests.streams.contract import CEILING_S, Acks, Members, own, pool_on, put, read, values
from tests.support.broker import Broker
from tests.support.kafka_owners import wait_until
from tests.support.kafka_site import KafkaSite, flip_bit, held
from tests.support.proxy import KafkaProxy


@pytest.fixture
def site(broker: Broker, proxy: KafkaProxy) -> Iterator[KafkaSite]:
    site = KafkaSite(broker, proxy, partitions=1)
    yield site
    site.close()


def lanes_of(seat: object) -> tuple[kafka_log_seat.Lane, ...]:
    assert isinstance(seat, KafkaSeat)
    return seat.lanes


def test_an_owner_that_is_slow_has_bounded_memory_and_gets_everything(
    site: KafkaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more inputs than may wait: the partition is paused and goes on, none is lost, repeated or out of order."""
    monkeypatch.setattr(kafka_log_seat, "LANE_RECORDS_MAX", 1_000)
    log = site.open()
    count = 30_000
    written: list[int] = []
    for number in range(count):
        for topic in (Topic.COMMANDS, Topic.REPORTS) if number % 10 == 0 else (Topic.COMMANDS,):
            log.append(topic, "p", f"{number}".encode(), (), lambda fault, offset: written.append(offset))
    wait_until(lambda: len(written) == count + count // 10, "all to be written")
    _, seat, _ = own(log, 0)
    most = 0
    commands: list[Record] = []
    reports: list[Record] = []
    give_up = time.monotonic() + CEILING_S
    while len(commands) < count or len(reports) < count // 10:
        fetched = seat.fetch(300, 1.0)
        commands += fetched.commands
        reports += fetched.reports
        most = max([most, *(len(lane.waiting) for lane in lanes_of(seat))])
        assert time.monotonic() < give_up, (len(commands), len(reports))
    assert values(commands) == [f"{number}".encode() for number in range(count)]
    assert values(reports) == [f"{number}".encode() for number in range(0, count, 10)]
    # What one poll hands out may come on top of the bound.
    assert most <= 1_000 + 2_000


def test_large_inputs_are_bounded_by_bytes(site: KafkaSite) -> None:
    """Records of 800 KB: at most 16 MB of them wait, however few they are."""
    log = site.open()
    put(log, Topic.COMMANDS, pool_on(0, 1), (bytes(800_000) for _ in range(60)))
    _, seat, _ = own(log, 0)
    lane = lanes_of(seat)[1]
    wait_until(lambda: lane.paused, "the partition to be paused")
    assert lane.queued_bytes <= kafka_log_seat.LANE_BYTES_MAX + 33 * 1024 * 1024
    got = 0
    give_up = time.monotonic() + CEILING_S
    while got < 60:
        got += len(seat.fetch(5, 1.0).commands)
        assert time.monotonic() < give_up, got
    assert lane.queued_bytes == 0


def test_a_second_take_over_fetches_from_the_committed_positions_again(site: KafkaSite) -> None:
    """What was fetched and not committed comes again, in order, however much of it was under way."""
    log = site.open()
    put(log, Topic.COMMANDS, pool_on(0, 1), (f"{i}".encode() for i in range(5_000)))
    _, seat, taken = own(log, 0)
    position = taken.commands_next
    for _ in range(5):
        wait_until(lambda: len(lanes_of(seat)[1].waiting) > 500, "commands")
        fetched = seat.fetch(200, CEILING_S).commands
        assert fetched[0].offset == position
        seat.commit([], taken.reports_next, fetched[99].offset + 1)
        assert seat.take_over().commands_next == fetched[99].offset + 1
        seat.start()
        position = fetched[99].offset + 1


def test_both_inputs_of_a_partition_have_the_same_owner(broker: Broker, proxy: KafkaProxy) -> None:
    """Through a member that joins and one that leaves: reports and commands move together, each has one owner."""
    site = KafkaSite(broker, proxy, partitions=3)
    log = site.open()
    first = Members(log)
    wait_until(lambda: assigned(first) == {Topic.REPORTS: {0, 1, 2}, Topic.COMMANDS: {0, 1, 2}}, "all three")
    second = Members(log, "second")

    def shared() -> bool:
        ours, theirs = assigned(first), assigned(second)
        assert ours[Topic.REPORTS] == ours[Topic.COMMANDS]
        assert theirs[Topic.REPORTS] == theirs[Topic.COMMANDS]
        return bool(theirs[Topic.REPORTS]) and ours[Topic.REPORTS] | theirs[Topic.REPORTS] == {0, 1, 2}

    wait_until(shared, "the two to share")
    second.ownership.close()
    wait_until(lambda: assigned(first) == {Topic.REPORTS: {0, 1, 2}, Topic.COMMANDS: {0, 1, 2}}, "all three again")
    assert set(first.seats) == {0, 1, 2}
    site.close()


def assigned(members: Members) -> dict[Topic, set[int]]:
    """The partitions of each input that a member reads, asked between two polls of the group."""
    found: list[tuple[str, int]] = []
    assert isinstance(members.ownership, Member)
    done = members.ownership.ask(
        lambda consumer: found.extend((one.topic, one.partition) for one in consumer.assignment())
    )
    assert done.wait(CEILING_S)
    inputs = (Topic.REPORTS, Topic.COMMANDS)
    return {topic: {partition for name, partition in found if name.endswith(f".{topic}")} for topic in inputs}


def test_nothing_is_fetched_before_the_start(site: KafkaSite) -> None:
    """Between take-over and start the inputs wait at the broker."""
    log = site.open()
    put(log, Topic.COMMANDS, pool_on(0, 1), [b"a"])
    members = Members(log)
    seat = members.seat(0)
    seat.take_over()
    assert seat.fetch(10, 0.5).commands == []
    seat.start()
    assert values(seat.fetch(10, CEILING_S).commands) == [b"a"]


def test_a_damaged_input_stops_the_partition_behind_what_came_before(broker: Broker, proxy: KafkaProxy) -> None:
    """The record before it is fetched; then LogCorrupt, again and again; nothing behind it is decided before it."""
    site = KafkaSite(broker, proxy, partitions=1, settings={"batch.num.messages": "1"})
    log = site.open()
    put(log, Topic.COMMANDS, pool_on(0, 1), [b"good" * 50, b"damaged" * 50, b"behind" * 50])
    flip_bit(site.segments("commands-0"), b"damaged" * 50)
    _, seat, _ = own(log, 0)
    assert values(seat.fetch(10, CEILING_S).commands) == [b"good" * 50]
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="commands partition 0"):
            seat.fetch(10, CEILING_S)
    site.close()


def test_records_of_others_come_as_they_are(site: KafkaSite) -> None:
    """No key, a key that is no text, no value, a header without value: for the owner to quarantine, never a crash."""
    log = site.open()
    producer = site.clients.keeper()
    name = site.clients.topic(Topic.COMMANDS)
    producer.produce(name, b"no key", None, 0)
    producer.produce(name, b"odd key", b"\xff\xfe", 0)
    producer.produce(name, None, "no value", 0)
    producer.produce(name, b"header", "k", 0, headers=[("empty", None)])
    producer.flush()
    _, seat, _ = own(log, 0)
    got: list[Record] = []
    while len(got) < 4:
        got += seat.fetch(10, CEILING_S).commands
    assert [(record.key, record.value) for record in got] == [
        ("", b"no key"),
        ("\\xff\\xfe", b"odd key"),
        ("no value", b""),
        ("k", b"header"),
    ]
    assert got[3].header("empty") is None


# ---- appending ----


def test_what_is_appended_while_the_broker_is_away_arrives_in_order(site: KafkaSite) -> None:
    """Connections break and come back: every record once, in the order of the calls."""
    log = site.open()
    put(log, Topic.REPORTS, pool_on(0, 1), [b"before"])
    acks = Acks()
    site.proxy.cut()
    for number in range(500):
        log.append(Topic.REPORTS, pool_on(0, 1), f"{number}".encode(), (), acks)
    site.proxy.restore()
    assert [fault for fault, _ in acks.wait(500) if fault] == []
    assert values(read(log, Topic.REPORTS, 0)) == [b"before", *(f"{i}".encode() for i in range(500))]


def test_closing_answers_every_record(site: KafkaSite) -> None:
    """What cannot be written any more is answered as not written; nothing waits for ever."""
    log = site.open()
    acks = Acks()
    with held(site.proxy):
        log.append(Topic.REPORTS, pool_on(0, 1), b"x", (), acks)
        log.close()
    ((fault, offset),) = acks.wait(1)
    assert isinstance(fault, LogUnavailable)
    assert offset == -1
    with pytest.raises(LogFault, match="closed"):
        log.append(Topic.REPORTS, pool_on(0, 1), b"x", (), acks)


def test_a_producer_that_lost_its_numbering_is_replaced(site: KafkaSite) -> None:
    """Fatal for the idempotent producer: its records are answered, the next ones go through another."""
    log = site.open()
    put(log, Topic.REPORTS, pool_on(0, 1), [b"before"])
    former = log._appender._producer
    log._appender._failed = former
    wait_until(lambda: log._appender._producer is not former, "another producer")
    put(log, Topic.REPORTS, pool_on(0, 1), [b"after"])
    assert values(read(log, Topic.REPORTS, 0)) == [b"before", b"after"]


def test_a_record_that_the_topic_refuses_is_answered(site: KafkaSite) -> None:
    """Too large by one byte is refused at once, the largest is taken; see also the contract."""
    log = site.open()
    acks = Acks()
    with pytest.raises(RecordTooLarge):
        log.append(Topic.REPORTS, "p", bytes(1_048_576 - 160), (), acks)
    put(log, Topic.REPORTS, "p", [bytes(1_048_576 - 161)])


def test_a_lone_batch_of_many_outputs_keeps_their_order(site: KafkaSite) -> None:
    """20,000 outputs in one transaction: offsets and order as given."""
    log = site.open()
    _, seat, taken = own(log, 0)
    outputs = [Output(Topic.EVENTS, f"pool-{i % 7}", f"{i}".encode() * 20) for i in range(20_000)]
    offsets = seat.commit(outputs, taken.reports_next, taken.commands_next)
    events = read(log, Topic.EVENTS, 0)
    assert [event.offset for event in events] == offsets
    assert values(events) == [output.value for output in outputs]


def test_waking_and_leaving_from_other_threads(site: KafkaSite) -> None:
    """`wake` ends a fetch, closing the log ends it with SeatLost."""
    log = site.open()
    _, seat, _ = own(log, 0)
    ended: list[object] = []

    def wait() -> None:
        try:
            ended.append(seat.fetch(10, 10 * CEILING_S))
            seat.fetch(10, 10 * CEILING_S)
        except LogFault as fault:
            ended.append(fault)

    thread = threading.Thread(target=wait)
    thread.start()
    seat.wake()
    wait_until(lambda: len(ended) == 1, "the fetch to end")
    log.close()
    thread.join(CEILING_S)
    assert type(ended[1]).__name__ == "SeatLost"
