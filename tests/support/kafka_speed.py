"""How fast the log on Kafka is: `python -m tests.support.kafka_speed HOST:PORT`. Prints one JSON object a measurement.

Commit: batches of 500 inputs and 2,000 outputs back to back. Latency: 50 lone commands a second, from `append` to the
outcome at a follower. Follow: reading events as fast as they come.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Sequence

from streams.kafka_log import KafkaLog, init_log
from streams.port import Output, Seat, Topic
from tests.streams.contract import own, pool_on

INPUTS = 500
EVENTS = 1_000
OUTCOMES = 1_000
VALUE = bytes(300)
HEADERS = (("type", b"TaskSubmitted.v1"), ("hash", bytes(32)))
ADDRESSED = (("to", b"gateway-1"),)


def commit_speed(log: KafkaLog, seat: Seat, start: tuple[int, int], batches: int) -> dict[str, float]:
    """Inputs are fetched, outputs committed; the inputs lie ready."""
    pool = pool_on(0, log.partitions)
    done = threading.Semaphore(0)
    for _ in range(batches * INPUTS):
        log.append(Topic.COMMANDS, pool, VALUE, (), lambda fault, offset: done.release())
    for _ in range(batches * INPUTS):
        done.acquire()
    outputs = [Output(Topic.EVENTS, pool, VALUE, HEADERS)] * EVENTS
    outputs += [Output(Topic.OUTCOMES, pool, VALUE, ADDRESSED)] * OUTCOMES
    reports_next, commands_next = start
    fetched, took = 0, []
    began = time.monotonic()
    cpu = time.process_time()
    while fetched < batches * INPUTS:
        commands = seat.fetch(INPUTS, 1.0).commands
        if not commands:
            continue
        fetched += len(commands)
        commands_next = commands[-1].offset + 1
        each = time.monotonic()
        seat.commit(outputs[: 4 * len(commands)], reports_next, commands_next)
        took.append(time.monotonic() - each)
    seconds = time.monotonic() - began
    return {
        "batches": len(took),
        "inputs_per_s": fetched / seconds,
        "outputs_per_s": fetched * 4 / seconds,
        "commit_p50_ms": 1_000 * statistics.median(took),
        "commit_p99_ms": 1_000 * statistics.quantiles(took, n=100)[98],
        "cpu_share": (time.process_time() - cpu) / seconds,
    }


def follow_speed(log: KafkaLog) -> dict[str, float]:
    """All events of partition 0."""
    end = log.end(Topic.EVENTS, 0)
    began, records = time.monotonic(), 0
    follower = log.follow(Topic.EVENTS, {0: log.beginning(Topic.EVENTS, 0)})
    last = began
    while follower.positions()[0] < end:
        got = len(follower.poll(5_000, 1.0))
        records += got
        last = time.monotonic() if got else last
    follower.close()
    return {"followed_per_s": records / (last - began), "records": records}


def latency(log: KafkaLog, seat: Seat, next_: tuple[int, int], count: int) -> dict[str, float]:
    """Lone commands, 50 a second: append, fetch, commit, seen in outcomes."""
    pool = pool_on(0, log.partitions)
    started: dict[bytes, float] = {}
    took: list[float] = []
    stop = threading.Event()

    def decide() -> None:
        commands_next = next_[1]
        while not stop.is_set():
            fetched = seat.fetch(INPUTS, 0.5)
            if fetched.commands:
                commands_next = fetched.commands[-1].offset + 1
                outputs = [
                    Output(topic, pool, record.value, ADDRESSED)
                    for record in fetched.commands
                    for topic in (Topic.EVENTS, Topic.OUTCOMES)
                ]
                seat.commit(outputs, next_[0], commands_next)

    def follow() -> None:
        follower = log.follow(Topic.OUTCOMES, {p: log.end(Topic.OUTCOMES, p) for p in range(log.partitions)})
        while len(took) < count:
            for record in follower.poll(100, 0.5):
                took.append(time.monotonic() - started[record.value])
        follower.close()

    threads = [threading.Thread(target=decide), threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    for number in range(count):
        value = f"{number}".encode()
        started[value] = time.monotonic()
        log.append(Topic.COMMANDS, pool, value, (), lambda fault, offset: None)
        time.sleep(0.02)
    threads[1].join()
    stop.set()
    threads[0].join()
    cuts = statistics.quantiles(took, n=100)
    return {"latency_p50_ms": 1_000 * statistics.median(took), "latency_p99_ms": 1_000 * cuts[98]}


def main(arguments: Sequence[str]) -> None:
    """Measures on the broker at the address."""
    prefix = f"speed-{uuid.uuid4().hex[:8]}"
    init_log(arguments[0], prefix, 1)
    log = KafkaLog(arguments[0], prefix)
    members, seat, taken = own(log, 0)
    print(json.dumps(latency(log, seat, (taken.reports_next, taken.commands_next), 500)))
    again = seat.take_over()
    seat.start()
    print(json.dumps(commit_speed(log, seat, (again.reports_next, again.commands_next), 100)))
    print(json.dumps(follow_speed(log)))
    members.ownership.close()
    log.close()


if __name__ == "__main__":
    main(sys.argv[1:])
