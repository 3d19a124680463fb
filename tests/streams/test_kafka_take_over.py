"""Take-over on a genuine broker: killed, stalled, joining and leaving owners, a broker that restarts; under load.

Owners are processes of their own that turn each input into one numbered event. FLEETLOG_ROUNDS plays each more often.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from streams.kafka_log import KafkaLog, init_log
from streams.kafka_log_clients import SESSION_MS
from streams.port import LogUnavailable
from tests.support.broker import Broker, Brokers
from tests.support.kafka_owners import (
    ROUNDS,
    Decided,
    Feeder,
    Owner,
    check,
    gap_s,
    wait_all_decided,
    wait_until,
)

PARTITIONS = 4


class World:
    """A log on the brokers at `address`, a feeder, and owner processes that come and go."""

    def __init__(self, address: str, prefix: str) -> None:
        self.address = address
        self.prefix = prefix
        init_log(address, prefix, PARTITIONS)
        self.log = KafkaLog(address, prefix)
        self.feeder = Feeder(self.log)
        self.owners: list[Owner] = []

    def join(self, count: int = 1) -> list[Owner]:
        """So many more owner processes."""
        new = [Owner(self.address, self.prefix, f"owner{len(self.owners) + i}") for i in range(count)]
        self.owners += new
        return new

    def wait_shared(self, *owners: Owner) -> None:
        """Returns when each of them decides something."""
        wait_until(lambda: all(one.started() and one.inputs.total() for one in owners), "each to decide something")

    def wait_goes_on(self, *owners: Owner) -> None:
        """Returns when more was decided by them than now."""
        before = sum(owner.inputs.total() for owner in owners)
        wait_until(lambda: sum(owner.inputs.total() for owner in owners) > before + 50, "the owners to go on")

    def end(self) -> dict[int, Decided]:
        """Stops feeding, waits until all is decided, and checks it."""
        self.feeder.stop()
        wait_all_decided(self.log)
        return check(self.log, self.feeder)

    def close(self) -> None:
        for owner in self.owners:
            owner.kill()
            print(f"{owner.name}: {dict(owner.counts)} {owner.errors}")
        self.feeder.stop()
        self.log.close()


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    world = World(broker.address, f"take-over-{time.time_ns()}")
    yield world
    world.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Broker]:
    """A broker that the tests of this module may kill."""
    with Broker() as running:
        yield running


@pytest.fixture
def own_world(mortal: Broker) -> Iterator[World]:
    world = World(mortal.address, f"take-over-{time.time_ns()}")
    yield world
    world.close()


def test_a_killed_owner_is_followed_by_another(world: World, record_property: Callable[[str, object], None]) -> None:
    """kill -9 under load: the other takes over; nothing is decided twice or skipped, nothing acknowledged is lost."""
    survivor, victim = world.join(2)
    kills: list[tuple[set[int], float]] = []
    for number in range(ROUNDS):
        world.wait_shared(survivor, victim)
        theirs = owned(victim)
        killed_at = time.time() * 1_000
        victim.kill()
        wait_until(lambda theirs=theirs: theirs <= owned(survivor), "the survivor to take over")  # type: ignore[misc]
        world.wait_goes_on(survivor)
        kills.append((theirs, killed_at))
        if number < ROUNDS - 1:
            (victim,) = world.join()
    found = world.end()
    gaps = [gap_s(found, theirs, killed_at) for theirs, killed_at in kills]
    print(f"gaps after kill -9: {', '.join(f'{gap:.1f} s' for gap in gaps)}")
    record_property("longest_gap_s", max(gaps))
    assert max(gaps) < 30


def owned(owner: Owner) -> set[int]:
    """The partitions that the owner decides for now, by what it said."""
    counts = owner.counts
    return {p for p in range(PARTITIONS) if counts["started", p] > counts["ended", p]}


def test_a_stalled_owner_writes_nothing_more(world: World) -> None:
    """SIGSTOP past the session's time and SIGCONT: the former owner finds out before it writes anything."""
    survivor, stalled = world.join(2)
    for _ in range(ROUNDS):
        world.wait_shared(survivor, stalled)
        wait_until(lambda: bool(owned(stalled)), "it to own something again")
        theirs = owned(stalled)
        ended = stalled.count("ended")
        stalled.signal(signal.SIGSTOP)
        wait_until(lambda theirs=theirs: theirs <= owned(survivor), "the survivor to take over")  # type: ignore[misc]
        world.wait_goes_on(survivor)
        stalled.signal(signal.SIGCONT)
        wait_until(lambda ended=ended: stalled.count("ended") > ended, "it to notice")  # type: ignore[misc]
    world.end()


def test_owners_join_and_leave_under_load(world: World) -> None:
    """Two, then three members, then one leaves in order: what stays goes on, what moves is decided once."""
    first, second = world.join(2)
    world.wait_shared(first, second)
    (third,) = world.join()
    world.wait_shared(first, second, third)
    first.leave()
    wait_until(lambda: len(owned(second) | owned(third)) == PARTITIONS, "the others to take over")
    world.wait_goes_on(second, third)
    if ROUNDS > 1:
        for _ in range(ROUNDS):
            (more,) = world.join()
            world.wait_shared(more)
            more.leave()
    world.end()


def test_a_broker_that_restarts_loses_nothing(own_world: World, mortal: Broker) -> None:
    """Killed (and, with more rounds, stopped in order) under load: the owners go on, each input is decided once."""
    owners = own_world.join(2)
    own_world.wait_shared(*owners)
    for number in range(ROUNDS):
        if number:
            mortal.restart()
            own_world.wait_goes_on(*owners)
        mortal.kill()
        mortal.start()
        own_world.wait_goes_on(*owners)
    own_world.end()
    assert all(isinstance(fault, LogUnavailable) for fault in own_world.feeder.failed)


def test_a_broker_that_stands_still_past_the_session_loses_nothing(own_world: World, mortal: Broker) -> None:
    """No answer for longer than a session lasts: partitions may be lost and come back; each input is decided once."""
    owners = own_world.join(1)
    own_world.wait_shared(*owners)
    mortal.pause()
    time.sleep(1.5 * SESSION_MS / 1_000)
    mortal.resume()
    own_world.wait_goes_on(*owners)
    own_world.end()


def test_a_cluster_goes_on_without_one_of_its_brokers() -> None:
    """Three brokers: topics are made with three replicas, two of which must have a record; any of them may die.

    Three rounds kill one after the other.
    """
    if ROUNDS == 1:
        pytest.skip("Three brokers take minutes: FLEETLOG_ROUNDS=3 plays it.")
    with Brokers(3) as brokers:
        world = World(brokers.address, "cluster")
        try:
            assert (
                world.log._clients.admin().list_topics("cluster.events").topics["cluster.events"].partitions[0].replicas
            )
            owners = world.join(2)
            world.wait_shared(*owners)
            for broker in list(brokers)[:ROUNDS]:
                broker.kill()
                world.wait_goes_on(*owners)
                broker.start()
                brokers.wait_for(3)
                world.wait_goes_on(*owners)
            world.end()
        finally:
            world.close()
