"""Scan many servers again and again, each one on time, and never two actions at once on the same one.

    python examples/scan_servers.py 1000 60 3       (servers, a scan every so many seconds, until each had so many)

One schedule a server submits the scans; nothing of yours has to run for that. The server is the task's target, so a
scan and any other action on it never meet; a slow server skips a scan (`overlap`) and delays no other. The jitter
spreads the scans over the interval. Here a robot plays the servers, and one of them is slow.
"""

import json
import os
import sys
import threading
import time
import urllib.request
from collections import Counter
from typing import Any

from fleetlog import Client, Robot, TaskContext

GATEWAY = os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780")
POOL = os.environ.get("FLEETLOG_POOL", "default")


def ask(method: str, server: str, body: dict[str, Any]) -> dict[str, Any]:
    """One request about the schedule of a server, and the gateway's answer."""
    url = f"{GATEWAY}/v1/pools/{POOL}/schedules/scan-{server}"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def main(servers: int, every_s: int, rounds: int) -> int:
    """Play the servers, set a schedule for each, look on until all had their scans, and clear up."""
    robot = Robot("scanner-1", gateway=GATEWAY, pool=POOL, slots=64)
    lock, at_work, worst, scans = threading.Lock(), Counter[str](), Counter[str](), Counter[str]()

    @robot.task("scan")
    def scan(ctx: TaskContext, payload: dict[str, Any]) -> dict[str, Any]:
        server = str(ctx.target)
        with lock:
            at_work[server] += 1
            worst[server] = max(worst[server], at_work[server])
        time.sleep(2.5 * every_s if payload["slow"] else 0.01)
        with lock:
            at_work[server] -= 1
            scans[server] += 1
        return {"server": server, "open_ports": [22, 443]}

    names = [f"server-{number}" for number in range(servers)]
    with Client(GATEWAY, pool=POOL) as client, robot:
        for name in names:
            task = {"kind": "scan", "target": name, "payload": {"slow": name == "server-0"}}
            ask("PUT", name, {"every_s": every_s, "jitter_s": 0.8 * every_s, "overlap": "skip", "task": task})
        while min(scans[name] for name in names[1:]) < rounds or not scans[names[0]]:
            time.sleep(0.1)
        for name in names:
            ask("DELETE", name, {})
        for open_scan in list(client.tasks(where="kind=scan state!=COMPLETED")):
            client.wait(open_scan.id, timeout_s=60)
    print(f"{servers} servers, {scans.total()} scans, at once on one server: {max(worst.values())}")
    print(f"the slow one had {scans[names[0]]}, the others {min(scans[name] for name in names[1:])} at least")
    return 0 if max(worst.values()) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(*(int(number) for number in sys.argv[1:] or ("1000", "60", "3"))))
