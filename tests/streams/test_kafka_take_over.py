"""Take-over on a genuine broker: killed, stalled, joining and leaving owners, under load.

Owners are processes of their own that turn each input into one numbered event. FLEETLOG_ROUNDS plays each more often.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from streams.kafka_log import KafkaLog
from streams.kafka_log_clients import SESSION_MS
from tests.support.broker import Broker
from tests.support.kafka_owners import ROUNDS, Feeder, Owner, check, gap_s, wait_all_decided, wait_until
from tests.support.kafka_site import KafkaSite
from tests.support.proxy import KafkaProxy

PARTITIONS = 4


class World:
    """A log, a feeder, and owner processes that come and go."""

    def __init__(self, broker: Broker, proxy: KafkaProxy) -> None:
        self.broker = broker
        self.site = KafkaSite(broker, proxy, partitions=PARTITIONS)
        self.log: KafkaLog = KafkaLog(broker.address, self.site.prefix)
        self.feeder = Feeder(self.log)
        self.owners: list[Owner] = []

    def join(self, count: int = 1) -> list[Owner]:
        """So many more owner processes."""
        new = [Owner(self.broker.address, self.site.prefix, f"owner{len(self.owners) + i}") for i in range(count)]
        self.owners += new
        return new

    def wait_started(self, owner: Owner, at_least: int = 1) -> None:
        """Returns when the owner decides so many partitions or more."""
        wait_until(lambda: len(owner.started()) >= at_least and owner.inputs.total() > 0, f"{owner.name} to start")

    def close(self) -> None:
        for owner in self.owners:
            owner.kill()
        self.feeder.stop()
        self.log.close()
        self.site.close()


@pytest.fixture
def world(broker: Broker, proxy: KafkaProxy) -> Iterator[World]:
    world = World(broker, proxy)
    yield world
    world.close()


def test_a_killed_owner_is_followed_by_another(world: World, record_property: pytest.fixture) -> None:  # type: ignore[valid-type]
    """kill -9 under load: the other takes over, nothing is decided twice or skipped, nothing acknowledged is lost."""
    survivor, victim = world.join(2)
    gaps = []
    for _ in range(ROUNDS):
        wait_until(lambda: world_is_shared(survivor, victim), "both to own something")
        mine = set(victim.started())
        killed_at = time.time() * 1_000
        victim.kill()
        before = survivor.count("started")
        wait_until(lambda: survivor.count("started") > before, "the survivor to take over")
        (victim,) = world.join()
        gaps.append((mine, killed_at))
    world.feeder.stop()
    wait_all_decided(world.log)
    found = check(world.log, world.feeder)
    longest = max(gap_s(found, mine, killed_at) for mine, killed_at in gaps)
    print(f"gap after kill -9: {longest:.1f} s")
    record_property("gap_s", longest)
    assert longest < 30


def world_is_shared(*owners: Owner) -> bool:
    """Whether each decides something."""
    return all(owner.started() and owner.inputs.total() for owner in owners)
