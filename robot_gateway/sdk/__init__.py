"""The Python SDK for robots and submitters; it needs neither Kafka nor RocksDB.

`Robot` and its contexts for robots; `Client`, `AsyncClient` and `Submitter` for submitters; errors derive from
`FleetlogError`, one class per reason. Names are imported when first used, so a robot does not load an HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from robot_gateway.sdk.async_client import AsyncClient as AsyncClient
    from robot_gateway.sdk.async_client import AsyncTaskHandle as AsyncTaskHandle
    from robot_gateway.sdk.client import Client as Client
    from robot_gateway.sdk.client import TaskHandle as TaskHandle
    from robot_gateway.sdk.context import AsyncTaskContext as AsyncTaskContext
    from robot_gateway.sdk.context import TaskContext as TaskContext
    from robot_gateway.sdk.errors import (
        Fatal as Fatal,
    )
    from robot_gateway.sdk.errors import (
        FleetlogError as FleetlogError,
    )
    from robot_gateway.sdk.errors import (
        Retry as Retry,
    )
    from robot_gateway.sdk.errors import (
        Stopped as Stopped,
    )
    from robot_gateway.sdk.errors import (
        TaskCancelled as TaskCancelled,
    )
    from robot_gateway.sdk.errors import (
        TaskDead as TaskDead,
    )
    from robot_gateway.sdk.errors import (
        TaskDiscarded as TaskDiscarded,
    )
    from robot_gateway.sdk.errors import (
        TaskEnded as TaskEnded,
    )
    from robot_gateway.sdk.errors import (
        WaitTimeout as WaitTimeout,
    )
    from robot_gateway.sdk.resources import Event as Event
    from robot_gateway.sdk.resources import Submission as Submission
    from robot_gateway.sdk.resources import Task as Task
    from robot_gateway.sdk.robot import Robot as Robot
    from robot_gateway.sdk.shell import parse_kind as parse_kind
    from robot_gateway.sdk.shell import shell_robot as shell_robot
    from robot_gateway.sdk.submitter import Submitter as Submitter

HOMES: Final[dict[str, tuple[str, ...]]] = {
    "async_client": ("AsyncClient", "AsyncTaskHandle"),
    "client": ("Client", "TaskHandle"),
    "context": ("AsyncTaskContext", "TaskContext"),
    "errors": (
        "Fatal",
        "FleetlogError",
        "Retry",
        "Stopped",
        "TaskCancelled",
        "TaskDead",
        "TaskDiscarded",
        "TaskEnded",
        "WaitTimeout",
    ),
    "resources": ("Event", "Submission", "Task"),
    "robot": ("Robot",),
    "shell": ("parse_kind", "shell_robot"),
    "submitter": ("Submitter",),
}
"""Module -> the public names that live there."""
_HOME_OF: Final = {name: module for module, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The public names, and the error classes of the reasons, when first used."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(import_module(f"robot_gateway.sdk.{_HOME_OF.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
