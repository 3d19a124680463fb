"""Where settings come from: flags, then `FLEETLOG_<SECTION>_<NAME>`, then the settings file. Nothing is checked here.

Only the standard library is used here, so that a verb which needs one value (the gateway's address) starts at once.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

FILE: Final = "fleetlog.toml"
PREFIX: Final = "FLEETLOG_"
SECTIONS: Final = ("log", "gateway", "processor", "projector", "disk", "alarm", "logs", "pool")
OPEN_SECTIONS: Final = ("log.kafka", "pool")
"""Tables whose names are not ours: what librdkafka takes, and what a pool is created with."""
OF_THE_COMMAND_LINE: Final = ("FLEETLOG_POOL", "FLEETLOG_GATEWAY", "FLEETLOG_TOKEN_FILE", "FLEETLOG_CONFIG")
"""Variables that stand for options of verbs; they are no settings of a process."""
OF_A_COMMAND: Final = ("FLEETLOG_IDEMPOTENCY_KEY",)
"""What a shell robot gives the commands it runs, as far as it looks like a setting."""


class SettingsProblem(Exception):
    """The settings cannot be used; the message is one or more sentences that say what to change."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where: a flag, a variable or a file."""

    value: Any
    source: str


Layers = dict[str, Given]
"""`section.name` -> the value that counts."""


def settings_file(flag: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The settings file to read: the one asked for, or `fleetlog.toml` where there is one here."""
    asked = flag or (Path(environ["FLEETLOG_CONFIG"]) if environ.get("FLEETLOG_CONFIG") else None)
    if asked is not None:
        return asked
    return Path(FILE) if Path(FILE).is_file() else None


def read_layers(
    flags: Mapping[str, Given] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Layers:
    """Every setting that was given, the strongest source first. Raises SettingsProblem for what cannot be read."""
    layers = _from_file(file) if file is not None else {}
    layers |= _from_environment(environ)
    layers |= flags or {}
    return layers


def _from_file(path: Path) -> Layers:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsProblem(f"{path} cannot be read ({error.strerror}): check the path and its owner.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsProblem(f"{path} is not TOML ({error}): correct it.") from None
    layers: Layers = {}
    for section, table in content.items():
        if section not in SECTIONS or not isinstance(table, dict):
            raise SettingsProblem(f"{path}: {unknown(section, SECTIONS, 'section')}")
        for name, value in table.items():
            full = f"{section}.{name}"
            if full in OPEN_SECTIONS and isinstance(value, dict):
                layers |= {f"{full}.{inner}": Given(one, str(path)) for inner, one in _flat(value).items()}
            else:
                layers[full] = Given(value, str(path))
    return layers


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Names with dots, whether they were written so in quotes or as tables within tables."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": one for inner, one in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def _from_environment(environ: Mapping[str, str]) -> Layers:
    layers: Layers = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in OF_THE_COMMAND_LINE or variable in OF_A_COMMAND:
            continue
        section, underscore, name = variable[len(PREFIX) :].lower().partition("_")
        if not underscore:
            continue  # one word, such as FLEETLOG_TASK: it cannot be meant as a setting
        if section not in SECTIONS or not name:
            raise SettingsProblem(f"{variable} is no setting of Fleetlog{_near(variable)}: correct or unset it.")
        if section == "log" and name.startswith("kafka_"):
            name = "kafka." + name[6:].replace("_", ".")
        layers[f"{section}.{name}"] = Given(value, variable)
    return layers


def _near(variable: str) -> str:
    known = [f"{PREFIX}{section.upper()}_" for section in SECTIONS] + list(OF_THE_COMMAND_LINE)
    near = get_close_matches(variable, known, 1, 0.5)
    if not near:
        return ""
    return f" (did you mean {near[0]}{'...' if near[0].endswith('_') else ''}?)"


def unknown(name: str, known: tuple[str, ...], what: str = "setting") -> str:
    """The sentence that refuses a name which is not known, with the nearest one that is."""
    near = get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}."
    return f"there is no {what} {name}{hint}"
