"""What the calls of a transaction may say, provoked on a genuine broker, and that each batch is in the log once.

One test a row of the error table: through a proxy that loses, holds or changes answers, or by direct calls.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from streams import kafka_log_clients, kafka_log_commit, kafka_log_hanging, kafka_log_offsets
from streams.kafka_log_commit import Transactions, Verdict, verdict
from streams.kafka_log_seat import KafkaSeat
from streams.port import (
    Fenced,
    LogFault,
    LogMisconfigured,
    LogUnavailable,
    Output,
    RecordTooLarge,
    SeatLost,
    TakenOver,
    Topic,
)
from tests.streams.contract import CEILING_S, Members, read, values
from tests.support.broker import Broker
from tests.support.hanging import Hanging, checks_of_transactions_off
from tests.support.kafka_owners import wait_until
from tests.support.kafka_settings import TOPIC, change_settings
from tests.support.kafka_site import KafkaSite
from tests.support.proxy import Api, KafkaProxy, Way

REQUEST_TIMED_OUT, UNKNOWN, PRODUCER_ID_MAPPING, INVALID_TXN_STATE, TRANSACTIONAL_ID_AUTHORIZATION = 7, -1, 49, 48, 53
COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS = 14, 15, 16, 51


class Table:
    """One owned partition behind a proxy, and what was committed to it."""

    def __init__(self, broker: Broker) -> None:
        self.proxy: KafkaProxy = broker.proxies[1]
        self.site = KafkaSite(broker, self.proxy, partitions=1)
        self.log = self.site.open()
        self.members = Members(self.log)
        self.pool = ThreadPoolExecutor(4)
        self.number = 0
        self.committed: list[bytes] = []
        self.patience_s = 1.5

    def is_patient(self) -> None:
        """A commit counts as unanswered after long only: what is mended inside may take its time."""
        self.patience_s = self.seat._transactions._patience_s = CEILING_S

    def begin(self) -> None:
        """An ordinary link, and the seat taken over anew."""
        self.proxy.restore()
        wait_until(lambda: not self.members.seat(0).lost(), "a seat")
        seat = self.members.seat(0)
        assert isinstance(seat, KafkaSeat)
        self.seat = seat
        self.seat._transactions._patience_s = self.patience_s
        self.taken: TakenOver = self.seat.take_over()
        self.committed = values(read(self.log, Topic.EVENTS, 0))

    def batch(self) -> list[Output]:
        """Two events and an outcome that never were before."""
        self.number += 1
        name = f"batch {self.number}".encode()
        return [
            Output(Topic.EVENTS, "p", name + b"a", (("hash", bytes(32)),)),
            Output(Topic.EVENTS, "p", name + b"b"),
            Output(Topic.OUTCOMES, "p", name),
        ]

    def commit(self, batch: list[Output] | None = None) -> list[int]:
        """Commits a batch (as nobody's inputs: the positions stay)."""
        return self.seat.commit(batch or self.batch(), self.taken.reports_next, self.taken.commands_next)

    def later(self, batch: list[Output] | None = None) -> Future[list[int]]:
        """The same from a thread."""
        return self.pool.submit(self.commit, batch)

    def require_once(self, offsets: list[int], number: int | None = None) -> None:
        """The batch is in the log once, at these offsets, behind all that was there before."""
        name = f"batch {number or self.number}".encode()
        events = read(self.log, Topic.EVENTS, 0)
        assert values(events) == [*self.committed, name + b"a", name + b"b"]
        assert [event.offset for event in events[-2:]] == offsets
        assert values(read(self.log, Topic.OUTCOMES, 0)).count(name) == 1
        self.committed = values(events)

    def require_nothing(self) -> None:
        """Nothing was added."""
        assert values(read(self.log, Topic.EVENTS, 0)) == self.committed
        assert f"batch {self.number}".encode() not in values(read(self.log, Topic.OUTCOMES, 0))

    def require_goes_on(self) -> None:
        """The next batch is written as if nothing had been."""
        self.require_once(self.commit())

    @property
    def producer(self) -> Producer:
        """The seat's own producer."""
        assert self.seat._transactions._producer is not None
        return self.seat._transactions._producer


@pytest.fixture(scope="module")
def one_table(broker: Broker) -> Iterator[Table]:
    table = Table(broker)
    yield table
    table.proxy.restore()
    table.members.ownership.close()
    table.pool.shutdown()
    table.site.close()


@pytest.fixture
def table(one_table: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setattr(kafka_log_commit, "CALL_S", 0.5)
    monkeypatch.setattr(kafka_log_commit, "OFFSETS_S", 2.0)
    one_table.patience_s = 1.5
    one_table.begin()
    caplog.set_level(logging.INFO, "fleetlog")
    caplog.clear()
    yield one_table
    one_table.proxy.restore()


def sent_again(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a try of a batch was given up."""
    return any("committing partition" in record.getMessage() for record in caplog.records)


def looked(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the end of events was asked what had happened."""
    return any("looking" in record.getMessage() for record in caplog.records)


class Interceptor:
    """Sees the frames of a proxy before it passes them on; `act` gives what is passed instead (None: lost)."""

    def __init__(self, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Api, Way]] = []
        self.act: Callable[[Api, Way, Any, bytes], bytes | None] = lambda api, way, link, piece: piece
        passing = proxy.let_through

        def let_through(link: Any, way: Way, piece: bytes) -> bytes | None:
            number = int.from_bytes(piece[8:12] if way == "requests" else piece[4:8], "big")
            api = struct.unpack_from(">h", piece, 4)[0] if way == "requests" else link.asked.get(number, (-1, 0))[0]
            passed = passing(link, way, piece)
            if passed is None or api not in list(Api):
                return passed
            self.seen.append((Api(api), way))
            return self.act(Api(api), way, link, passed)

        monkeypatch.setattr(proxy, "let_through", let_through)


# ---- mended inside ----


@pytest.mark.parametrize(
    "code", [COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS]
)
def test_passing_codes_are_mended_inside(table: Table, caplog: pytest.LogCaptureFixture, code: int) -> None:
    """The coordinator moves or loads: librdkafka asks again, nobody notices."""
    table.is_patient()
    table.proxy.answer_with(Api.END_TXN, code)
    table.require_once(table.commit())
    assert not sent_again(caplog)
    assert not looked(caplog)


def test_a_connection_lost_once_is_mended_inside(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """Connections break before the commit and can be made again at once."""
    table.is_patient()
    table.commit()
    table.begin()
    table.proxy.cut()
    table.proxy.restore()
    table.require_once(table.commit())
    assert not looked(caplog)


def test_a_late_answer_is_waited_for_by_the_same_call(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """No answer for longer than one call waits: the same call is made again, nothing else."""
    table.is_patient()
    table.proxy.hold("answers")
    result = table.later()
    with pytest.raises(TimeoutError):
        result.result(3 * kafka_log_commit.CALL_S)
    table.proxy.restore()
    table.require_once(result.result(CEILING_S))
    assert not sent_again(caplog)
    assert not looked(caplog)


def test_a_commit_whose_records_are_not_flushed_is_called_again(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing reaches the broker for longer than one call waits."""
    table.is_patient()
    table.proxy.hold()
    result = table.later()
    with pytest.raises(TimeoutError):
        result.result(3 * kafka_log_commit.CALL_S)
    table.proxy.restore()
    table.require_once(result.result(CEILING_S))
    assert not looked(caplog)


# ---- the outcome is unknown ----


def test_an_unanswered_commit_is_looked_up_after_fencing(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The broker committed, its answer is lost: a new producer, then a look; the batch is not sent again."""
    table.proxy.lose_answers(Api.END_TXN)
    table.require_once(table.commit())
    assert looked(caplog)
    table.require_goes_on()


def test_a_commit_that_arrives_late_counts_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit waits in the network while the new producer is made: whichever comes first, it counts once."""
    seen = Interceptor(table.proxy, monkeypatch)

    def hold_what_follows(api: Api, way: Way, link: Any, piece: bytes) -> bytes:
        if (api, way) == (Api.TXN_OFFSET_COMMIT, "answers"):
            table.proxy._lanes["requests"].open.clear()
        return piece

    seen.act = hold_what_follows
    result = table.later()
    wait_until(lambda: looked(caplog), "the commit to count as unanswered")
    threading.Event().wait(1.5)
    seen.act = lambda api, way, link, piece: piece
    table.proxy.restore()
    table.require_once(result.result(CEILING_S))
    table.require_goes_on()


def test_a_commit_that_arrives_after_the_look_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the look comes after the fencing: a look before it finds nothing, and then the commit comes all the same."""
    seen = Interceptor(table.proxy, monkeypatch)
    late: list[tuple[Any, bytes]] = []

    def keep_the_first(api: Api, way: Way, link: Any, piece: bytes) -> bytes | None:
        if (api, way) != (Api.END_TXN, "requests") or late:
            return piece
        late.append((link, piece))
        return None

    look = Transactions._look

    def look_then_deliver(transactions: Transactions, batch: Any) -> list[int] | None:
        found = look(transactions, batch)
        for link, commit in late:
            table.proxy._loop.call_soon_threadsafe(link.server.write, commit)
        threading.Event().wait(0.5)
        return found

    former = table.producer  # kept, so that its connection stays open
    seen.act = keep_the_first
    monkeypatch.setattr(Transactions, "_look", look_then_deliver)
    table.require_once(table.commit())
    assert late
    assert former is not table.producer
    table.require_goes_on()


@pytest.mark.parametrize("code", [REQUEST_TIMED_OUT, UNKNOWN, PRODUCER_ID_MAPPING])
def test_told_to_abort_although_the_broker_committed(table: Table, caplog: pytest.LogCaptureFixture, code: int) -> None:
    """The abort does not succeed, so the batch is looked up instead of being sent again."""
    table.proxy.answer_with(Api.END_TXN, code)
    table.require_once(table.commit())
    assert looked(caplog)
    table.require_goes_on()


def test_told_to_abort_and_nothing_was_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The abort succeeds: the same bytes are sent again, without a look."""
    table.is_patient()
    seen = Interceptor(table.proxy, monkeypatch)
    refused: list[Api] = []

    def refuse_once(api: Api, way: Way, link: Any, piece: bytes) -> bytes | None:
        if (api, way) != (Api.END_TXN, "requests") or refused:
            return piece
        refused.append(api)
        number = piece[8:12]
        version = struct.unpack_from(">h", piece, 6)[0]
        body = number + (b"\0" if version >= 3 else b"") + bytes(4) + struct.pack(">h", UNKNOWN)
        body += b"\0" if version >= 3 else b""
        link.asked.pop(int.from_bytes(number, "big"))
        link.client.write(len(body).to_bytes(4, "big") + body)
        return None

    seen.act = refuse_once
    table.require_once(table.commit())
    assert refused
    assert sent_again(caplog)
    assert not looked(caplog)


def test_an_abort_without_answer_leads_to_a_look(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """Offsets are refused, the abort is not answered: a new producer aborts, the look finds nothing, sent again."""
    table.proxy.answer_with(Api.ADD_OFFSETS_TO_TXN, UNKNOWN)
    table.proxy.lose_answers(Api.END_TXN)
    table.require_once(table.commit())
    assert looked(caplog)


def test_an_invalid_transaction_state_is_looked_up(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """Fatal for the producer, not for the batch: another producer, then a look."""
    table.proxy.answer_with(Api.END_TXN, INVALID_TXN_STATE)
    table.require_once(table.commit())
    assert looked(caplog)
    table.require_goes_on()


def test_without_the_right_to_commit_it_stops(table: Table) -> None:
    """An authorization error is said in a sentence; nothing goes on until the partition is taken over anew."""
    table.proxy.answer_with(Api.END_TXN, TRANSACTIONAL_ID_AUTHORIZATION)
    with pytest.raises(LogMisconfigured, match="right"):
        table.commit()
    with pytest.raises(Fenced):
        table.commit()
    table.begin()
    table.require_goes_on()


def test_who_finds_anothers_records_behind_its_own_is_fenced(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """The commit is unanswered, and meanwhile another owner wrote: the state must be dropped."""
    table.proxy.lose_answers(Api.END_TXN)
    result = table.later()
    wait_until(lambda: looked(caplog), "the commit to count as unanswered")
    usurper = table.site.usurp(table.log, table.seat)
    usurper.commit([Output(Topic.EVENTS, "p", b"another's")], table.taken.reports_next, table.taken.commands_next)
    with pytest.raises(Fenced):
        result.result(CEILING_S)
    with pytest.raises(Fenced):
        table.commit()
    table.begin()
    assert table.committed[-1] == b"another's"
    table.require_goes_on()


def test_offsets_that_no_report_names_are_read_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A produce request that was answered at its second sending leaves the offsets unknown."""
    monkeypatch.setattr(kafka_log_commit, "_noting", lambda offsets: lambda error, message: offsets.append(-1))
    table.require_once(table.commit())


# ---- fenced ----


def test_past_the_transactions_time_it_is_fenced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker gave the transaction up by itself: nothing of it is visible, the state must be dropped."""
    monkeypatch.setitem(kafka_log_clients.OWNING, "transaction.timeout.ms", 1_000)
    table.begin()
    table.seat._transactions._patience_s = 2 * CEILING_S
    offsets = table.log._offsets
    seen = Interceptor(table.proxy, monkeypatch)
    seen.act = lambda api, way, link, piece: None if api is Api.END_TXN else piece
    result = table.later()
    wait_until(lambda: (Api.END_TXN, "requests") in seen.seen, "the commit to be sent")
    wait_until(
        lambda: offsets.end(Topic.EVENTS, 0) == offsets.written_end(Topic.EVENTS, 0), "the broker to abort it", 90
    )
    seen.act = lambda api, way, link, piece: piece
    table.proxy.restore()
    with pytest.raises(Fenced):
        result.result(CEILING_S)
    monkeypatch.undo()
    table.require_nothing()
    table.begin()
    table.require_goes_on()


# ---- before the commit ----


def test_an_old_generation_waits_for_the_next_assignment(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """A rebalance whose callback has not come yet: abort, keep the batch, send the same bytes with the new metadata.

    Refused are an older generation of ours, and a member that the group does not know any more.
    """
    table.is_patient()
    seat = table.seat
    older = seat.membership()[1]
    with Stranger(table) as stranger:
        result = refused_at_first(table, caplog, older)
    table.require_once(result.result(CEILING_S))
    caplog.clear()
    result = refused_at_first(table, caplog, stranger.metadata)
    with Stranger(table):
        table.require_once(result.result(CEILING_S))
    assert not looked(caplog)


def refused_at_first(table: Table, caplog: pytest.LogCaptureFixture, metadata: object) -> Future[list[int]]:
    """A commit that is under way with this metadata of the group, refused once, and waits."""
    seat = table.seat
    seat._metadata = metadata
    result = table.later()
    wait_until(lambda: sent_again(caplog), "the generation to be refused")
    with pytest.raises(TimeoutError):
        result.result(0.3)
    table.require_nothing()
    return result


class Stranger:
    """Another member of the group, that gets no partition; our seat has seen it join, not yet leave."""

    def __init__(self, table: Table) -> None:
        seat = table.seat
        before = seat.membership()[0]
        self.metadata: object = None
        self._consumer = table.site.clients.member("stranger")
        self._consumer.subscribe([table.site.clients.topic(Topic.REPORTS)], on_assign=self._on_assign)
        wait_until(lambda: self._polled() and seat.membership()[0] > before, "an assignment")

    def _polled(self) -> bool:
        self._consumer.poll(0.05)
        return self.metadata is not None

    def _on_assign(self, consumer: Consumer, given: object) -> None:
        self.metadata = consumer.consumer_group_metadata()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()


def test_offsets_without_an_answer_are_looked_up(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """`send_offsets` is not answered, and may never return: left behind with its producer; nothing is written twice."""
    table.proxy.lose_answers(Api.TXN_OFFSET_COMMIT)
    table.require_once(table.commit())
    assert looked(caplog)
    table.require_goes_on()


# ---- what nothing ends (decision 0021) ----


@pytest.fixture
def hanging(table: Table, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """Writes for the table's partition what hangs, and fences the seat by that."""
    monkeypatch.setattr(kafka_log_offsets, "QUESTION_S", 1.0)
    monkeypatch.setattr(kafka_log_offsets, "MOMENT_S", 1.0)
    monkeypatch.setattr(kafka_log_commit, "TAKE_OVER_S", 5.0)
    table.is_patient()
    table.require_goes_on()
    with checks_of_transactions_off(table.site.clients.admin()):
        other = Hanging(broker.address, f"{table.site.clients.prefix}-owner-0")
        yield other
        other.close()


def test_who_takes_over_ends_a_transaction_that_hangs(
    table: Table, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has seen anything of it: all of it is aborted, and the partition goes on where it was."""
    clients = table.site.clients
    hanging.write(clients.topic(Topic.EVENTS), 0, [b"unseen", b"unseen"])
    hanging.write(clients.topic(Topic.OUTCOMES), 0, [b"unseen"])
    hanging.commit(clients.owners, {(clients.topic(topic), 0): 1 for topic in kafka_log_commit.INPUTS})
    before = table.taken
    with pytest.raises(LogUnavailable):
        table.log._offsets.committed(kafka_log_commit.INPUTS, 0)

    former = table.committed
    table.begin()
    assert table.committed == former
    assert (table.taken.reports_next, table.taken.commands_next) == (before.reports_next, before.commands_next)
    table.require_goes_on()
    assert b"unseen" not in values(read(table.log, Topic.OUTCOMES, 0))
    assert "does not hold" not in caplog.text


def test_positions_that_hang_alone_are_said(table: Table, hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    """Their events may be decided: their inputs come a second time, which is said."""
    clients = table.site.clients
    hanging.commit(clients.owners, {(clients.topic(topic), 0): 1 for topic in kafka_log_commit.INPUTS})
    table.begin()
    assert "inputs come a second time" in caplog.text
    table.require_goes_on()


def test_outcomes_that_were_seen_before_their_events_are_said(
    table: Table, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition of outcomes alone had a leader: what was told may not be what is decided anew."""
    clients = table.site.clients
    hanging.write(clients.topic(Topic.EVENTS), 0, [b"unseen"])
    hanging.commit(clients.owners, {(clients.topic(topic), 0): 1 for topic in kafka_log_commit.INPUTS})
    table.begin()
    assert "what it told robots and submitters, if anything, does not hold" in caplog.text
    table.require_goes_on()


def test_what_fails_while_a_transaction_is_ended_is_tried_again(table: Table, hanging: Hanging) -> None:
    """A rebalance in between, say: that stops no partition; the next try begins with a new producer."""
    clients = table.site.clients
    hanging.write(clients.topic(Topic.EVENTS), 0, [b"unseen"])
    hanging.commit(clients.owners, {(clients.topic(topic), 0): 1 for topic in kafka_log_commit.INPUTS})
    table.proxy.answer_with(Api.ADD_OFFSETS_TO_TXN, UNKNOWN)
    with pytest.raises(LogUnavailable, match="ending an open transaction"):
        table.seat.take_over()
    former = table.committed
    table.begin()
    assert table.committed == former
    table.require_goes_on()


class Silent:
    """A producer whose `send_offsets` does not return, as librdkafka's may not."""

    def __init__(self) -> None:
        self.never = threading.Event()

    def begin_transaction(self) -> None:
        """There is nothing to begin."""

    def flush(self, _: float) -> int:
        return 0

    def send_offsets_to_transaction(self, *_: object) -> None:
        self.never.wait(CEILING_S)


def test_ending_what_hangs_does_not_wait_for_ever(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that does not return is left behind with its producer."""
    monkeypatch.setattr(kafka_log_hanging, "ANSWER_S", 0.1)
    silent = Silent()
    with pytest.raises(LogUnavailable, match="ending an open transaction"):
        kafka_log_hanging.end_hanging(table.site.clients, cast("Producer", silent), 0, None, [])
    silent.never.set()


def test_events_that_hang_alone_are_left_to_a_person(table: Table, hanging: Hanging) -> None:
    """Their positions may be committed: to abort them would lose what was decided."""
    clients = table.site.clients
    hanging.write(clients.topic(Topic.EVENTS), 0, [b"unseen"])
    with pytest.raises(LogUnavailable, match=r"kafka-transactions\.sh"):
        table.begin()
    hanging.take_over()
    hanging.commit(clients.owners, {(clients.topic(topic), 0): 1 for topic in kafka_log_commit.INPUTS})
    table.begin()


def test_an_abort_that_takes_the_former_batch_with_it_is_noticed(table: Table) -> None:
    """The coordinator said that it is committed, but it hung: the state must be dropped."""
    table.is_patient()
    table.require_once(table.commit())
    transactions = table.seat._transactions
    assert transactions._last_event is not None
    transactions._last_event += 1  # as if that had been the former batch
    table.proxy.answer_with(Api.ADD_OFFSETS_TO_TXN, UNKNOWN)
    with pytest.raises(Fenced, match="last committed batch"):
        table.commit()
    table.begin()
    table.require_goes_on()


# ---- refused by the topic, the queue or the port ----


def test_a_record_that_the_topic_refuses_is_not_sent_again(table: Table) -> None:
    """The broker finds a record too large: nothing of the batch is written, the partition goes on."""
    name = table.site.clients.topic(Topic.EVENTS)
    change_settings(table.site.clients.admin(), TOPIC, name, {"max.message.bytes": "20000"})
    try:
        with pytest.raises(RecordTooLarge):
            table.commit([*table.batch(), Output(Topic.EVENTS, "p", bytes(50_000))])
    finally:
        change_settings(table.site.clients.admin(), TOPIC, name, {"max.message.bytes": "1048576"})
    table.require_nothing()
    table.begin()
    table.require_goes_on()


def test_a_full_queue_aborts_the_batch(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """`produce` raises BufferError: nothing of the batch is written."""
    monkeypatch.setitem(kafka_log_clients.OWNING, "queue.buffering.max.messages", 1)
    table.begin()
    with pytest.raises(RecordTooLarge):
        table.commit()
    monkeypatch.undo()
    table.require_nothing()
    table.begin()
    table.require_goes_on()


def test_taking_over_waits_for_a_broker_that_is_away(table: Table) -> None:
    """`init_transactions` is not answered: again, until it is."""
    table.proxy.cut()
    result = table.pool.submit(table.seat.take_over)
    with pytest.raises(TimeoutError):
        result.result(1.0)
    table.proxy.restore()
    result.result(CEILING_S)
    table.require_goes_on()


def test_calls_in_the_wrong_order_cost_no_batch(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """`_STATE` is a fault of ours: another producer, then a look."""
    table.producer.begin_transaction()
    table.require_once(table.commit())
    assert looked(caplog)


def test_a_seat_that_is_lost_ends_its_commit(broker: Broker, table: Table) -> None:
    """The process leaves while a commit is unanswered: SeatLost, never a further try."""
    site = KafkaSite(broker, table.proxy, partitions=1, unanswered_s=CEILING_S)
    log = site.open()
    members = Members(log)
    seat = members.seat(0)
    taken = seat.take_over()
    table.proxy.lose_answers(Api.END_TXN)
    result = table.pool.submit(seat.commit, [Output(Topic.EVENTS, "p", b"x")], taken.reports_next, taken.commands_next)
    with pytest.raises(TimeoutError):
        result.result(1.0)
    members.ownership.close()
    with pytest.raises(SeatLost):
        result.result(CEILING_S)
    site.close()


# ---- take-over reads only what is settled and kept ----


def test_a_foreign_open_transaction_is_not_read_past(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records behind an open transaction may be ours: taking over waits, and says what is in the way."""
    clients = table.site.clients
    foreign = clients.transactional("foreign")
    foreign.init_transactions(CEILING_S)
    foreign.begin_transaction()
    foreign.produce(clients.topic(Topic.EVENTS), b"foreign", "p", 0)
    foreign.flush()
    with monkeypatch.context() as patience:
        patience.setattr(kafka_log_commit, "TAKE_OVER_S", 2.0)
        with pytest.raises(LogUnavailable, match="foreign open transaction"):
            table.seat.take_over()
    foreign.abort_transaction(CEILING_S)
    table.begin()
    table.require_goes_on()


def test_a_position_outside_what_is_kept_is_a_fault(table: Table) -> None:
    """The topic was made anew, or its retention ran out: said in a sentence, never guessed."""
    commit_position(table, 1_000_000)
    with pytest.raises(LogFault, match="position 1000000 of commands 0 is outside"):
        table.seat.take_over()
    commit_position(table, table.taken.commands_next)
    table.begin()
    table.require_goes_on()


def commit_position(table: Table, commands_next: int) -> None:
    """Somebody commits a position in the owners' name."""
    clients = table.site.clients
    producer = clients.transactional("owner-0")
    producer.init_transactions(CEILING_S)
    producer.begin_transaction()
    at = clients.at(Topic.COMMANDS, 0, commands_next)
    producer.send_offsets_to_transaction([at], table.seat.membership()[1], CEILING_S)
    producer.commit_transaction(CEILING_S)


# ---- what librdkafka itself says, where our calls never come to it ----


def test_abort_and_begin_after_an_unanswered_commit_conflict(table: Table) -> None:
    """Why an unanswered commit is only ever answered by the same call."""
    producer = table.producer
    producer.begin_transaction()
    producer.produce(table.site.clients.topic(Topic.EVENTS), b"directly", "p", 0)
    table.proxy.hold("answers")
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(0.5)
    assert verdict(failed.value.args[0]) is Verdict.SAME_CALL
    for call in (producer.begin_transaction, producer.abort_transaction):
        with pytest.raises(KafkaException) as failed:
            call()
        assert failed.value.args[0].code() in (KafkaError._CONFLICT, KafkaError._STATE)
    table.proxy.restore()
    producer.commit_transaction(CEILING_S)
    table.begin()
    assert table.committed[-1] == b"directly"
