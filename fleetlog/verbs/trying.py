"""Try: how fast it is here, and whether everything is as it should be."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from fleetlog.problems import Problem
from fleetlog.verb import TRY, Call, Uses, gateway_url, verb

STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}


@verb("doctor", TRY, Uses.LOG | Uses.PROCESS, ("fleetlog doctor", "fleetlog doctor --json"))
def doctor(
    call: Call,
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway", metavar="URL", envvar="FLEETLOG_GATEWAY", help="Default: where the settings let it listen."
        ),
    ] = None,
) -> None:
    """Look at versions, settings, tokens, disk, log, brokers, port and clock: a line each, with the remedy.

    Exit code 1 where something is wrong.
    """
    from fleetlog.doctor import examine

    bad = 0
    for finding in examine(call.settings, (gateway or gateway_url(call.config)).rstrip("/")):
        bad += finding.verdict == "bad"
        if call.out.as_json:
            call.out.json({"what": finding.what, "verdict": finding.verdict, "text": finding.text})
        elif call.out.terminal:
            style = STYLES[finding.verdict]
            call.out.console().print(f"[{style}]{finding.verdict:4}[/{style}] [bold]{finding.what:10}[/bold]", end=" ")
            call.out.console().print(finding.text, markup=False)
        elif not call.out.quiet or finding.verdict == "bad":
            call.out.text(f"{finding.verdict}\t{finding.what}\t{finding.text}")
    if bad:
        raise Problem(f"{bad} things need mending; the remedies stand above.")


# ---- benchmarks ----


class LogKind(StrEnum):
    """Where the log of a benchmark lies."""

    memory = "memory"
    embedded = "embedded"
    kafka = "kafka"


OfLog = Annotated[LogKind, typer.Option("--log", help="Which log it is measured on.")]
Brokers = Annotated[str | None, typer.Option("--kafka", metavar="HOST:PORT,...", help="With --log kafka: the brokers.")]
TasksCount = Annotated[int, typer.Option("--tasks", min=10, metavar="N", help="How many tasks.")]
RobotsCount = Annotated[int, typer.Option("--robots", min=1, metavar="N", help="Robots of 256 slots, each a process.")]


@verb(
    "bench lives",
    TRY,
    Uses.NOTHING,
    ("fleetlog bench lives --tasks 300", "fleetlog bench lives --tasks 300 --log memory --json"),
)
def bench_lives(
    call: Call,
    log: OfLog = LogKind.embedded,
    kafka: Brokers = None,
    tasks: TasksCount = 50_000,
    robots: RobotsCount = 2,
) -> None:
    """Measure how many tasks a second are submitted, assigned, done and durable, on a fresh log of this machine."""
    from fleetlog.bench.lives import measure_lives

    _measure(call, log, kafka, lambda product: measure_lives(product, tasks, robots))


@verb(
    "bench latency",
    TRY,
    Uses.NOTHING,
    ("fleetlog bench latency --seconds 2", "fleetlog bench latency --seconds 2 --log memory --json"),
)
def bench_latency(
    call: Call,
    log: OfLog = LogKind.embedded,
    kafka: Brokers = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 30.0,
) -> None:
    """Measure the time from submission to assignment, with 50 tasks a second for an idle robot."""
    from fleetlog.bench.latency import measure_latency

    _measure(call, log, kafka, lambda product: measure_latency(product, seconds))


@verb(
    "bench rebuild",
    TRY,
    Uses.NOTHING,
    ("fleetlog bench rebuild --tasks 300", "fleetlog bench rebuild --tasks 300 --log memory --json"),
)
def bench_rebuild(
    call: Call,
    log: OfLog = LogKind.embedded,
    kafka: Brokers = None,
    tasks: TasksCount = 50_000,
    robots: RobotsCount = 2,
) -> None:
    """Measure how fast the tables are built anew from the events of so many tasks."""
    from fleetlog.bench.lives import measure_lives
    from fleetlog.bench.rebuild import measure_rebuild

    def both(product: Any) -> dict[str, Any]:
        measure_lives(product, tasks, robots)
        return measure_rebuild(product)

    _measure(call, log, kafka, both)


def _measure(call: Call, log: LogKind, kafka: str | None, measure: Callable[[Any], dict[str, Any]]) -> None:
    from fleetlog.bench.product import BenchProblem, running

    call.out.note("measuring ...")
    try:
        with running(log.value, kafka) as product:
            figures = measure(product)
    except BenchProblem as problem:
        raise Problem(f"{str(problem).rstrip('.')}.") from None
    call.out.card({"log": log.value} | figures)
