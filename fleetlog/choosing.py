"""Which tasks a verb is about, by their ids or `-` (ids from standard input); and doing it to each of them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final

import typer

from fleetlog.asking import Refused, part
from fleetlog.output import Item
from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import Call

BAR_FROM: Final = 20

Tasks = Annotated[
    list[str] | None, typer.Argument(metavar="TASK", help="Ids of tasks; - reads them from standard input.")
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]
NeededReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]


def in_pool(call: Call, where: str | None) -> str:
    """The filter, within the pool of the call (`--pool '*'`: all pools). Raises Problem."""
    within_its_pool(call, where)
    return (where or "") if call.pool == "*" else f"pool={call.pool} {where or ''}".strip()


def within_its_pool(call: Call, where: str | None) -> None:
    """Raises Problem where the filter names another pool than the one that is looked at: it would find nothing."""
    pools = [part[5:] for part in (where or "").split() if part.startswith("pool=")]
    if call.pool != "*" and pools and pools != [call.pool]:
        raise wrong_usage(f"--where names pool {pools[0]}, and this looks in pool {call.pool}: say --pool {pools[0]}.")


def named(call: Call, ids: list[str] | None, verb: str) -> list[tuple[str, str]]:
    """(pool, id) of the tasks that were named. Raises Problem."""
    if not ids:
        raise wrong_usage(f"which tasks? Give ids, - to read them, or --where: fleetlog {verb} --where 'kind=weld*'.")
    if call.pool == "*":
        raise wrong_usage("ids belong to one pool: name it with --pool.")
    return [(call.pool, task) for task in from_arguments(ids)]


def from_arguments(ids: Iterable[str]) -> Iterator[str]:
    """The ids; `-` stands for those on standard input, the first word of each line."""
    for given in ids:
        if given != "-":
            yield given
            continue
        for line in sys.stdin:
            words = line.replace("\t", " ").split()
            if words:
                yield words[0]


def do_to_each(
    call: Call, tasks: list[tuple[str, str]], verb: str, done: Callable[[Item], str], ask: Callable[[str, str], Item]
) -> None:
    """Asks for each task and says what came of it; goes on after a refusal. Raises Problem if any was refused."""
    refusals: list[Refused] = []
    last: Item = {}
    with call.out.progress(verb, len(tasks) if len(tasks) >= BAR_FROM else 0) as advance:
        for pool, task in tasks:
            try:
                answer = ask(f"/v1/pools/{part(pool)}/tasks/{part(task)}", task)
            except Refused as refused:
                refusals.append(refused)
                if len(tasks) > 1:
                    call.out.note(f"{task}: {refused}")
            else:
                last = answer
                call.out.say(answer, f"{task} {done(answer)}")
            advance(1)
    call.gateway.settle(last)
    if len(tasks) == 1 and refusals:
        raise refusals[0]
    if refusals:
        raise Problem(f"{len(refusals)} of {len(tasks)} tasks were refused; the reasons stand above.")


def body(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}
