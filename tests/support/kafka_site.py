"""One test's log on the genuine broker, and what the world does to it; see `tests.streams.contract.Site`."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer

from streams.kafka_log import KafkaLog, init_log
from streams.kafka_log_clients import Clients
from streams.kafka_log_member import Member
from streams.port import Log, Seat, Topic
from tests.streams.contract import CEILING_S, Site
from tests.support.broker import Broker
from tests.support.proxy import Api, KafkaProxy

UNKNOWN_SERVER_ERROR = -1
UNANSWERED_S = 3.0


class KafkaSite(Site):
    """A log with topics of its own on `broker`, reached through `proxy`."""

    partitions = 3
    # Both inputs come through one consumer: a command may come in before a report that is acknowledged already.
    reports_strictly_first = False

    def __init__(
        self,
        broker: Broker,
        proxy: KafkaProxy,
        *,
        partitions: int = 3,
        settings: Mapping[str, str] | None = None,
        unanswered_s: float = UNANSWERED_S,
    ) -> None:
        self.broker = broker
        self.proxy = proxy
        self.partitions = partitions
        self.prefix = f"t{uuid.uuid4().hex[:12]}"
        self._settings = settings or {}
        self._unanswered_s = unanswered_s
        self._opened: list[KafkaLog] = []
        self._usurpers: list[Usurper] = []
        init_log(broker.address, self.prefix, partitions)

    def open(self) -> KafkaLog:
        log = SettledLog(self.proxy.address, self.prefix, self._settings, unanswered_s=self._unanswered_s)
        self._opened.append(log)
        return log

    def close(self) -> None:
        """Closes everything that was opened."""
        self.proxy.restore()
        for usurper in self._usurpers:
            usurper.close()
        for log in self._opened:
            log.close()

    def child(self) -> list[str]:
        return ["tests.support.kafka_site:open_log", f"{self.broker.address}/{self.prefix}"]

    def usurp(self, log: Log, former: Seat) -> Seat:
        usurper = Usurper(self._opened[-1], former.partition)
        self._usurpers.append(usurper)
        seat = usurper.seat()
        seat.take_over()
        seat.start()
        return seat

    def lose_next_answer(self, log: Log) -> None:
        self.proxy.lose_answers(Api.END_TXN)

    def lose_next_commit(self, log: Log) -> None:
        self.proxy.answer_with(Api.ADD_OFFSETS_TO_TXN, UNKNOWN_SERVER_ERROR)

    def stalled(self, log: Log) -> AbstractContextManager[None]:
        return held(self.proxy)

    def corrupt_record(self, log: Log, topic: Topic, partition: int, offset: int) -> Log:
        found = log.read_at(topic, partition, offset)
        assert found is not None
        flip_bit(self.segments(f"{topic}-{partition}"), found.value)
        return log

    def corrupt_snapshot(self, log: Log, partition: int, position: int) -> Log:
        flip_bit(self.segments(f"snapshots-{partition}"), f"at {position}".encode())
        log.close()
        return self.open()

    def segments(self, place: str) -> list[Path]:
        """The broker's files of one partition, as `events-0`."""
        return sorted((self.broker.folder / "data" / f"{self.prefix}.{place}").glob("*.log"))

    @property
    def clients(self) -> Clients:
        """Clients of this log that reach the broker without the proxy."""
        return Clients(self.broker.address, self.prefix)


class SettledLog(KafkaLog):
    """The log as a test reads it: an end that is asked for after a commit is behind that commit.

    Kafka answers a commit a moment before it writes the markers that let readers see it.
    """

    def end(self, topic: Topic, partition: int) -> int:
        give_up = time.monotonic() + CEILING_S
        while (end := super().end(topic, partition)) != self._offsets.written_end(topic, partition):
            assert time.monotonic() < give_up, f"{topic} {partition} has an open transaction"
            time.sleep(0.005)
        return end


@contextmanager
def held(proxy: KafkaProxy) -> Iterator[None]:
    """While it lasts, nothing reaches the broker and nothing comes back; nothing is lost."""
    proxy.hold()
    try:
        yield
    finally:
        proxy.restore()


def flip_bit(files: list[Path], content: bytes) -> None:
    """Changes the last bit of `content`, which must be in one of the files, as it stands on disk."""
    for path in files:
        place = path.read_bytes().rfind(content)
        if place >= 0:
            last = place + len(content) - 1
            with path.open("r+b") as file:
                file.seek(last)
                flipped = file.read(1)[0] ^ 1
                file.seek(last)
                file.write(bytes([flipped]))
            return
    raise AssertionError(f"{content!r} is in none of {files}")


class Usurper(Member):
    """An owner that the group knows nothing of: it takes one partition against everybody's will."""

    def __init__(self, log: KafkaLog, partition: int) -> None:
        self._partition = partition
        self._given = threading.Event()
        super().__init__(
            log._clients,
            log._offsets,
            log._watch,
            log.partitions,
            "usurper",
            lambda _: self._given.set(),
            lambda _: None,
            UNANSWERED_S,
        )

    def seat(self) -> Seat:
        """Its seat."""
        assert self._given.wait(CEILING_S)
        return self._seats[self._partition]

    def _join(self, consumer: Consumer) -> None:
        self._on_assign(consumer, [self._clients.at(Topic.REPORTS, self._partition)])


def open_log(address: str) -> Log:
    """Opens the log at `<bootstrap>/<prefix>`, in a process of its own."""
    bootstrap, _, prefix = address.partition("/")
    return KafkaLog(bootstrap, prefix)
