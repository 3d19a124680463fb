"""Whether words after `fleetlog` name a verb and options of it that exist; asked of the program itself."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from typer.main import get_command

from fleetlog.cli import build


@cache
def program() -> Any:
    """The command tree."""
    return get_command(build())


def untrue(words: Sequence[str]) -> list[str]:
    """The words that are no verb, and the options that the verb does not have. What follows `--` is another program."""
    command, rest = program(), list(words[: words.index("--")] if "--" in words else words)
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return [rest[0]]
        command = command.commands[rest.pop(0)]
    known = {"--help", "-h", *(name for option in command.params for name in (*option.opts, *option.secondary_opts))}
    return [word for word in rest if word.startswith("-") and len(word) > 1 and word.partition("=")[0] not in known]
