"""A tiny deterministic owner for tests: each input becomes one event and one outcome, numbered without gap.

`python -m tests.support.kafka_owner BOOTSTRAP PREFIX NAME` owns what it is given until it is killed, and says so on
stdout, one line each: `taken P`, `started P`, `committed P COUNT`, `lost P`, `fenced P`. Its state is the number of
events so far, folded from `events` at take-over: an input decided twice, or a fold that ended early, repeats a number.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import uuid
from dataclasses import dataclass

from streams.kafka_log import KafkaLog
from streams.port import (
    Fenced,
    LogMisconfigured,
    LogReader,
    LogUnavailable,
    Output,
    Record,
    Seat,
    SeatLost,
    TakenOver,
    Topic,
)


@dataclass(slots=True)
class Echo:
    """One seat's loop. `life` names this seat's life in its events."""

    log: KafkaLog
    seat: Seat
    name: str

    def run(self) -> None:
        """Takes over and decides until the seat is lost."""
        while True:
            try:
                self._live(f"{self.name}-{uuid.uuid4()}")
            except Fenced:
                self._say("fenced")
            except (LogUnavailable, LogMisconfigured) as fault:
                logging.info("unavailable: %s", fault)
            except SeatLost:
                self._say("ended")
                return

    def _live(self, life: str) -> None:
        taken = self.seat.take_over()
        number = last_number(self.log, self.seat.partition, taken)
        reports_next, commands_next = taken.reports_next, taken.commands_next
        number += 1
        self.seat.commit([event(number, life, "taken", b"")], reports_next, commands_next)
        self._say("started")
        self.seat.start()
        while True:
            fetched = self.seat.fetch(500, 1.0)
            inputs = [*fetched.reports, *fetched.commands]
            if not inputs:
                continue
            outputs = []
            for record in inputs:
                number += 1
                outputs.append(event(number, life, of(record), record.value))
                outputs.append(Output(Topic.OUTCOMES, record.key, record.value, (("to", b"gateway"),)))
            if fetched.reports:
                reports_next = fetched.reports[-1].offset + 1
            if fetched.commands:
                commands_next = fetched.commands[-1].offset + 1
            self.seat.commit(outputs, reports_next, commands_next)
            self._say("committed", len(inputs))

    def _say(self, word: str, count: int | str = "") -> None:
        os.write(1, f"{word} {self.seat.partition} {count}\n".encode())


def of(record: Record) -> str:
    """Which input it is."""
    return f"{record.topic}@{record.offset}"


def event(number: int, life: str, cause: str, value: bytes) -> Output:
    """The event that says what was decided, by which life, as which number."""
    said = {"number": number, "life": life, "of": cause, "value": value.decode()}
    return Output(Topic.EVENTS, "pool", json.dumps(said).encode())


def last_number(log: LogReader, partition: int, taken: TakenOver) -> int:
    """The state: the number of the last event below the end that take-over read."""
    number = 0
    follower = log.follow(Topic.EVENTS, {partition: log.beginning(Topic.EVENTS, partition)})
    while follower.positions()[partition] < taken.events_end:
        for record in follower.poll(5_000, 1.0):
            if record.offset < taken.events_end:
                number = int(json.loads(record.value)["number"])
    follower.close()
    return number


def main(bootstrap: str, prefix: str, name: str) -> None:
    """Owns until it is killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    log = KafkaLog(bootstrap, prefix)

    def taken(seat: Seat) -> None:
        os.write(1, f"taken {seat.partition} \n".encode())
        threading.Thread(target=Echo(log, seat, name).run, daemon=True).start()

    log.own(name, taken, lambda seat: None)
    sys.stdin.read()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
