"""Long work that goes on where the robot before it died.

    python examples/checkpoint_and_resume.py robot-a &     (and robot-b, in another terminal)
    fleetlog submit sum --payload '{"upto": 400, "pause_s": 0.05}' --wait
    kill -9 the robot that works: the other one goes on from the last checkpoint.

A checkpoint is durable when ctx.checkpoint() returns. The same idempotency key comes with every attempt, for systems
that can recognise repeated work by it.
"""

import os
import sys
from typing import Any

from fleetlog import Robot, TaskContext

CHECKPOINT_EVERY = 20  # numbers: about a second's work, for Fleetlog takes one a second; more often would wait


def robot_named(name: str) -> Robot:
    """A robot that adds numbers."""
    robot = Robot(
        name,
        gateway=os.environ.get("FLEETLOG_GATEWAY", "http://127.0.0.1:8780"),
        pool=os.environ.get("FLEETLOG_POOL", "default"),
    )

    @robot.task("sum")
    def add_up(ctx: TaskContext, payload: dict[str, Any]) -> dict[str, Any]:
        """1 + 2 + ... + upto, slowly."""
        saved = ctx.last_checkpoint or {"next": 1, "sum": 0}
        resumed_at, number, total = saved["next"], saved["next"], saved["sum"]
        while number <= payload["upto"]:
            if ctx.cancelled:
                # Told to end (cancelled, lease over, shutting down): leave the place for whoever comes next.
                raise ctx.Stopped(checkpoint={"next": number, "sum": total})
            total += number
            number += 1
            ctx.progress(100 * (number - 1) // payload["upto"])
            if (number - resumed_at) % CHECKPOINT_EVERY == 0:
                ctx.checkpoint({"next": number, "sum": total})
            ctx.sleep(payload.get("pause_s", 0))  # ends at once when the handler should end
        return {"sum": total, "resumed_at": resumed_at, "attempt": ctx.attempt, "robot": robot.id}

    return robot


if __name__ == "__main__":
    robot_named(sys.argv[1] if len(sys.argv) > 1 else "robot-a").run(grace_s=5)
