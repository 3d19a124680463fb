"""How a verb's `--help` names its arguments and the values of its options: in capitals, as the documentation does."""

from enum import Enum
from functools import partial
from math import isfinite
from typing import Any

from typer.core import TyperCommand, TyperGroup

from fleetlog.problems import wrong_usage


class VerbGroup(TyperGroup):
    """Verbs of two words, without Python's names of types."""

    def get_params(self, ctx: Any) -> Any:
        """All options, `--help` included."""
        return _named(super().get_params(ctx))


class VerbCommand(TyperCommand):
    """A verb as typer shows it, without Python's names of types, and with plain words in the usage line."""

    def get_params(self, ctx: Any) -> Any:
        """All arguments and options, `--help` included."""
        return _named(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Does it. Raises Problem where an option's number is none that can be counted with: nan, inf."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, float) and not isfinite(value):
                raise wrong_usage(f"{parameter.opts[0]} {value} is no number to count with: write one like 1.5.")
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line."""
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *map(usage_name, arguments)]


def usage_name(argument: Any) -> str:
    """An argument in a usage line: `TASK`, `[TASK]` where it may be left out, `TASK...` where it may be several."""
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")


def value_name(parameter: Any) -> str:
    """What stands for an option's value: its name, its choices, or the kind of it; nothing for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    if parameter.metavar:
        return str(parameter.metavar)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return "N" if kind in (int, float) else "TEXT"


def _named(parameters: Any) -> Any:
    """The parameters, each with what stands in the column of values: nothing beside an argument, whose name says it."""
    for parameter in parameters:
        name = "" if parameter.param_type_name == "argument" else value_name(parameter)
        # typer has no setting for this; other versions of it, which know no such method, take no harm.
        parameter.display_type_rich = partial(_same, name)
    return parameters


def _same(name: str, ctx: Any) -> str:
    return name
