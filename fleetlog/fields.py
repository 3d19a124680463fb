"""Which fields the items of a list can have: what `--columns` may name. Loaded only where columns were chosen."""

import dataclasses
from typing import Any, Final

from commands.events import EVENT_TYPES
from fleetlog.layers import unknown
from fleetlog.problems import wrong_usage
from projections import cards, stats
from robot_gateway.wire import name_outside

_SHAPES: Final[dict[str, Any]] = {
    "task": cards.TaskCard,
    "robot": cards.RobotCard,
    "pool": cards.PoolCard,
    "target": cards.TargetCard,
    "limit": cards.LimitCard,
    "schedule": cards.ScheduleCard,
    "figures": stats.Sums,
    "figures of a robot": stats.RobotSums,
}
"""What a list is of -> the shape of its items in the tables; HTTP shows the same under its own names and units."""
_BESIDE: Final = {
    "pool": ("tasks", "robots", "sequence", "oldest_waiting_at"),
    "limit": ("held",),
    "schedule": ("id", "next"),
}
"""What HTTP adds to the shape."""
_STORED_AS: Final = {"origin": "from", "failure_class": "class", "passing": "pass", "name_": "name"}
"""Fields of events that Python calls otherwise."""


def fields_of(what: str) -> tuple[str, ...]:
    """The names of the fields of `what` (task, robot ... event), as HTTP and the command line write them."""
    if what == "event":
        found = {
            _STORED_AS.get(one.name, one.name) for kind in EVENT_TYPES.values() for one in dataclasses.fields(kind)
        }
    else:
        found = {name_outside(name) for name in _SHAPES[what].__annotations__} | set(_BESIDE.get(what, ()))
    return tuple(sorted(found))


def refuse_unknown(names: tuple[str, ...], what: str, also: tuple[str, ...]) -> None:
    """Raises Problem where a name is neither a field of `what` nor one of `also`, the columns that the list shows."""
    known = fields_of(what)
    for name in names:
        if name not in also and name.partition(".")[0] not in known:
            heads = tuple(dict.fromkeys((*also, *known)))
            raise wrong_usage(f"--columns: {unknown(name, heads, 'field').rstrip('.')}.")
