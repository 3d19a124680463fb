"""Start: the processes of Fleetlog, a shell robot, and the demonstration."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fleetlog.layers import Given
from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import POOL_AND_GATEWAY, START, Call, Uses, gateway_url, verb

if TYPE_CHECKING:
    from fleetlog.settings import Role

ANSWERS_WITHIN_S: Final = 60.0
Listen = Annotated[
    str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where the gateway listens; port 0: any free one.")
]
Tokens = Annotated[
    Path | None, typer.Option("--tokens", metavar="FILE", help="The token file; without it only loopback may come in.")
]


@verb("up", START, Uses.LOG | Uses.PROCESS, ("fleetlog up", "fleetlog up --data hall-a --listen 127.0.0.1:8790"))
def up(call: Call, listen: Listen = None, tokens: Tokens = None) -> None:
    """Run everything on this machine: log, owners, gateway, tables.

    Without --kafka the log lies in a folder of this machine (--data, default: fleetlog-data), which one process uses
    at a time. Ctrl-C ends it; robots go on with what they have and come back.
    """
    from fleetlog.composition import run_up

    _run(call, "up", run_up, _gateway_flags(listen, tokens))


@verb(
    "gateway",
    START,
    Uses.KAFKA_LOG | Uses.PROCESS,
    ("fleetlog gateway --kafka 127.0.0.1:9092", "fleetlog gateway --kafka 127.0.0.1:9092 --listen 127.0.0.1:8790"),
)
def gateway(call: Call, listen: Listen = None, tokens: Tokens = None) -> None:
    """Run a gateway before a log on Kafka: HTTP, WebSockets, robot sessions.

    It reads the tables that a projector on the same machine keeps.
    """
    from fleetlog.composition import run_gateway

    _run(call, "gateway", run_gateway, _gateway_flags(listen, tokens))


@verb(
    "processor",
    START,
    Uses.KAFKA_LOG | Uses.PROCESS,
    (
        "fleetlog processor --kafka 127.0.0.1:9092",
        "fleetlog processor --kafka 127.0.0.1:9092 --set processor.batch_max=200",
    ),
)
def processor(call: Call) -> None:
    """Run an owner of partitions of a log on Kafka: it decides, dispatches, closes windows.

    Start as many as you like; each partition is decided by one of them at a time.
    """
    from fleetlog.composition import run_processor

    _run(call, "processor", run_processor, {})


@verb(
    "projector",
    START,
    Uses.KAFKA_LOG | Uses.PROCESS,
    (
        "fleetlog projector --kafka 127.0.0.1:9092",
        "fleetlog projector --kafka 127.0.0.1:9092 --set projector.ended_days=7",
    ),
)
def projector(call: Call) -> None:
    """Keep the tables of this machine, which its gateways and its command line read."""
    from fleetlog.composition import open_reader, run_projector

    def run(settings: Any, stop: Any, ready: Callable[[str], None]) -> None:
        open_reader(settings).close()
        ready("")
        run_projector(settings, stop)

    _run(call, "projector", run, {})


def _gateway_flags(listen: str | None, tokens: Path | None) -> dict[str, Given]:
    flags = {}
    if listen is not None:
        flags["gateway.listen"] = Given(listen, "--listen")
    if tokens is not None:
        flags["gateway.tokens"] = Given(str(tokens), "--tokens")
    return flags


def _run(
    call: Call, role: "Role", run: Callable[[Any, Any, Callable[[str], None]], None], more: dict[str, Given]
) -> None:
    from fleetlog.running import Stopping, log_to_stderr, until_it_listens

    settings = call.settings(role, more)
    log_to_stderr("warning" if call.quiet else settings.logs.level, settings.logs.format)
    stopping = Stopping()

    def ready(what: str) -> None:
        url = what if what.startswith("http") else None
        if url is not None:
            until_it_listens(url, ANSWERS_WITHIN_S)
        place = "tables" if role == "projector" else settings.log.at
        text = (
            f"Fleetlog serves at {url} (log: {settings.log.at}; API: {url}/docs)." if url else f"{role} runs ({place})."
        )
        said = {"ready": role, "log": settings.log.at} | ({"gateway": url} if url else {})
        call.out.say(said, text)

    run(settings, stopping.asked, ready)
    if stopping.exit_code:
        raise typer.Exit(stopping.exit_code)


# ---- a robot of shell commands ----


@verb(
    "robot",
    START,
    POOL_AND_GATEWAY,
    (
        "fleetlog robot --id r1 --kind checksum='sha256sum -'",
        "fleetlog robot --id r2 --kind shout='tr a-z A-Z' --kind count='wc -c' --slots 2",
    ),
)
def robot(
    call: Call,
    robot_id: Annotated[str, typer.Option("--id", metavar="ROBOT", help="The robot's id, unique in its pool.")],
    kinds: Annotated[
        list[str], typer.Option("--kind", metavar="NAME='COMMAND'", help="A kind of task and the command that does it.")
    ],
    slots: Annotated[int, typer.Option("--slots", min=1, max=1024, help="How many tasks it runs at once.")] = 1,
    capabilities: Annotated[
        list[str] | None, typer.Option("--capability", metavar="NAME[=VALUE]", help="What it has, for requirements.")
    ] = None,
    spool: Annotated[
        Path | None, typer.Option("--spool", metavar="FILE", help="Keep final reports on disk until they have arrived.")
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="How long running tasks may go on after Ctrl-C.")
    ] = 30.0,
) -> None:
    """Be a robot that runs shell commands: any program in any language.

    The payload comes on standard input (a JSON string as its bare text). Exit code 0 is done, with standard output as
    the result; 64, 65, 126 and 127 are fatal; everything else, death by a signal too, is tried again.

    Ctrl-C (or SIGTERM): it takes nothing new, says how many tasks run, waits for them up to --grace, then ends the rest
    (SIGTERM, 10 s later SIGKILL), and exits with 0. A second one ends them at once: exit code 130, after SIGTERM 143.
    """
    from fleetlog.asking import refusal
    from fleetlog.running import log_to_stderr
    from robot_gateway.sdk.errors import FleetlogError
    from robot_gateway.sdk.shell import parse_kind, shell_robot

    log_to_stderr("warning" if call.quiet else "info")
    try:
        commands = dict(parse_kind(kind) for kind in kinds)
        made = shell_robot(
            robot_id,
            commands,
            pool=call.pool,
            gateway=call.url or gateway_url(),
            token=call.token(),
            capabilities=capabilities or (),
            slots=slots,
            spool=spool,
        )
    except ValueError as error:
        raise wrong_usage(f"{str(error).rstrip('.')}.") from None
    call.out.note(f"robot {robot_id} of pool {call.pool} does {', '.join(commands)}; Ctrl-C ends it.")
    try:
        made.run(grace)
    except FleetlogError as error:
        raise Problem(f"robot {robot_id} ended: {refusal(error.reason, {'text': error.text})}") from None


@verb(
    "demo",
    START,
    Uses.NOTHING,
    ("fleetlog demo", "fleetlog demo --files 40 --json"),
)
def demo(
    call: Call,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FOLDER", help="A fresh data folder; default: one that is removed.")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Go on serving afterwards, until Ctrl-C.")] = False,
    files: Annotated[
        int | None, typer.Option("--files", min=20, metavar="N", help="Only so many files, the largest ones.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Default: 127.0.0.1:8780, or a free port.")
    ] = None,
) -> None:
    """See it work: compress and check every file of Python's standard library, with a robot and Fleetlog killed.

    Three robots in processes of their own; one is killed in the middle of a task, and all of Fleetlog once. A referee
    then reads the exported log and the files, and says whether every task was done right, exactly once.
    """
    from fleetlog.demo.main import run_demo

    code = run_demo(call.out, data, serve=serve, files_max=files, listen=listen)
    if code:
        raise typer.Exit(code)
