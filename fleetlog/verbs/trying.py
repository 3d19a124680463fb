"""Try: how fast it is here, and whether everything is as it should be, robots and gateways of others included."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import TRY, Call, Uses, gateway_url, read_token, verb

STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}


TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="FLEETLOG_TOKEN_FILE", help="A file that holds an operator's token."
    ),
]


@verb("doctor", TRY, Uses.LOG | Uses.PROCESS, ("fleetlog doctor", "fleetlog doctor --json"))
def doctor(
    call: Call,
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway", metavar="URL", envvar="FLEETLOG_GATEWAY", help="Default: where the settings let it listen."
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Look at versions, settings, tokens, disk, log, brokers, port and clock: a line each, with the remedy.

    Exit code 1 where something is wrong.
    """
    from fleetlog.doctor import examine

    bad = 0
    token = read_token(token_file) if token_file else None
    for finding in examine(call.settings, (gateway or gateway_url(call.config)).rstrip("/"), token):
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


# ---- conformance ----


class Transport(StrEnum):
    """How a robot speaks with a gateway."""

    websocket = "websocket"
    polling = "polling"


OnlyRows = Annotated[
    list[str] | None, typer.Option("--only", metavar="ROW", help="Only rows of this name; * stands for anything.")
]
ListRows = Annotated[bool, typer.Option("--list", help="Show the rows and their rules, play none.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, max=64, metavar="N", help="How many rows are played at once.")]
WAITS = "How long a row waits for what must come."


@verb(
    "conformance robot",
    TRY,
    Uses.NOTHING,
    (
        "fleetlog conformance robot --list",
        "fleetlog conformance robot --only 'hello/*' -- fleetlog robot --id {robot} --kind work=cat",
    ),
)
def conformance_robot(
    call: Call,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="What starts the robot.", show_default=False)
    ] = None,
    only: OnlyRows = None,
    list_rows: ListRows = False,
    at_once: AtOnce = 4,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=6, help=WAITS)] = 15.0,
) -> None:
    """Hold a robot in any language against every row of the robot protocol.

    For each row a gateway by script listens on a free port of this machine, and the command is started anew. In its
    arguments {gateway}, {pool} and {robot} are replaced; FLEETLOG_GATEWAY, FLEETLOG_POOL and FLEETLOG_ROBOT say the
    same. The robot has to do the kind `work`: with the payload {"ms": N} it works for N milliseconds and completes
    with {"done": true}; with "fail": "retryable" or "fatal" it then fails like that. Exit code 1 where a row fails.
    """
    from fleetlog.conforming import conform_robot

    conform_robot(call.out, command or [], only or [], list_rows=list_rows, at_once=at_once, patience_s=timeout)


@verb(
    "conformance gateway",
    TRY,
    Uses.NOTHING,
    (
        "fleetlog conformance gateway --only 'hello/*'",
        "fleetlog conformance gateway http://127.0.0.1:8780 --only 'heartbeat/*' --transport polling --json",
    ),
)
def conformance_gateway(
    call: Call,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            envvar="FLEETLOG_GATEWAY",
            help="Default: where the settings let it listen.",
            show_default=False,
        ),
    ] = None,
    only: OnlyRows = None,
    transport: Annotated[
        Transport | None, typer.Option("--transport", help="Only over this one; default: both.")
    ] = None,
    list_rows: ListRows = False,
    pool: Annotated[
        str, typer.Option("--pool", metavar="NAME", help="Where it is played, and in NAME-short; made if missing.")
    ] = "conformance",
    token_file: TokenFile = None,
    robot_token_file: Annotated[
        Path | None,
        typer.Option(
            "--robot-token-file", metavar="FILE", help="A file that holds a token for robots `conformance-*`."
        ),
    ] = None,
    at_once: AtOnce = 4,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=15, help=WAITS)] = 30.0,
) -> None:
    """Hold a gateway, with all that is before and behind it, against every row of the robot protocol.

    Robots of the suite do nothing but speak; their tasks lie in a pool of their own, and are cancelled afterwards.
    With tokens an operator's is needed, and one of a robot. Exit code 1 where a row fails.
    """
    from fleetlog.conforming import conform_gateway
    from robot_gateway.conformance.scene import GatewayUnderTest

    under_test = GatewayUnderTest(
        url or gateway_url(),
        pool=pool,
        token=read_token(token_file) if token_file else None,
        robot_token=read_token(robot_token_file) if robot_token_file else None,
        patience_s=timeout,
    )
    call.parts.callback(under_test.close)
    conform_gateway(call.out, under_test, only or [], transport=transport, list_rows=list_rows, at_once=at_once)


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
    from fleetlog.bench.product import BenchProblem

    call.out.note("measuring ...")
    try:
        for figures in measure_dispatch(_numbers(tasks), _numbers(targets), _numbers(robots), lives):
            call.out.card(figures)
    except BenchProblem as problem:
        raise Problem(f"{str(problem).rstrip('.')}.") from None


def _numbers(words: str) -> list[int]:
    found = words.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) for word in found):
        raise wrong_usage(f"{words!r} is not a list of numbers such as 1000,30000.")
    return [int(word) for word in found]


def _measure(call: Call, log: LogKind, kafka: str | None, measure: Callable[[Any], dict[str, Any]]) -> None:
    from fleetlog.bench.product import BenchProblem, running

    call.out.note("measuring ...")
    try:
        with running(log.value, kafka) as product:
            figures = measure(product)
    except BenchProblem as problem:
        raise Problem(f"{str(problem).rstrip('.')}.") from None
    call.out.card({"log": log.value} | figures)
