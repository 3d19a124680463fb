"""Many actions on many servers, never two at once on the same one, and every server gets its turn.

    python examples/one_per_server.py 5 4          (servers, actions for each)

The target is what the work is done to. Fleetlog gives out at most one task of a target at a time, whatever the kind,
the robot or the failure; targets take turns, and inside a target tasks keep their order.
"""

import os
import sys
import threading
import time
from collections import Counter
from typing import Any

from fleetlog import Client, Robot, TaskContext

GATEWAY = os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780")
POOL = os.environ.get("FLEETLOG_POOL", "default")


def main(servers: int, actions: int) -> int:
    """Play both sides: the robot that acts, and the program that asks for actions."""
    robot = Robot("actor-1", gateway=GATEWAY, pool=POOL, slots=8)
    lock, at_work, worst = threading.Lock(), Counter[str](), Counter[str]()
    order: dict[str, list[int]] = {}

    @robot.task("action")
    def act(ctx: TaskContext, payload: dict[str, Any]) -> dict[str, Any]:
        server = str(ctx.target)
        with lock:
            at_work[server] += 1
            worst[server] = max(worst[server], at_work[server])
            order.setdefault(server, []).append(payload["step"])
        time.sleep(0.02)
        with lock:
            at_work[server] -= 1
        return {"server": server, "step": payload["step"]}

    with Client(GATEWAY, pool=POOL) as client, robot:
        handles = client.submit_many(
            {"kind": "action", "payload": {"step": step}, "target": f"server-{number}"}
            for step in range(actions)
            for number in range(servers)
        )
        for handle in handles:
            handle.result(timeout_s=60)
    for server in sorted(order):
        print(f"{server}: at once {worst[server]}, order {order[server]}")
    right = all(steps == sorted(steps) for steps in order.values()) and set(worst.values()) == {1}
    return 0 if right and len(order) == servers else 1


if __name__ == "__main__":
    sys.exit(main(*(int(number) for number in sys.argv[1:] or ("5", "4"))))
