"""Try: how fast it is here."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import TRY, Call, Uses, verb


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
    """Measure how many tasks a second are submitted, assigned, done and durable, on a fresh log of this machine.

    Beside it stands the floor from the same run: records of the same sizes moved once more with no logic.
    """
    from fleetlog.bench.bare import measure_bare_lives, moved_by
    from fleetlog.bench.lives import measure_lives

    def both(product: Any) -> dict[str, Any]:
        figures = measure_lives(product, tasks, robots)
        reader = product.reader()
        moved, partitions = moved_by(reader), reader.partitions
        reader.close()
        bare_s = measure_bare_lives(log.value, kafka, moved, partitions)
        lives_s = figures["completed"] / figures["lives_per_s"]
        return figures | {"bare_s": round(bare_s, 2), "times_bare": round(lives_s / bare_s, 2)}

    _measure(call, log, kafka, both)


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
    """Measure the time from submission to assignment, with 50 tasks a second for an idle robot.

    Beside it stands the floor from the same run: bare transactions of the same log at the same pace.
    """
    from fleetlog.bench.bare import measure_bare
    from fleetlog.bench.latency import RATE_PER_S, measure_latency

    def both(product: Any) -> dict[str, Any]:
        return measure_latency(product, seconds) | measure_bare(log.value, kafka, RATE_PER_S, min(seconds, 10.0))

    _measure(call, log, kafka, both)


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


@verb(
    "bench dispatch",
    TRY,
    Uses.NOTHING,
    (
        "fleetlog bench dispatch --tasks 1000 --targets 100 --robots 10 --lives 500",
        "fleetlog bench dispatch --tasks 100,1000 --targets 1,50 --robots 10 --lives 200 --json",
    ),
)
def bench_dispatch(
    call: Call,
    tasks: Annotated[str, typer.Option("--tasks", metavar="N,...", help="How many wait.")] = "1000,30000,1000000",
    targets: Annotated[str, typer.Option("--targets", metavar="N,...", help="For how many targets.")] = "1,10000",
    robots: Annotated[str, typer.Option("--robots", metavar="N,...", help="For how many robots.")] = "10,5000",
    lives: Annotated[int, typer.Option("--lives", min=1, help="How many lives are measured.")] = 20_000,
) -> None:
    """Measure what many waiting tasks cost: processor time of a life, memory, snapshots; each case in a fresh process.

    Decide, evolve and encode together, without a log. A million tasks take some 2 GB and minutes for each case. The
    last line says what the most tasks cost beside the fewest, and the worst of the rest.
    """
    from fleetlog.bench.dispatch import measure_dispatch

    with _measuring(call):
        for figures in measure_dispatch(_numbers(tasks), _numbers(targets), _numbers(robots), lives):
            call.out.card(figures)


def _numbers(words: str) -> list[int]:
    found = words.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) for word in found):
        raise wrong_usage(f"{words!r} is not a list of numbers such as 1000,30000.")
    return [int(word) for word in found]


class LogOnDisk(StrEnum):
    """Where the log of a benchmark lies whose product is a process tree of its own."""

    embedded = "embedded"
    kafka = "kafka"


OfLogOnDisk = Annotated[LogOnDisk, typer.Option("--log", help="Which log it is measured on.")]


@verb(
    "bench robots",
    TRY,
    Uses.NOTHING,
    (
        "fleetlog bench robots --robots 20 --rate 20 --seconds 1 --window 1",
        "fleetlog bench robots --robots 20 --rate 20 --seconds 1 --window 1 --json",
    ),
)
def bench_robots(
    call: Call,
    log: OfLogOnDisk = LogOnDisk.embedded,
    kafka: Brokers = None,
    robots: Annotated[int, typer.Option("--robots", min=1, metavar="N", help="How many are connected.")] = 5_000,
    rate: Annotated[float, typer.Option("--rate", min=1, metavar="PER_S", help="Tasks a second.")] = 200.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long tasks come.")] = 30.0,
    window: Annotated[float, typer.Option("--window", min=1, metavar="S", help="The pool's window.")] = 10.0,
) -> None:
    """Measure one gateway with many robots connected: memory of a session, time from submission to assignment."""
    from fleetlog.bench.robots import measure_robots

    pool = {"window_s": window, "lease_s": 3 * window}
    _measure_apart(call, log, kafka, lambda product: [measure_robots(product, robots, window, rate, seconds)], pool)


@verb(
    "bench fail-over",
    TRY,
    Uses.NOTHING,
    ("fleetlog bench fail-over --rounds 1 --lease 3", "fleetlog bench fail-over --rounds 1 --lease 3 --json"),
)
def bench_fail_over(
    call: Call,
    log: OfLogOnDisk = LogOnDisk.embedded,
    kafka: Brokers = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, metavar="N", help="How often the product is killed.")] = 5,
    lease: Annotated[float | None, typer.Option("--lease", min=3, metavar="S", help="Default: the pool's own.")] = None,
) -> None:
    """Measure how long work stands still when a robot at work, or the whole product, is killed (SIGKILL)."""
    from fleetlog.bench.fail_over import measure_fail_over

    pool = None if lease is None else {"window_s": lease / 3, "lease_s": lease}
    _measure_apart(call, log, kafka, lambda product: [measure_fail_over(product, rounds)], pool)


@verb(
    "bench soak",
    TRY,
    Uses.NOTHING,
    ("fleetlog bench soak --minutes 0.05 --every 1 --rate 20", "fleetlog bench soak --minutes 0.05 --every 1 --json"),
)
def bench_soak(
    call: Call,
    log: OfLogOnDisk = LogOnDisk.embedded,
    kafka: Brokers = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.05, metavar="N", help="How long.")] = 60.0,
    rate: Annotated[float, typer.Option("--rate", min=1, metavar="PER_S", help="Lives a second.")] = 500.0,
    every: Annotated[float, typer.Option("--every", min=1, metavar="S", help="How often figures are taken.")] = 60.0,
) -> None:
    """Measure whether memory, latency and disk stay as they are at a steady rate: a look each minute, then compared."""
    from fleetlog.bench.soak import measure_soak

    _measure_apart(call, log, kafka, lambda product: measure_soak(product, rate, minutes, every))


def _measure(call: Call, log: LogKind, kafka: str | None, measure: Callable[[Any], dict[str, Any]]) -> None:
    """Shows the figures once the product, whatever its log, has ended."""
    from fleetlog.bench.product import running

    with _measuring(call):
        with running(log.value, kafka) as product:
            figures = measure(product)
        call.out.card({"log": log.value} | figures)


def _measure_apart(
    call: Call,
    log: LogOnDisk,
    kafka: str | None,
    measure: Callable[[Any], Iterable[dict[str, Any]]],
    pool: dict[str, Any] | None = None,
) -> None:
    """The same with a product that can be killed; figures are shown as they come."""
    from fleetlog.bench.product import running_apart

    with _measuring(call), running_apart(log.value, kafka, pool) as product:
        for figures in measure(product):
            call.out.card({"log": log.value} | figures)


@contextmanager
def _measuring(call: Call) -> Iterator[None]:
    """Says that it begins, and in one sentence why it could not be done."""
    from fleetlog.bench.product import BenchProblem

    call.out.note("measuring ...")
    try:
        yield
    except BenchProblem as problem:
        raise Problem(f"{str(problem).rstrip('.')}.") from None
