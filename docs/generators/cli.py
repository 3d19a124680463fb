"""docs/reference/cli.md: every verb of the command line, from the program itself."""

from enum import Enum
from typing import Any, Final

from typer.main import get_command

from docs.generators.markdown import code, page, table
from fleetlog.cli import ABOUT, build
from fleetlog.helping import usage_name, value_name
from fleetlog.verb import EVERYWHERE, GROUPS, PLACE, VERBS, Verb

INTRODUCTION: Final = f"""
{ABOUT}

Tables go to a terminal, tab-separated lines to a pipe, one JSON object a line with `--json`. `NO_COLOR` is heeded.

| exit code | |
|---|---|
| 0 | done |
| 1 | refused, or found wrong |
| 2 | wrong usage |
| 3 | no answer, or the time was over |
| 130 | interrupted by Ctrl-C (`fleetlog robot`: by a second one; the first ends it in order, with 0) |
| 143 | ended at once by a second SIGTERM; the first ends every process in order, with 0 |
"""
COMMON_NOTE: Final = "Every verb takes those of them that it can use; `fleetlog VERB --help` lists them."


def cli_page() -> str:
    """docs/reference/cli.md."""
    program: Any = get_command(build())
    parts = [INTRODUCTION, _index(), "## Options that stand everywhere", COMMON_NOTE, _common(program)]
    for group in GROUPS:
        verbs = [verb for verb in VERBS if verb.group == group]
        if verbs:
            parts.append(f"## {group}")
            parts += [_verb(verb, _command(program, verb)) for verb in verbs]
    return page("Command line", *parts)


def _index() -> str:
    rows = [(group, ", ".join(_link(verb) for verb in VERBS if verb.group == group)) for group in GROUPS]
    return table(("group", "verbs"), [row for row in rows if row[1]])


def _link(verb: Verb) -> str:
    words = " ".join(verb.words)
    return f"[{words}](#{'-'.join(('fleetlog', *verb.words))})"


def _command(program: Any, verb: Verb) -> Any:
    command = program
    for word in verb.words:
        command = command.commands[word]
    return command


def _common(program: Any) -> str:
    rows: dict[str, tuple[str, str]] = {}
    for verb in sorted(VERBS, key=lambda verb: GROUPS.index(verb.group)):  # whatever order they were loaded in
        for parameter in _parameters(_command(program, verb), common=True):
            rows.setdefault(parameter.opts[-1], _option(parameter))
    return table(("option", ""), rows.values())


def _verb(verb: Verb, command: Any) -> str:
    parts = [f"### fleetlog {' '.join(verb.words)}", _text(command.help)]
    own = _parameters(command, common=False)
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    options = [parameter for parameter in own if parameter.param_type_name == "option"]
    if arguments:
        parts.append(table(("argument", ""), [_argument(parameter) for parameter in arguments]))
    if options:
        parts.append(table(("option", ""), [_option(parameter) for parameter in options]))
    parts.append("Examples:\n\n" + "\n".join(f"    {example}" for example in verb.examples))
    return "\n\n".join(parts)


def _parameters(command: Any, common: bool) -> list[Any]:
    shown = [p for p in command.params if not getattr(p, "hidden", False) and "--help" not in p.opts]
    return [p for p in shown if (getattr(p, "rich_help_panel", None) in (EVERYWHERE, PLACE)) == common]


def _argument(parameter: Any) -> tuple[str, str]:
    return code(usage_name(parameter)), _text(getattr(parameter, "help", None))


def _option(parameter: Any) -> tuple[str, str]:
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    value = "" if parameter.is_flag else f" {value_name(parameter)}"
    notes = [_text(parameter.help)]
    if parameter.required:
        notes.append("Needed.")
    elif not parameter.is_flag and parameter.default not in (None, [], (), "") and not callable(parameter.default):
        notes.append(f"Default: {_plain(parameter.default)}.")
    if parameter.min is not None and parameter.max is not None:
        notes.append(f"{_plain(parameter.min)} to {_plain(parameter.max)}.")
    if parameter.envvar:
        notes.append(f"Also {code(parameter.envvar)}.")
    return code(names + value), " ".join(filter(None, notes))


def _plain(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(text: str | None) -> str:
    """Help as Markdown: what rich would take for markup stands as it is."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").replace("\\[", "[").split("\n\n"))
