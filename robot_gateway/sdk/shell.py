"""Any program as a robot: a shell command for each kind.

The payload comes on the command's standard input: a JSON string as its bare text, anything else as JSON, nothing if
there is none. Exit code 0 is done, and what the command printed is the result: as JSON if it is a JSON object or
array, otherwise as text without the trailing newline (nothing printed: no result; bytes that are not UTF-8 become
U+FFFD). 64, 65, 126 and 127 are fatal failures, every other code and death by a signal are retryable. On `cancel` and
at a shutdown the command's process group gets SIGTERM, and SIGKILL after the cancel grace; when the lease is over,
SIGKILL at once. What a command leaves running in the background is killed when it ends. When the robot is killed, or
stopped for longer than its lease, the nursery kills its commands.

The environment says more: FLEETLOG_TASK, FLEETLOG_ATTEMPT, FLEETLOG_KIND, FLEETLOG_IDEMPOTENCY_KEY, and
FLEETLOG_CHECKPOINT (the last checkpoint as JSON, if there is one).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_gateway.sdk.robot import Robot


def parse_kind(given: str) -> tuple[str, str]:
    """Name and command of `NAME=COMMAND`; raises ValueError with what to write instead."""
    name, equals, command = given.partition("=")
    if not (name and equals and command.strip()):
        raise ValueError(f"{given!r} is not NAME='COMMAND': write for example --kind checksum='sha256sum -'")
    return name, command


def shell_robot(robot_id: str, commands: Mapping[str, str], **options: Any) -> Robot:
    """A robot that runs a shell command for each kind; `options` as for Robot."""
    robot = Robot(robot_id, **options)
    for kind, command in commands.items():
        robot.command(kind, command)
    return robot
