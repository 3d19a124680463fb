"""Try: whether everything is as it should be, robots and gateways of others included."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetlog.problems import Problem
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
