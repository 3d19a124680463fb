"""Set up: pools and their settings, tokens, the settings of processes."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetlog.asking import part
from fleetlog.choosing import Reason, body
from fleetlog.problems import Problem, wrong_usage
from fleetlog.verb import DEFAULT_POOL, SET_UP, Call, Uses, verb

PoolName = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name.")]
SettingWords = Annotated[
    list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Settings: window_s=2 lease_s=6 on_lost=wait ...")
]


def pool_settings(words: list[str] | None) -> dict[str, Any]:
    """Settings from NAME=VALUE: whole numbers, numbers, or words. Raises Problem."""
    found: dict[str, Any] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise wrong_usage(f"{word!r} is not NAME=VALUE: write for example lease_s=30.")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


@verb(
    "pool create",
    SET_UP,
    Uses.GATEWAY,
    ("fleetlog pool create hall-a", "fleetlog pool create hall-b window_s=2 lease_s=10"),
)
def pool_create(call: Call, pool: PoolName, settings: SettingWords = None, reason: Reason = None) -> None:
    """Create a pool; one that exists stays as it is."""
    asked = body(pool=pool, settings=pool_settings(settings), reason=reason)
    answer = call.gateway.post("/v1/pools", asked)
    call.gateway.settle(answer)
    call.out.say(answer, f"pool {pool} {'created' if answer.get('changed', True) else 'exists already'}")


@verb("pool show", SET_UP, Uses.GATEWAY, ("fleetlog pool show", "fleetlog pool show default --json"))
def pool_show(
    call: Call,
    pool: Annotated[
        str, typer.Argument(metavar="POOL", envvar="FLEETLOG_POOL", help="The pool's name.")
    ] = DEFAULT_POOL,
) -> None:
    """Show a pool: its settings, what waits and runs, who owns it."""
    call.out.card(call.gateway.get(f"/v1/pools/{part(pool)}"), skip=("position",))


@verb(
    "pool set",
    SET_UP,
    Uses.GATEWAY,
    (
        "fleetlog pool set default lease_s=30 --reason 'slow link'",
        "fleetlog pool set default failures_max=5 late=record",
    ),
)
def pool_set(call: Call, pool: PoolName, settings: SettingWords = None, reason: Reason = None) -> None:
    """Change settings of a pool. They are in the log; a new window length holds from the next whole minute."""
    asked = pool_settings(settings)
    if not asked:
        raise wrong_usage(f"what is to be set? For example: fleetlog pool set {pool} lease_s=30.")
    answer = call.gateway.patch(f"/v1/pools/{part(pool)}", body(settings=asked, reason=reason))
    call.gateway.settle(answer)
    call.out.say(answer, f"pool {pool} set: {', '.join(settings or ())}")


# ---- tokens ----


class Role(StrEnum):
    """What a token may do."""

    robot = "robot"
    submitter = "submitter"
    operator = "operator"
    auditor = "auditor"
    viewer = "viewer"


TokensFile = Annotated[
    Path | None,
    typer.Option("--tokens", metavar="FILE", help="The token file; default: gateway.tokens, else tokens.toml."),
]


def _tokens_file(call: Call, given: Path | None) -> Path:
    return given or call.settings().gateway.tokens or Path("tokens.toml")


@verb(
    "token new",
    SET_UP,
    Uses.LOG,
    (
        "fleetlog token new hall-a-robots --role robot --pools hall-a --robots 'r*'",
        "fleetlog token new ada --role operator --expires 365d",
    ),
)
def token_new(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Recorded as the actor of what is asked with it.")],
    role: Annotated[Role, typer.Option("--role", help="What it may do.")],
    pools: Annotated[list[str] | None, typer.Option("--pools", metavar="GLOB", help="Default: all pools.")] = None,
    robots: Annotated[list[str] | None, typer.Option("--robots", metavar="GLOB", help="Default: all robots.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="An instant, or a span: 365d.")
    ] = None,
    tokens: TokensFile = None,
) -> None:
    """Make a token and print it once. The file keeps its SHA-256 alone."""
    from datetime import datetime

    from pydantic import ValidationError

    from fleetlog.when import instant
    from robot_gateway.tokens import new_token, read_tokens, write_tokens
    from robot_gateway.wording import plain

    file = _tokens_file(call, tokens)
    entries = read_tokens(file) if file.exists() else []
    if any(entry.name == name for entry in entries):
        raise Problem(f"there is a token {name} in {file} already: revoke it, or take another name.")
    until = datetime.fromisoformat(instant(expires, "--expires")) if expires else None
    try:
        token, entry = new_token(name, role.value, pools=pools, robots=robots, expires=until)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        if first["loc"][0] != "name":
            raise wrong_usage(f"--{first['loc'][0]}: {plain(first)}.") from None
        raise wrong_usage(
            f"{name!r} cannot be the name of a token: use letters, digits and . _ : - (up to 128)."
        ) from None
    write_tokens(file, [*entries, entry])
    if call.out.as_json:
        call.out.json({"name": name, "role": role.value, "token": token, "file": str(file)})
        return
    call.out.text(token)
    call.out.note(
        f"Kept in {file} as {name} ({role.value}); start the gateway with --tokens {file}. It is not shown again."
    )


@verb("token list", SET_UP, Uses.LOG, ("fleetlog token list", "fleetlog token list --json"))
def token_list(call: Call, tokens: TokensFile = None) -> None:
    """List the tokens of the file: names, roles, what they are for."""
    from robot_gateway.tokens import read_tokens

    entries = read_tokens(_tokens_file(call, tokens))
    rows = [entry.model_dump(mode="json", exclude={"sha256"}) for entry in entries]
    call.out.rows(rows, ("name", "role", "pools", "robots", "expires"))


@verb("token revoke", SET_UP, Uses.LOG, ("fleetlog token revoke bob", "fleetlog token revoke eve --tokens tokens.toml"))
def token_revoke(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name: see `token list`.")],
    tokens: TokensFile = None,
) -> None:
    """Withdraw a token: within 5 s gateways refuse it and close its sessions."""
    from robot_gateway.tokens import read_tokens, write_tokens

    file = _tokens_file(call, tokens)
    entries = read_tokens(file)
    left = [entry for entry in entries if entry.name != name]
    if len(left) == len(entries):
        raise Problem(f"there is no token {name} in {file}: see `fleetlog token list`.")
    write_tokens(file, left)
    call.out.say({"name": name, "revoked": True}, f"token {name} is withdrawn")


# ---- settings ----


@verb(
    "settings",
    SET_UP,
    Uses.LOG | Uses.PROCESS,
    ("fleetlog settings", "fleetlog settings --set gateway.sessions_max=500 --json"),
)
def settings(call: Call) -> None:
    """Print every setting of a process, its value, and where that came from."""
    from fleetlog.layers import read_layers, settings_file
    from fleetlog.settings import settings_of, shown

    layers = read_layers(call.flags(), file=settings_file(call.config))
    rows = [
        {"name": name, "value": value, "source": source} for name, value, source in shown(settings_of(layers), layers)
    ]
    call.out.rows(rows, ("name", "value", "source"))
