"""The command line, the settings, and the one place where adapters are chosen; and the SDK under a short name:

    from fleetlog import Client, Fatal, Retry, Robot, TaskContext

The error classes of all reasons are here too (`from fleetlog import NoSuchTask`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_gateway.sdk import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The SDK's public names, loaded when first used: the server's processes need none of them."""
    if name.startswith("_"):
        raise AttributeError(name)
    from robot_gateway import sdk

    try:
        return getattr(sdk, name)
    except AttributeError:
        raise AttributeError(f"fleetlog has no {name}") from None
