"""Commands to the reserved pool of a partition, which the owner carries out in every pool that it has."""

from collections.abc import Mapping

from commands import events as e
from commands.inputs import AcceptClock, CommandBase, RaiseFormat
from commands.pool import Cause, Pool

Pools = Mapping[str, Pool]


def accept_clock(asked: AcceptClock, pools: Pools, nows: Mapping[str, int], wall_at: int) -> None:
    """A clock step is accepted in each other pool, by the same command."""
    for name, pool in pools.items():
        if pool.state.exists and name != asked.pool:
            now = pool.instant(nows[name])
            pool.note(e.ClockAccepted(from_at=now, to_at=wall_at, reason=asked.body.reason), _cause(asked, name), now)


def raise_format(asked: RaiseFormat, pools: Pools, nows: Mapping[str, int]) -> None:
    """A format is raised in each pool, by the same command, where the reserved pool accepted it."""
    to = asked.body.to_format
    if pools[asked.pool].state.format < to:
        return
    for name, pool in pools.items():
        now, state = pool.instant(nows[name]), pool.state
        if state.exists and state.format < to:
            pool.note(e.FormatRaised(from_format=state.format, to_format=to), _cause(asked, name), now)


def _cause(asked: CommandBase, pool: str) -> Cause:
    """As of a command to that pool itself."""
    return Cause(f"command:{asked.id}", asked.actor, (pool, "command", asked.actor, asked.id))
