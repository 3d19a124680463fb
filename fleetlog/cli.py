"""The command line: all verbs in their groups, and how each ends. No traceback ever reaches a user."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import typer

from fleetlog.helping import VerbCommand, VerbGroup
from fleetlog.problems import DONE, INTERRUPTED, NO_ANSWER, REFUSED, WRONG_USAGE, Problem
from fleetlog.verb import GROUPS, VERBS, Verb

MODULES: Final = (
    "start",
    "work",
    "look",
    "mend",
    "setup",
    "limits",
    "schedules",
    "log",
    "prove",
    "trying",
    "measuring",
    "simulating",
)
SUBJECTS: Final = {
    "pool": "Pools: create, show, set.",
    "limit": "Limits of a kind or limit key.",
    "schedule": "Schedules, which submit a task again and again.",
    "token": "Tokens of a gateway's token file.",
    "log": "The log itself.",
    "clock": "The clock that the log goes by.",
    "audit": "What the log proves.",
    "bench": "How fast is it here?",
    "conformance": "Does a robot or a gateway keep every row of the robot protocol?",
}
"""Verbs of two words, by their first."""
ABOUT: Final = "Fleetlog hands tasks to robots, never loses one, never does one twice without saying so, and shows why."


def build(only: str | None = None) -> typer.Typer:
    """The program with every verb; with those that begin with the word `only`, which takes a third of the time."""
    for module in MODULES:
        importlib.import_module(f"fleetlog.verbs.{module}")
    app = typer.Typer(
        name="fleetlog",
        cls=VerbGroup,
        help=ABOUT,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
        epilog=epilog(("fleetlog up", "fleetlog submit checksum --payload hello")),
    )
    app.callback()(_root)
    subjects: dict[str, typer.Typer] = {}
    wanted = [verb for verb in VERBS if only is None or verb.words[0] == only] or VERBS
    for verb in sorted(wanted, key=lambda verb: GROUPS.index(verb.group)):
        parent, name = app, verb.words[0]
        if len(verb.words) == 2:
            if name not in subjects:
                subjects[name] = _subject(name, verb)
                app.add_typer(subjects[name], name=name, rich_help_panel=verb.group)
            parent, name = subjects[name], verb.words[1]
        panel = verb.group if parent is app else None
        parent.command(name, cls=VerbCommand, rich_help_panel=panel, epilog=epilog(verb.examples))(verb.function)
    return app


def _subject(name: str, first: Verb) -> typer.Typer:
    return typer.Typer(cls=VerbGroup, help=SUBJECTS[name], no_args_is_help=True, epilog=epilog(first.examples))


def epilog(examples: tuple[str, str]) -> str:
    """The end of a help text; the tests run what stands there."""
    return "\n\n".join(("Examples:", *(example.replace("[", "\\[") for example in examples)))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"fleetlog {version('fleetlog')}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Show the version."),
) -> None:
    """Nothing is done before the verb."""


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Does what `arguments` say; the exit code."""
    try:
        code = build(arguments[0] if arguments else None)(args=arguments, prog_name="fleetlog", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        return _end(error, arguments)
    return code if isinstance(code, int) else DONE


def _end(error: BaseException, arguments: Sequence[str]) -> int:
    """Says what went wrong in one sentence; the exit code."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        error = error.__context__  # click makes an exit code of it
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else REFUSED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has gone; what is still buffered is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    if isinstance(error, typer.Abort):
        return _said("nothing was done: no answer was given (use --yes where nobody can answer).", REFUSED)
    text, code = sentence(error, arguments)
    return _said(text, code)


def _said(text: str, code: int) -> int:
    print(f"fleetlog: {text}", file=sys.stderr)
    return code


def sentence(error: BaseException, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """What to say about an error of the call with `arguments`, and the exit code."""
    if isinstance(error, Problem):
        return str(error), error.exit_code
    if isinstance(error, _usage_errors()):
        return _meant(arguments) or _usage_sentence(error), WRONG_USAGE
    for name, code in _KNOWN.items():
        module, _, attribute = name.rpartition(".")
        kind = getattr(sys.modules.get(module), attribute, None)
        if kind is not None and isinstance(error, kind):
            return str(error), code
    if isinstance(error, ModuleNotFoundError) and error.name:
        extra = _EXTRAS.get(error.name.partition(".")[0])
        if extra:
            return f"this needs {error.name}: pip install 'fleetlog[{extra}]'.", REFUSED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {(error.strerror or 'it failed').lower()}: check the path and its owner.", REFUSED
    if isinstance(error, MemoryError):
        return "there is not enough memory: ask for less at once.", REFUSED
    return f"a fault of Fleetlog ({type(error).__name__}: {error}): report it{_trace(error)}.", REFUSED


_KNOWN: Final = {
    "fleetlog.layers.SettingsProblem": WRONG_USAGE,
    "fleetlog.composition.CannotStart": REFUSED,
    "streams.port.LogUnavailable": NO_ANSWER,
    "streams.port.LogFault": REFUSED,
    "projections.store.StoreFault": REFUSED,
    "robot_gateway.gateway.CannotServe": WRONG_USAGE,
    "robot_gateway.tokens.TokenFileUnusable": WRONG_USAGE,
    "robot_gateway.sdk.errors.FleetlogError": REFUSED,
}
"""Faults whose message is a sentence already; looked up among the modules that are loaded."""
_EXTRAS: Final = {
    "fastapi": "server", "uvicorn": "server", "uvloop": "server", "rocksdict": "server", "prometheus_client": "server",
    "confluent_kafka": "kafka", "kafka": "audit", "duckdb": "query", "pyarrow": "query",
}  # fmt: skip
"""Library -> the extra that brings it."""


def _usage_errors() -> type[BaseException]:
    """What typer raises for wrong arguments: the class beneath BadParameter, wherever this typer keeps it."""
    return typer.BadParameter.__bases__[0]


def _meant(arguments: Sequence[str]) -> str | None:
    """Where `pools show` was said for `pool show`."""
    words = (arguments[0].removesuffix("s"), *arguments[1:2]) if arguments else ()
    if words[:1] == tuple(arguments[:1]) or not any(verb.words == words for verb in VERBS):
        return None
    return f"there is no verb `{' '.join(arguments[:2])}`: say `fleetlog {' '.join(words)}`."


def _usage_sentence(error: BaseException) -> str:
    context: Any = getattr(error, "ctx", None)
    _say_plainly(error)
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    said = said.strip().rstrip(".").replace("\n", " ")
    path = context.command_path if context is not None else "fleetlog"
    return f"{said[:1].lower()}{said[1:]}; see `{path} --help`."


def _say_plainly(error: Any) -> None:
    """A value that pydantic refused is refused in our words."""
    refused: Any = getattr(error.__cause__, "errors", None)
    if hasattr(error, "message") and refused is not None:
        from robot_gateway.wording import plain

        error.message = plain(refused(include_url=False)[0])


def _trace(error: BaseException) -> str:
    """The traceback goes to a file, so that a report can be made."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="fleetlog-fault-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    return f" with {file.name}"
