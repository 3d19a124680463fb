"""Set up: limits of a kind or limit key."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from fleetlog import listing
from fleetlog.asking import part
from fleetlog.choosing import body
from fleetlog.listing import Columns, Watch
from fleetlog.problems import wrong_usage
from fleetlog.telling import limit_words
from fleetlog.verb import POOL_AND_GATEWAY, SET_UP, Call, verb

LIMIT_COLUMNS: Final = ("scope", "name", "held", "running", "rate_per_s", "burst", "set_at", "actor")


class Scope(StrEnum):
    """What a limit is for."""

    kind = "kind"
    key = "key"


ScopeWord = Annotated[Scope, typer.Argument(metavar="kind|key", help="A kind, or the limit key that tasks name.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Which kind, which key.")]


def _path(call: Call, scope: Scope, name: str) -> str:
    return f"/v1/pools/{part(call.pool)}/limits/{scope.value}/{part(name)}"


@verb(
    "limit set",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog limit set kind report --running 4", "fleetlog limit set key tenant-1 --rate 2.5 --burst 10"),
)
def limit_set(
    call: Call,
    scope: ScopeWord,
    name: Name,
    running: Annotated[int | None, typer.Option("--running", metavar="N", min=1, help="So many at once.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0, help="So many begin in a second; 0.1: one in 10 s.")
    ] = None,
    burst: Annotated[
        int | None, typer.Option("--burst", metavar="N", min=1, help="With --rate: so many together; default: 1.")
    ] = None,
) -> None:
    """Limit a kind or key, or replace its limit: tasks at once, tasks begun in a time, or both.

    What runs goes on. A rate that is set begins with its whole burst.
    """
    if running is None and rate is None:
        raise wrong_usage("what is the limit? Give --running, --rate or both.")
    answer = call.gateway.put(_path(call, scope, name), body(running=running, rate_per_s=rate, burst=burst))
    call.gateway.settle(answer)
    call.out.say(answer, f"{scope.value} {name} limited: {limit_words(answer)}")


@verb(
    "limit list",
    SET_UP,
    POOL_AND_GATEWAY,
    ("fleetlog limit list", "fleetlog limit list --columns scope,name,held,running"),
)
def limit_list(call: Call, columns: Columns = None, watch: Watch = False) -> None:
    """List the limits of a pool, and how many tasks of each are held: ASSIGNED, RUNNING or LOST."""
    path = f"/v1/pools/{part(call.pool)}/limits"
    listing.show(call, "limit", lambda: call.gateway.get(path)["items"], LIMIT_COLUMNS, columns, watch)


@verb("limit rm", SET_UP, POOL_AND_GATEWAY, ("fleetlog limit rm kind report", "fleetlog limit rm key tenant-1"))
def limit_rm(call: Call, scope: ScopeWord, name: Name) -> None:
    """Remove a limit: what waited for it goes on at once."""
    answer = call.gateway.delete(_path(call, scope, name))
    call.gateway.settle(answer)
    call.out.say(answer, f"{scope.value} {name} is not limited any more")
