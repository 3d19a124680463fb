"""What all verbs share: the options that stand everywhere, the two examples at the end of each help, the registry.

A verb is a function whose first parameter is a `Call`; its other parameters are its own arguments and options.
"""

import inspect
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from fleetlog.asking import TIMEOUT_S, Asking
from fleetlog.layers import Given, read_layers, settings_file
from fleetlog.output import Output
from fleetlog.problems import wrong_usage

if TYPE_CHECKING:
    from fleetlog.settings import Role, Settings
    from streams.port import LogReader

DEFAULT_POOL: Final = "default"
DEFAULT_LISTEN: Final = "127.0.0.1:8780"
EVERYWHERE: Final = "Everywhere"
PLACE: Final = "Log and settings"

START, WORK, LOOK, MEND, SET_UP, LOG, PROVE, TRY = (
    "Start", "Work", "Look", "Mend", "Set up", "Log", "Prove", "Try",
)  # fmt: skip
GROUPS: Final = (START, WORK, LOOK, MEND, SET_UP, LOG, PROVE, TRY)
"""The groups of `fleetlog --help`, in order."""


class Uses(Flag):
    """What a verb needs, and so which options it takes."""

    NOTHING = 0
    GATEWAY = auto()
    POOL = auto()
    ANY_POOL = auto()
    LOG = auto()
    KAFKA_LOG = auto()
    PROCESS = auto()


POOL_AND_GATEWAY: Final = Uses.POOL | Uses.GATEWAY


@dataclass
class Call:
    """One call of a verb: the options that stand everywhere, and what they lead to."""

    as_json: bool = False
    quiet: bool = False
    pool_given: str | None = None
    url: str | None = None
    token_file: Path | None = None
    timeout_s: float | None = None
    data: Path | None = None
    kafka: str | None = None
    config: Path | None = None
    sets: list[str] = field(default_factory=list)
    parts: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def out(self) -> Output:
        """Where the verb prints."""
        return Output(self.as_json, self.quiet)

    @property
    def pool(self) -> str:
        """The pool that was named, else `default`."""
        return self.pool_given or DEFAULT_POOL

    @cached_property
    def gateway(self) -> Asking:
        """The gateway to ask. Raises Problem where its address or token cannot be used."""
        asking = Asking(self.url or gateway_url(self.config), self.token(), self.timeout_s or TIMEOUT_S, self.out.note)
        self.parts.callback(asking.close)
        return asking

    def token(self) -> str | None:
        """The token in the token file, or None where none is named. Raises Problem."""
        return None if self.token_file is None else read_token(self.token_file)

    def flags(self) -> dict[str, Given]:
        """The settings that flags give."""
        found: dict[str, Given] = {}
        if self.data is not None and self.kafka is not None:
            raise wrong_usage("--data and --kafka name two logs: give one of them.")
        if self.data is not None and self.data.exists() and not self.data.is_dir():
            raise wrong_usage(f"--data {self.data} is not a folder: name one that the log may use for itself.")
        if self.data is not None:
            found["log.at"] = Given(f"embedded:{self.data}", "--data")
        if self.kafka is not None:
            found["log.at"] = Given(f"kafka:{self.kafka}", "--kafka")
        for said in self.sets:
            name, equals, value = said.partition("=")
            if not equals or "." not in name:
                raise wrong_usage(f"--set {said!r} is not SECTION.NAME=VALUE, for example gateway.sessions_max=500.")
            found[name] = Given(value, f"--set {name}")
        return found

    def settings(self, role: "Role" = "reader", more: dict[str, Given] | None = None) -> "Settings":
        """The settings of this process. Raises SettingsProblem."""
        from fleetlog.settings import load_settings

        return load_settings(self.flags() | (more or {}), config=self.config, role=role)

    def reader(self) -> "LogReader":
        """The log, for reading. Raises LogFault, SettingsProblem, CannotStart."""
        from fleetlog.composition import open_reader

        log = open_reader(self.settings())
        self.parts.callback(log.close)
        return log


def gateway_url(config: Path | None = None) -> str:
    """Where the gateway of this machine listens, as its settings say."""
    from fleetlog.layers import SettingsProblem

    try:
        layers = read_layers(file=settings_file(config))
    except SettingsProblem:
        layers = {}  # a process that starts with such settings says what is wrong; a verb only wants an address
    listen = str(layers["gateway.listen"].value) if "gateway.listen" in layers else DEFAULT_LISTEN
    parts = urlsplit(f"//{listen}")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parts.hostname or "", parts.hostname or "127.0.0.1")  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if 'gateway.tls_cert' in layers else 'http'}://{shown}:{parts.port or 8780}"


def read_token(path: Path) -> str:
    """The token in a file that nobody else can read. Raises Problem."""
    try:
        mode = path.stat().st_mode
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise wrong_usage(f"the token in {path} cannot be read ({why}): correct --token-file.") from None
    if stat.S_IMODE(mode) & 0o077:
        raise wrong_usage(f"{path} can be read by others: run `chmod 600 {path}`.")
    if not text or any(sign.isspace() for sign in text):
        raise wrong_usage(f"{path} does not hold one token: write there what `fleetlog token new` printed.")
    return text


# ---- options that stand everywhere ----


def _option(kind: Any, *names: str, panel: str = EVERYWHERE, **how: Any) -> Any:
    return Annotated[kind, typer.Option(*names, rich_help_panel=panel, **how)]


_KAFKA: Final = (
    _option(str | None, "--kafka", panel=PLACE, metavar="HOST:PORT,...", help="The brokers of a Kafka log."),
    None,
)
_CONFIG: Final = (
    _option(
        Path | None,
        "--config",
        panel=PLACE,
        metavar="FILE",
        envvar="FLEETLOG_CONFIG",
        help="The settings file; default: fleetlog.toml where there is one.",
    ),
    None,
)
_OPTIONS: Final[dict[Uses, dict[str, tuple[Any, Any]]]] = {
    Uses.POOL: {
        "pool_given": (
            _option(str | None, "--pool", metavar="NAME", envvar="FLEETLOG_POOL", help="The pool; default: default."),
            None,
        ),
    },
    # Of the whole log, unless somebody says otherwise here and now: a variable must not make an export a part.
    Uses.ANY_POOL: {
        "pool_given": (_option(str | None, "--pool", metavar="NAME", help="Only this pool; default: all."), None),
    },
    Uses.GATEWAY: {
        "url": (
            _option(
                str | None,
                "--gateway",
                metavar="URL",
                envvar="FLEETLOG_GATEWAY",
                help="Default: where the settings let it listen.",
            ),
            None,
        ),
        "token_file": (
            _option(
                Path | None,
                "--token-file",
                metavar="FILE",
                envvar="FLEETLOG_TOKEN_FILE",
                help="A file that holds the token.",
            ),
            None,
        ),
        "timeout_s": (
            _option(
                float | None,
                "--timeout",
                metavar="SECONDS",
                min=0.1,
                help=f"How long to wait for an answer; default: {TIMEOUT_S:g}, where a task is waited for: no limit.",
            ),
            None,
        ),
    },
    Uses.LOG: {
        "data": (
            _option(Path | None, "--data", panel=PLACE, metavar="FOLDER", help="The data folder of an embedded log."),
            None,
        ),
        "kafka": _KAFKA,
        "config": _CONFIG,
    },
    Uses.KAFKA_LOG: {"kafka": _KAFKA, "config": _CONFIG},
    Uses.PROCESS: {
        "sets": (
            _option(
                list[str] | None,
                "--set",
                panel=PLACE,
                metavar="NAME=VALUE",
                help="A setting, for example disk.min_free_bytes=0.",
            ),
            None,
        ),
    },
    Uses.NOTHING: {
        "as_json": (_option(bool, "--json", help="One JSON object a line."), False),
        "quiet": (_option(bool, "--quiet", help="No notes, no progress."), False),
    },
}


@dataclass(frozen=True, slots=True)
class Verb:
    """A registered verb: its words, its group in the help, the function for typer, two examples that the tests run."""

    words: tuple[str, ...]
    group: str
    function: Callable[..., None]
    examples: tuple[str, str]


VERBS: Final[list[Verb]] = []


def verb(
    words: str, group: str, uses: Uses, examples: tuple[str, str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as the verb called `words` (`task`, or `pool create`)."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        VERBS.append(Verb(tuple(words.split()), group, _with_common(function, uses), examples))
        return function

    return register


def _with_common(function: Callable[..., None], uses: Uses) -> Callable[..., None]:
    """The function as typer sees it: its own parameters, then the common ones in place of the Call."""
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[1:]
    common = {
        name: option
        for flag, options in _OPTIONS.items()
        if flag in uses or flag is Uses.NOTHING
        for name, option in options.items()
    }
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in common.items()
    ]

    def call(**given: Any) -> None:
        shared = {name: given.pop(name) for name in common}
        if "sets" in shared:
            shared["sets"] = shared["sets"] or []
        with ExitStack() as parts:
            function(Call(**shared, parts=parts), **given)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    as_keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    call.__signature__ = signature.replace(parameters=as_keywords + added)  # type: ignore[attr-defined]
    return call


def program() -> str:
    """How the user calls this program."""
    import shutil
    import sys

    name = Path(sys.argv[0]).name
    if shutil.which("fleetlog") and name == "fleetlog":
        found = Path(shutil.which("fleetlog") or "").resolve()
        if found == Path(sys.argv[0]).resolve():
            return "fleetlog"
    return os.path.relpath(sys.argv[0]) if name == "fleetlog" else f"{os.path.relpath(sys.executable)} -m fleetlog"
