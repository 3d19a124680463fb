"""Try: the whole product in one process on a virtual clock, with faults drawn from a seed."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from logging import CRITICAL, disable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetlog.problems import Problem
from fleetlog.verb import TRY, Call, Uses, verb

if TYPE_CHECKING:
    from fleetlog.sim.coverage import Coverage
    from fleetlog.sim.world import Plan, Result


@verb(
    "sim",
    TRY,
    Uses.NOTHING,
    ("fleetlog sim --seed 7 --hours 0.01", "fleetlog sim --seeds 2 --hours 0.01 --coverage --json"),
)
def sim(
    call: Call,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed; the same one plays the same.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds, one after the other.")] = 1,
    hours: Annotated[float, typer.Option(min=0.001, metavar="H", help="Virtual hours of work and faults.")] = 0.1,
    robots: Annotated[int, typer.Option(min=1, max=5_000, metavar="N", help="How many robots.")] = 20,
    rate: Annotated[float, typer.Option(min=0.01, metavar="PER_S", help="Tasks submitted a second.")] = 2.0,
    fault_every: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Virtual seconds between two faults on average; 0: none.")
    ] = 4.0,
    processes: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Seeds played at once.")] = 1,
    events: Annotated[
        int, typer.Option(min=0, metavar="N", help="Work and faults go on until a seed has so many events.")
    ] = 0,
    verbs_every: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Virtual seconds between two verbs of operators; 0: none.")
    ] = 3.0,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Also show which fault came after which step, how often.")
    ] = False,
    counts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add these counts to those in FILE; fail where a cell is empty in both."),
    ] = None,
    work: Annotated[float, typer.Option(min=0.01, metavar="S", help="What a task takes on average.")] = 4.0,
) -> None:
    """Play owners, gateways, projector, robots and submitters against faults, and judge what the log says.

    Everything but the network, the clocks and the broker is the product's own code. What breaks an invariant is shown
    with its seed and the events that led there; exit code 1.
    """
    from fleetlog.sim.coverage import Coverage
    from fleetlog.sim.world import Plan

    plan = Plan(
        seconds=hours * 3_600,
        robots=robots,
        per_s=rate,
        fault_every_s=fault_every,
        work_s=work,
        events_min=events,
        verbs_every_s=verbs_every,
    )
    seen, bad, written = Coverage(), 0, 0
    for result in _results(call, range(seed, seed + seeds), plan, processes):
        seen += result.coverage
        written += result.events
        bad += bool(result.findings)
        _tell(call, result)
    if counts is not None:
        seen = seen.add_to(counts)
    if coverage:
        _tell_coverage(call, seen)
    if bad:
        raise Problem(f"{bad} of {seeds} seeds broke a rule; play one again with --seed.")
    if counts is not None and (empty := len(seen.empty())):
        raise Problem(f"{empty} cells of {counts} are empty: faults that never came there. Play more seeds.")
    call.out.note(f"{seeds} seeds, {written} events: every rule held.")


def _results(call: Call, seeds: range, plan: "Plan", processes: int) -> "Iterator[Result]":
    from fleetlog.sim.world import simulate

    with call.out.progress("seeds", len(seeds)) as done, _quiet():
        if processes == 1:
            for seed in seeds:
                yield simulate(seed, plan)
                done(1)
            return
        with ProcessPoolExecutor(processes, initializer=partial(disable, CRITICAL)) as pool:
            for result in pool.map(partial(simulate, plan=plan), seeds):
                yield result
                done(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """The parts of the product complain about faults, as they should; here that is no news."""
    disable(CRITICAL)
    try:
        yield
    finally:
        disable(0)


def _tell(call: Call, result: "Result") -> None:
    said = {
        "seed": result.seed,
        "tasks": result.tasks,
        "acknowledged": result.acknowledged,
        "events": result.events,
        "faults": result.faults,
        "done_twice_and_said": result.said_twice,
        "virtual_s": round(result.virtual_s),
        "findings": [f"{finding.rule}: {finding.text}" for finding in result.findings],
    }
    verdict = f"{len(result.findings)} FINDINGS" if result.findings else "good"
    text = (
        f"seed {result.seed}: {result.tasks} tasks, {result.events} events, {result.faults} faults, "
        f"{result.virtual_s:.0f} virtual seconds: {verdict}"
    )
    call.out.say(said, text)
    if result.findings and not call.out.as_json:
        for line in result.stories:
            call.out.text(line)


def _tell_coverage(call: Call, seen: "Coverage") -> None:
    """The smallest count over all states, for each fault and step; all empty cells by name with --json."""
    empty = [f"{fault} after step {step} with a task {state}" for fault, step, state in seen.empty()]
    call.out.say({"empty_cells": empty}, "\n".join(["", "How often a fault came after a step, in the rarest state:"]))
    if not call.out.as_json:
        for line in seen.table():
            call.out.text(line)
