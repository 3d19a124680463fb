"""Whether the topics are still those of the log that was opened: what was deleted, made anew or given more partitions
while processes run is known within seconds.

Kafka gives every topic an id of its own, so one that was deleted and made again is told from the one before. While a
topic is missing everything waits. Made again, `commands`, `reports` and `outcomes` are as good as before: owners take
over anew and all goes on. With `events`, or the record that names the log, the log itself is gone: what is there now is
another one, and a process that began with the old one never writes to it.
"""

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streams.kafka_log_clients import LOGGER, MISSING, Clients, error_of, fault
from streams.kafka_log_topics import LogName, differences, find_topics, grown_text, init_with, topic_names
from streams.port import LogFault, LogReplaced, LogState, LogUnavailable, Topic

LOOK_EVERY_S: Final = 2.0
ANSWER_S: Final = 3.0
SETTINGS_EVERY: Final = 30
"""Every how many looks the topics' settings are held against what Fleetlog needs, too: once a minute."""
LOOKS_TO_MISS: Final = 2
"""A topic is missing when so many looks in a row say so: a broker that has just begun may know less than the others."""


class TopicWatch:
    """Looks every two seconds until `close`. `generation` grows when topics of the same log were made anew.

    `name` is that of the log as it was opened, `read_name` reads it again. Used by any thread.
    """

    def __init__(
        self,
        clients: Clients,
        admin: AdminClient,
        partitions: int,
        name: LogName,
        read_name: Callable[[], LogName | None],
    ) -> None:
        self.generation = 0
        self._clients, self._partitions, self._name, self._read_name = clients, partitions, name, read_name
        self._state = LogState()
        self._replaced: str | None = None
        self._missing: frozenset[str] = frozenset()
        self._misses: dict[str, int] = {}
        self._looks = 0
        self._wrong: list[str] = []
        self._ids: dict[str, str] = {}
        self._made: dict[str, int] = {}
        self._admin = admin
        self._looking = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"topics of {clients.prefix}", daemon=True)
        self.look()
        self._thread.start()

    @property
    def state(self) -> LogState:
        """What the newest look found."""
        return self._state

    def require(self, topic: Topic | None = None) -> None:
        """Returns while the log is the one that was opened and `topic` (None: every topic) is there.

        Raises LogReplaced for good, LogUnavailable while somebody has to make topics again.
        """
        if self._replaced is not None:
            raise LogReplaced(self._replaced)
        if self._missing and (topic is None or self._clients.topic(topic) in self._missing):
            raise LogUnavailable(self._state.problem or "Topics are missing.")

    def times_made(self, topic: Topic) -> int:
        """How often the topic was made anew while this process ran."""
        return self._made.get(self._clients.topic(topic), 0)

    def meaning(self, met: LogFault) -> LogFault:
        """What a fault is that was met while reading: that of the topics where they are no longer the same, else it."""
        generation = self.generation
        for _ in range(LOOKS_TO_MISS):
            self.look()
        try:
            self.require()
        except LogFault as ours:
            return ours
        return met if self.generation == generation else LogUnavailable(f"Topics were made anew ({met})")

    def close(self) -> None:
        """Ends after the running look."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """One look. A broker that does not answer says nothing: other parts of the log do."""
        with self._looking:
            self._looks += 1
            try:
                if self._looks % SETTINGS_EVERY == 0:
                    self._wrong = self._wrong_settings()
                self._judge(self._found())
            except LogFault as unanswered:
                LOGGER.debug("The topics could not be looked at: %s", unanswered)

    def _found(self) -> dict[str, tuple[str, int] | None]:
        """Each topic's id and number of partitions, None where the broker knows no such topic."""
        found: dict[str, tuple[str, int] | None] = {}
        names = list(topic_names(self._clients).values())
        for name, asked in self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_S).items():
            try:
                topic = asked.result()
                found[name] = (str(topic.topic_id), len(topic.partitions))
            except KafkaException as failed:
                if error_of(failed).code() not in MISSING:
                    raise fault(error_of(failed), f"describing {name}") from None
                found[name] = None
        return found

    def _wrong_settings(self) -> list[str]:
        """How topics are no longer set as Fleetlog needs them, one sentence each with what to do."""
        found = find_topics(self._clients, self._admin)
        there = len(found.partitions) == len(topic_names(self._clients))
        return differences(self._clients, self._admin, found, self._partitions) if there else []

    def _judge(self, found: dict[str, tuple[str, int] | None]) -> None:
        there = {name: one for name, one in found.items() if one is not None}
        few = {name for name, (_, partitions) in there.items() if partitions < self._partitions}
        self._misses = {n: self._misses.get(n, 0) + 1 for n in found if n not in there or n in few}
        if self._misses:
            if min(self._misses.values()) >= LOOKS_TO_MISS:
                self._say(LogState(self._missing_text(sorted(self._misses), few)), frozenset(self._misses))
            return
        new = [name for name, (topic_id, _) in there.items() if self._ids.setdefault(name, topic_id) != topic_id]
        if new:
            self._made_anew(new)
            if self._replaced is not None or self._missing:
                return
            self._ids = {name: topic_id for name, (topic_id, _) in there.items()}
        more = [f"{name} {partitions}" for name, (_, partitions) in there.items() if partitions > self._partitions]
        said = [*self._wrong, *([grown_text(self._clients, more, self._partitions)] if more else [])]
        self._say(LogState(warning=" ".join(said) or None), frozenset())

    def _made_anew(self, new: list[str]) -> None:
        """Whether this is still the same log. Raises LogFault where its name cannot be read now."""
        name = self._read_name()
        if name is None:
            text = f"The topics of {self._clients.prefix} have no name yet: run {self._init}."
            self._say(LogState(text), frozenset(new))
        elif name.log_id != self._name.log_id:
            self._replaced = (
                f"Another log is at {self._clients.bootstrap} now ({name.log_id}; this process began with "
                f"{self._name.log_id}): bring the old events into it from a backup if they are needed, then restart "
                "this process"
            )
            self._say(LogState(self._replaced), frozenset(new))
        elif self._clients.topic(Topic.EVENTS) in new:
            self._replaced = (
                f"{self._clients.topic(Topic.EVENTS)} was made anew and what it held is gone: end every process, "
                f"delete all topics of {self._clients.prefix}, run {self._init}, restore a backup, and start again"
            )
            self._say(LogState(self._replaced), frozenset(new))
        else:
            LOGGER.warning("Made anew: %s; the log is the same and goes on.", ", ".join(new))
            self._made |= {topic: self._made.get(topic, 0) + 1 for topic in new}
            self.generation += 1
            self._missing = frozenset()

    def _say(self, state: LogState, missing: frozenset[str]) -> None:
        """For everybody from now on; a change is a line of the logger, too."""
        said = state.problem or state.warning
        if said is not None and said != (self._state.problem or self._state.warning):
            LOGGER.error("%s", said)
        self._state, self._missing = state, missing

    def _missing_text(self, names: list[str], few: set[str]) -> str:
        held = [self._clients.topic(Topic.EVENTS), self._clients.snapshots]
        gone = any(name in names for name in held)
        text = f"Topics are missing: {', '.join(names)}; run {self._init}"
        if few:
            text = f"Topics with too few partitions: {', '.join(sorted(few))}; delete them and run {self._init}"
        return text + (
            ": it will be another log, to be filled from a backup" if gone else ": all goes on by itself then"
        )

    @property
    def _init(self) -> str:
        return init_with(self._clients, self._partitions)
