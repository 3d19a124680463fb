"""The genuine broker that runs beside the shell: `python -m tests.support.broker start|stop|status`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from tests.support.broker import CEILING_S, Broker, BrokerFailed
from tests.support.kafka_home import PROJECT, CannotRunKafka

RUNNING = PROJECT / ".cache" / "kafka" / "running.json"


def start_detached(*, backoff_ms: int) -> str:
    """Start a broker that outlives this process, or find the one that runs; gives its address."""
    running = _recorded()
    if running is not None:
        return str(running["address"])
    broker = Broker(add_partitions_backoff_ms=backoff_ms, detached=True).start()
    RUNNING.parent.mkdir(parents=True, exist_ok=True)
    record = {"pid": broker.pid, "address": broker.address, "folder": str(broker.folder)}
    RUNNING.write_text(json.dumps({**record, "container": broker.container}))
    return broker.address


def stop_detached() -> bool:
    """Stop the broker that start_detached() recorded, and remove its data; False when none runs."""
    running = _recorded()
    if running is None:
        return False
    if running["container"]:
        subprocess.run(["docker", "stop", str(running["container"])], check=True, capture_output=True)
    else:
        _end(int(str(running["pid"])), str(running["folder"]))
    shutil.rmtree(str(running["folder"]), ignore_errors=True)
    RUNNING.unlink()
    return True


def _recorded() -> dict[str, object] | None:
    """The recorded broker, if the process of that id still is it; a stale record is removed."""
    try:
        record: dict[str, object] = json.loads(RUNNING.read_text())
    except FileNotFoundError:
        return None
    if _is_ours(int(str(record["pid"])), str(record["folder"])):
        return record
    RUNNING.unlink()
    return None


def _is_ours(pid: int, folder: str) -> bool:
    """Process ids are used again: only the process whose command line names our folder is our broker."""
    told = subprocess.run(["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)], capture_output=True, text=True)
    return folder in told.stdout and not told.stdout.startswith("Z")


def _end(pid: int, folder: str) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + CEILING_S
    while _is_ours(pid, folder):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def main() -> int:
    """The command line of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.broker", description="A genuine Apache Kafka on a loopback port."
    )
    parser.add_argument("what", choices=["start", "stop", "status"])
    parser.add_argument(
        "--add-partitions-backoff-ms",
        type=int,
        default=1,
        help="the broker's add.partitions.to.txn.retry.backoff.ms (default: 1; Kafka's own: 20)",
    )
    given = parser.parse_args()
    try:
        if given.what == "start":
            print(start_detached(backoff_ms=given.add_partitions_backoff_ms))
            return 0
        if given.what == "stop":
            print("stopped" if stop_detached() else "no broker was running")
            return 0
        running = _recorded()
        print(running["address"] if running else "no broker is running")
        return 0 if running else 1
    except (BrokerFailed, CannotRunKafka) as failure:
        print(failure, file=sys.stderr)
        return 1
