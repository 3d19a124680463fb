"""Submit tasks and wait for what they come to (a robot like python_robot.py must run).

python examples/submit_and_wait.py /etc/hostname /etc/services /nowhere
"""

import os
import sys

from fleetlog import Client, TaskDead


def main(paths: list[str]) -> int:
    """Compress one file, then all of them; say what went wrong with which."""
    gateway = os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780")
    with Client(gateway, pool=os.environ.get("FLEETLOG_POOL", "default")) as client:
        # One: submit() returns when the task is in the log. From then on it is not lost.
        one = client.submit("compress", {"path": paths[0]}, priority=5, labels={"batch": "first"})
        print(one.id, one.result(timeout_s=60))

        # Many: one request for up to 1,000 of them.
        handles = client.submit_many({"kind": "compress", "payload": {"path": path}} for path in paths)
        failed = 0
        for path, handle in zip(paths, handles, strict=True):
            try:
                result = handle.result(timeout_s=60)
                print(f"{path}: {result['bytes']} -> {result['compressed']} bytes")
            except TaskDead as dead:
                failed += 1
                print(f"{path}: {dead.reason}: {dead.task.error and dead.task.error['message']}")
                # It stays there for an operator: fleetlog dead-letters, fleetlog redrive ID, fleetlog discard ID.
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["/etc/hostname"]))
