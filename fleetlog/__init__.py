"""The command line, the settings, and the one place where adapters are chosen; and the SDK under a short name:

    from fleetlog import Client, Fatal, Retry, Robot, TaskContext

The error classes of all reasons are here too (`from fleetlog import NoSuchTask`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_gateway.sdk import (
        AsyncClient as AsyncClient,
    )
    from robot_gateway.sdk import (
        AsyncTaskContext as AsyncTaskContext,
    )
    from robot_gateway.sdk import (
        AsyncTaskHandle as AsyncTaskHandle,
    )
    from robot_gateway.sdk import (
        Client as Client,
    )
    from robot_gateway.sdk import (
        Event as Event,
    )
    from robot_gateway.sdk import (
        Fatal as Fatal,
    )
    from robot_gateway.sdk import (
        FleetlogError as FleetlogError,
    )
    from robot_gateway.sdk import (
        Retry as Retry,
    )
    from robot_gateway.sdk import (
        Robot as Robot,
    )
    from robot_gateway.sdk import (
        Stopped as Stopped,
    )
    from robot_gateway.sdk import (
        Submission as Submission,
    )
    from robot_gateway.sdk import (
        Submitter as Submitter,
    )
    from robot_gateway.sdk import (
        Task as Task,
    )
    from robot_gateway.sdk import (
        TaskCancelled as TaskCancelled,
    )
    from robot_gateway.sdk import (
        TaskContext as TaskContext,
    )
    from robot_gateway.sdk import (
        TaskDead as TaskDead,
    )
    from robot_gateway.sdk import (
        TaskDiscarded as TaskDiscarded,
    )
    from robot_gateway.sdk import (
        TaskEnded as TaskEnded,
    )
    from robot_gateway.sdk import (
        TaskHandle as TaskHandle,
    )
    from robot_gateway.sdk import (
        WaitTimeout as WaitTimeout,
    )


def __getattr__(name: str) -> Any:
    """The SDK's public names, loaded when first used: the server's processes need none of them."""
    if name.startswith("_"):
        raise AttributeError(name)
    from robot_gateway import sdk

    try:
        return getattr(sdk, name)
    except AttributeError:
        raise AttributeError(f"fleetlog has no {name}") from None
