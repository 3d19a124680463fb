"""Celery on Redis."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import common
from celery import Celery

url = os.environ["PEER_URL"]
app = Celery("celery_tasks", broker=f"{url}/0", backend=f"{url}/1")
if common.PROFILE == "fast":
    app.conf.update(worker_prefetch_multiplier=64)
elif common.PROFILE == "best":
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_transport_options={
            "visibility_timeout": common.SILENCE_S,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )

# How many threads submit: where each answer waits for the disk, many at once share one flush.
THREADS = int(os.environ["PEER_THREADS"])


@app.task(name="nothing")
def nothing(number):
    return None


@app.task(name="note")
def note(sent):
    common.note(sent)


@app.task(name="slow")
def slow(number):
    common.slow()


def one(kind, number):
    app.tasks[kind].apply_async((number,))


def many(kind, numbers):
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: one(kind, number), numbers))


if __name__ == "__main__" and sys.argv[1] == "submit":
    common.submit(many, one)
