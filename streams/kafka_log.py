"""The log on Apache Kafka: the adapter of `streams.port` for more than one machine (broker 3.0 or newer).

    init_log("127.0.0.1:9092")                     # once: makes the topics
    log = KafkaLog("127.0.0.1:9092")               # refuses topics that are not what Fleetlog needs

The modules `kafka_log_*` beside this one are its parts; confluent-kafka is used there and nowhere else.
"""

from collections.abc import Callable, Mapping
from typing import Final

from streams.kafka_log_append import Appender
from streams.kafka_log_clients import Clients, Settings
from streams.kafka_log_follower import KafkaFollower, SingleReader
from streams.kafka_log_member import Member
from streams.kafka_log_offsets import Offsets
from streams.kafka_log_snapshots import Snapshots
from streams.kafka_log_topics import check_log, init_log, raise_name, read_name, require_good
from streams.kafka_log_watch import TopicWatch
from streams.log_format import check_known
from streams.port import (
    Appended,
    Follower,
    Headers,
    Log,
    LogMisconfigured,
    LogState,
    Ownership,
    Record,
    Seat,
    Snapshot,
    Topic,
)

__all__ = ["KafkaLog", "check_log", "init_log"]

UNANSWERED_S: Final = 15.0


class KafkaLog:
    """See `port.Log`. Used by any thread; a seat and a follower by one each.

    `bootstrap`: "HOST:PORT,...". `kafka_settings` go to librdkafka (`log.kafka.*`). `unanswered_s`: how long a commit
    may stay unanswered before it is looked up with a new producer. Raises LogMisconfigured with every difference,
    LogUnavailable.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str = "fleetlog",
        kafka_settings: Settings | None = None,
        *,
        unanswered_s: float = UNANSWERED_S,
    ) -> None:
        clients = Clients(bootstrap, prefix, kafka_settings or {})
        self._clients = clients
        self._unanswered_s = unanswered_s
        self._offsets = offsets = Offsets(clients)
        admin = clients.admin()
        name, self.partitions = require_good(clients, admin, offsets)
        check_known(name.format, f"of {prefix} at {bootstrap}")
        self.log_id = name.log_id
        self.format = name.format
        self._watch = TopicWatch(clients, admin, self.partitions, name, lambda: read_name(clients, offsets))
        self._appender = Appender(clients, self.partitions, self._watch)
        self._reader = SingleReader(clients)
        self._snapshots = Snapshots(clients, self._offsets)
        self._members: list[Member] = []

    def append(self, topic: Topic, pool: str, value: bytes, headers: Headers, done: Appended) -> None:
        """See `port.Log`. `done` is called from the appender's thread; what is not written within 30 s has failed.

        Raises LogUnavailable while topics are missing, LogReplaced.
        """
        self._watch.require()
        self._appender.append(topic, pool, value, headers, done)

    def follow(self, topic: Topic, starts: Mapping[int, int]) -> Follower:
        """See `port.LogReader`."""
        for partition in starts:
            self._require_partition(partition)
        return KafkaFollower(self._clients, topic, starts, self._watch)

    def beginning(self, topic: Topic, partition: int) -> int:
        """See `port.LogReader`. Raises LogUnavailable."""
        return self._offsets.beginning(topic, partition)

    def end(self, topic: Topic, partition: int) -> int:
        """See `port.LogReader`. Raises LogUnavailable."""
        return self._offsets.end(topic, partition)

    def read_at(self, topic: Topic, partition: int, offset: int) -> Record | None:
        """See `port.LogReader`. One question at a time."""
        return self._reader.read_at(topic, partition, offset)

    def find_snapshots(self, partition: int) -> list[Snapshot]:
        """See `port.LogReader`. Reads the whole partition of `snapshots`. Raises LogUnavailable."""
        return self._snapshots.find(partition)

    def keep_snapshot(self, partition: int, snapshot: Snapshot) -> None:
        """See `port.Log`. Two are kept of each life; a new life takes the former's away once it has two."""
        self._snapshots.keep(partition, snapshot)

    def raise_format(self, to: int) -> None:
        """See `port.Log`: a newer `_log` record."""
        self.format = raise_name(self._clients, self._offsets, to).format

    def bad_snapshots(self) -> int:
        """See `port.LogReader`."""
        return self._snapshots.bad()

    def state(self) -> LogState:
        """See `port.LogReader`: as of the newest look at the topics, a few seconds ago at most."""
        return self._watch.state

    def own(self, name: str, taken: Callable[[Seat], None], lost: Callable[[Seat], None]) -> Ownership:
        """See `port.Log`. Assignment comes within seconds: at latest when a dead member's session is over (6 s)."""
        member = Member(
            self._clients, self._offsets, self._watch, self.partitions, name, taken, lost, self._unanswered_s
        )
        self._members.append(member)
        return member

    def close(self) -> None:
        """See `port.LogReader`: leaves the owners, waits up to 5 s for what is queued. Twice is allowed."""
        for member in self._members:
            member.close()
        self._watch.close()
        self._appender.close()
        self._reader.close()

    def _require_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise LogMisconfigured(f"This log has partitions 0 to {self.partitions - 1}, not {partition}.")


def _is_a_log(log: KafkaLog) -> Log:
    """mypy compares the adapter with the port here."""
    return log
