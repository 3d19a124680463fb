"""A test kit for those who write robots and workflows: a fleet in the test's own process, on a virtual clock.

    from fleetlog.testing import Fleet

    with Fleet() as fleet:
        fleet.robot("r1", kinds={"checksum": handler})
        task = fleet.submit("checksum", payload="hello")
        fleet.advance(seconds=5)
        assert task.state == "COMPLETED"

It needs `fleetlog[server]`. Names are imported when first used, so the pytest plugin costs nothing where no test asks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fleetlog.sim.faults import FAULTS
    from fleetlog.testing.fleet import DidNotHappen, Fleet, InvariantBroken
    from fleetlog.testing.robots import Robot
    from fleetlog.testing.stories import after, command, dispatch, event, given, says
    from fleetlog.testing.strands import HandlerHangs
    from fleetlog.testing.tasks import Task

__all__ = [
    "FAULTS",
    "DidNotHappen",
    "Fleet",
    "HandlerHangs",
    "InvariantBroken",
    "Robot",
    "Task",
    "after",
    "command",
    "dispatch",
    "event",
    "given",
    "says",
]

_HOMES: Final = {
    "fleetlog.sim.faults": ("FAULTS",),
    "fleetlog.testing.fleet": ("DidNotHappen", "Fleet", "InvariantBroken"),
    "fleetlog.testing.stories": ("after", "command", "dispatch", "event", "given", "says"),
    "fleetlog.testing.robots": ("Robot",),
    "fleetlog.testing.strands": ("HandlerHangs",),
    "fleetlog.testing.tasks": ("Task",),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}
_SERVER: Final = frozenset({"cronsim", "fastapi", "prometheus_client", "rocksdict", "starlette", "uvicorn"})
"""What the extra `server` brings, as modules."""


def __getattr__(name: str) -> Any:
    """The public names, when first used. Raises ImportError, with what to install, where the extra is missing."""
    if name not in _HOME_OF:
        raise AttributeError(f"fleetlog.testing has no {name}")
    try:
        return getattr(import_module(_HOME_OF[name]), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _SERVER:
            raise
        raise ImportError("fleetlog.testing runs the whole product: install fleetlog[server]") from missing


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
