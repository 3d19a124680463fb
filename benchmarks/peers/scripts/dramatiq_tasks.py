"""Dramatiq on Redis."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import common
import dramatiq
from dramatiq.brokers.redis import RedisBroker

settings = {}
if common.PROFILE == "best":
    settings = {"heartbeat_timeout": common.SILENCE_S * 1_000, "maintenance_chance": 1_000_000}
broker = RedisBroker(url=f"{os.environ['PEER_URL']}/0", **settings)
dramatiq.set_broker(broker)

# How many threads submit: where each answer waits for the disk, many at once share one flush.
THREADS = int(os.environ["PEER_THREADS"])


@dramatiq.actor
def nothing(number):
    return None


@dramatiq.actor
def note(sent):
    common.note(sent)


@dramatiq.actor
def slow(number):
    common.slow()


def one(kind, number):
    {"nothing": nothing, "note": note, "slow": slow}[kind].send(number)


def many(kind, numbers):
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: one(kind, number), numbers))


if __name__ == "__main__" and sys.argv[1] == "submit":
    common.submit(many, one)
