"""The Python SDK for robots and submitters; it needs neither Kafka nor RocksDB.

`Robot` and its contexts for robots; `Client`, `AsyncClient` and `Submitter` for submitters; errors derive from
`FleetlogError`, one class per reason. Names are imported when first used, so a robot does not load an HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from robot_gateway.sdk.async_client import AsyncClient, AsyncTaskHandle
    from robot_gateway.sdk.client import Client, TaskHandle
    from robot_gateway.sdk.context import AsyncTaskContext, TaskContext
    from robot_gateway.sdk.done import Done, DoneTable
    from robot_gateway.sdk.errors import (
        Fatal,
        FleetlogError,
        Reject,
        Retry,
        Stopped,
        TaskCancelled,
        TaskDead,
        TaskDiscarded,
        TaskEnded,
        WaitTimeout,
    )
    from robot_gateway.sdk.resources import Event, Submission, Task
    from robot_gateway.sdk.robot import Robot
    from robot_gateway.sdk.shell import parse_kind, shell_robot
    from robot_gateway.sdk.submitter import Submitter

__all__ = [
    "AsyncClient",
    "AsyncTaskContext",
    "AsyncTaskHandle",
    "Client",
    "Done",
    "DoneTable",
    "Event",
    "Fatal",
    "FleetlogError",
    "Reject",
    "Retry",
    "Robot",
    "Stopped",
    "Submission",
    "Submitter",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskDead",
    "TaskDiscarded",
    "TaskEnded",
    "TaskHandle",
    "WaitTimeout",
    "parse_kind",
    "shell_robot",
]

HOMES: Final[dict[str, tuple[str, ...]]] = {
    "async_client": ("AsyncClient", "AsyncTaskHandle"),
    "client": ("Client", "TaskHandle"),
    "context": ("AsyncTaskContext", "TaskContext"),
    "done": ("Done", "DoneTable"),
    "errors": (
        "Fatal",
        "FleetlogError",
        "Reject",
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
    if name in HOMES:
        return import_module(f"robot_gateway.sdk.{name}")
    return getattr(import_module(f"robot_gateway.sdk.{_HOME_OF.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
