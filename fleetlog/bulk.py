"""A task verb with `--where`: the dry run that shows what it found, the act, and how far the gateway is with it."""

import shlex
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from fleetlog.asking import Refused
from fleetlog.choosing import body, do_to_each, named, within_its_pool
from fleetlog.output import Item
from fleetlog.problems import REFUSED, Problem, wrong_usage
from fleetlog.verb import Call

SELECT_TIMEOUT_S: Final = 300.0
"""A dry run over a million tasks takes longer than other questions."""
LOOK_EVERY_S: Final = 0.2

Where = Annotated[
    str | None,
    typer.Option("--where", metavar="FILTER", help="Instead of ids: state=DEAD kind=weld* target=dock-7 older=2h ..."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting on what --where found.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="With --where: only show what it finds; the token holds for an hour.")
]
Token = Annotated[
    str | None,
    typer.Option("--token", metavar="TOKEN", help="Act on exactly what a dry run found, or go on looking at that."),
]
Stop = Annotated[bool, typer.Option("--stop", help="With --token: send nothing more; what was done stays done.")]


class Bulk:
    """What the options of a verb say about bulk work: a filter or a token, and what to do with it."""

    def __init__(self, where: str | None, yes: bool, dry_run: bool, token: str | None, stop: bool) -> None:
        """Raises Problem where the options do not fit together."""
        self.where, self.yes, self.dry_run, self.token, self.stop = where, yes, dry_run, token, stop
        if where is not None and token is not None:
            raise wrong_usage("give --where or --token, not both: the token stands for what --where found.")
        if dry_run and where is None:
            raise wrong_usage("--dry-run belongs to --where.")
        if stop and token is None:
            raise wrong_usage("--stop belongs to --token.")

    @property
    def is_asked(self) -> bool:
        """Whether tasks are chosen in bulk, and not by their ids."""
        return self.where is not None or self.token is not None

    def do(self, call: Call, verb: str, said: dict[str, Any]) -> None:
        """Dry run, question, act; `said` are the reason and the verb's own fields. Raises Problem."""
        if self.stop:
            _summary(call, call.gateway.post(f"/v1/bulk/{self.token}/cancel"))
            return
        token = self.token or self._select(call, verb)
        if token is None:
            return
        work = self._known(call, verb) or call.gateway.post("/v1/bulk", {"verb": verb, "token": token} | said)
        try:
            work = _follow(call, work)
        except KeyboardInterrupt:
            call.out.note(
                f"the gateway goes on with it. Look: fleetlog {verb} --token {token}{_again(said)}\n"
                f"End it: fleetlog {verb} --token {token}{_again(said)} --stop"
            )
            raise
        call.gateway.settle({"pool": _pool_of(str(work["position"] or "")), "position": work["position"]})
        _summary(call, work)
        refused = sum(work["refused"].values())
        if refused:
            raise Problem(f"{refused} of {work['count']} tasks were refused; the reasons stand above.")
        if work["state"] != "done":
            raise Problem(f"it ended after {work['done']} of {work['count']} tasks: {work.get('why', 'stopped')}.")

    def _known(self, call: Call, verb: str) -> Item | None:
        """The work that was begun with this token before, or None."""
        if self.token is None:
            return None
        try:
            work: Item = call.gateway.get(f"/v1/bulk/{self.token}")
        except Refused as refused:
            if refused.reason != "no_such_bulk":
                raise
            return None
        if work["verb"] != verb:
            raise Problem(f"this token is that of a {work['verb']}: fleetlog {work['verb']} --token {self.token}")
        call.out.note("it was begun before; options that are given now change nothing.")
        return work

    def _select(self, call: Call, verb: str) -> str | None:
        """The token for what the filter found, when the user wants it; None where there is nothing to do."""
        within_its_pool(call, self.where)
        asked = body(verb=verb, pool=None if call.pool == "*" else call.pool, filter=self.where, dry_run=True)
        call.gateway.timeout_s = max(call.gateway.timeout_s, SELECT_TIMEOUT_S)
        found = call.gateway.post("/v1/bulk", asked)
        if self.dry_run:
            if call.out.as_json:
                call.out.json(found)
                return None
            _show(call, found)
            call.out.text(found["token"])
            call.out.note(f"do it: fleetlog {verb} --token {found['token']}")
            return None
        if not found["count"]:
            call.out.note(f"no task matches {self.where!r} in a state that {verb} is for.")
            return None
        _show(call, found)
        count = found["count"]
        if not self.yes and not _agreed(f"{verb} {count} task{'s' if count > 1 else ''}?"):
            raise Problem("nothing was done.", REFUSED)
        return str(found["token"])


def act(
    call: Call,
    verb: str,
    tasks: list[str] | None,
    bulk: Bulk,
    said: dict[str, Any],
    done: Callable[[Item], str],
    ask: Callable[[str, str], Item] | None = None,
) -> None:
    """Does a task verb to the tasks that are named, or in bulk. `done`: what an answer means, in words. `ask`: how one
    task is asked about by its path, where that is not a POST of `said` under the verb's name. Raises Problem.
    """
    if tasks and bulk.is_asked:
        raise wrong_usage("give ids, --where or --token, not several of them.")
    if bulk.is_asked:
        bulk.do(call, verb, said)
        return
    ask = ask or (lambda path, _: call.gateway.post(f"{path}/{verb}", said))
    do_to_each(call, named(call, tasks, verb), verb, done, ask)


def _show(call: Call, found: Item) -> None:
    """Count, states and examples of a dry run."""
    for example in found["examples"]:
        name = example["id"] if example["pool"] == call.pool else f"{example['pool']}/{example['id']}"
        call.out.note(f"  {name}  {example['state']}")
    if found["count"] > len(found["examples"]):
        call.out.note(f"  ... and {found['count'] - len(found['examples'])} more")
    states = ", ".join(f"{count} {state}" for state, count in found["states"].items())
    call.out.note(f"{found['count']} found{f': {states}' if states else ''}.")


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise wrong_usage("nobody can answer here: say --yes to act on what --where found.")
    return typer.confirm(question, err=True)


def _follow(call: Call, work: Item) -> Item:
    """The work when it is over; shows how far it is. A gateway that restarts meanwhile is waited for."""
    waits = None
    with call.out.progress(str(work["verb"]), int(work["count"])) as advance:
        advance(int(work["done"]))
        while work["state"] == "going_on":
            time.sleep(LOOK_EVERY_S)
            newer = call.gateway.get(f"/v1/bulk/{work['id']}")
            advance(int(newer["done"]) - int(work["done"]))
            work = newer
            if work.get("why") not in (None, waits) and work["state"] == "going_on":
                waits = work["why"]
                call.out.note(f"it waits: {waits}.")
    return work


def _summary(call: Call, work: Item) -> None:
    """A line for each outcome and each reason, with the first refusals."""
    if call.out.as_json:
        call.out.json(work)
        return
    for refusal in work["refusals"]:
        call.out.note(f"{refusal['task']}: {refusal['detail']} [{refusal['reason']}]")
    rows = [{"outcome": word, "tasks": count} for word, count in work["outcomes"].items()]
    rows += [{"outcome": f"refused {reason}", "tasks": count} for reason, count in work["refused"].items()]
    if not call.out.quiet:
        call.out.rows(rows, ("outcome", "tasks"))


def _again(said: dict[str, Any]) -> str:
    """The reason, which some verbs do not do without."""
    return f" --reason {shlex.quote(said['reason'])}" if "reason" in said else ""


def _pool_of(position: str) -> str:
    """The pool that a position speaks of, or an empty text."""
    return position.partition("~")[2].partition("@")[0] if "@" in position else ""
