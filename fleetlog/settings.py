"""Settings of a process (`fleetlog.toml`, `FLEETLOG_<SECTION>_<NAME>`, flags), and what is refused at start.

Durations are in the unit of their name, sizes in bytes. Settings of a pool live in the log (`fleetlog pool set`).
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from commands.reasons import Refusal
from commands.settings import SETTING_NAMES, PoolSettings, settings_problem
from fleetlog.layers import OPEN_SECTIONS, Given, Layers, SettingsProblem, read_layers, settings_file, unknown
from robot_gateway.settings import GatewaySettings, pool_problem, settings_problems
from robot_gateway.wire import setting_outside, settings_in
from robot_gateway.wording import plain
from streams.port import RECORD_BYTES_MAX

Bytes = Annotated[int, Field(ge=0, le=2**50)]
Seconds = Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Role = Literal["up", "processor", "projector", "gateway", "reader"]
"""What a process is about to be; `reader` is a verb that reads the log or the tables."""
HIDDEN: Final = "(hidden)"


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LogSettings(Section):
    """Where the log lies. `replication` None: 3 where there are three brokers or more, else 1.

    `kafka` goes to librdkafka as it is. `sync` (embedded): a group of records is on the disk before it is answered.
    """

    at: str = "embedded:./fleetlog-data"
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = "fleetlog"
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    replication: Annotated[int, Field(ge=1, le=100)] | None = None
    kafka: dict[str, str] = {}
    sync: bool = True


class ProcessorSettings(Section):
    """How owners work: commands a batch, partitions a process, a snapshot after so many events or seconds.

    `cache`: a folder for disposable copies of payloads (Kafka). A wall clock that steps by more than `clock_step_s`
    is not followed until `fleetlog clock accept`.
    """

    batch_max: Annotated[int, Field(ge=1, le=10_000)] = 500
    partitions_max: Annotated[int, Field(ge=1, le=1_000)] = 16
    snapshot_events: Count = 100_000
    snapshot_s: Seconds = 300.0
    cache: Path | None = None
    cache_bytes: Bytes = 2**30
    clock_step_s: Seconds = 60.0


class ProjectorSettings(Section):
    """The tables of this machine: their folder, how long ended tasks stay, how long `?after=` waits."""

    folder: Path | None = None
    ended_days: Annotated[float, Field(gt=0, le=36_500)] = 30.0
    after_wait_s: Annotated[float, Field(ge=0, le=60)] = 5.0


class DiskSettings(Section):
    """Below `min_free_bytes` submissions are refused; reports are still taken."""

    min_free_bytes: Bytes = 2**30


class AlarmSettings(Section):
    """`command` is run by /bin/sh for each alarm, which it reads as JSON from its standard input."""

    command: Annotated[str, Field(min_length=1)] | None = None


class LogsSettings(Section):
    """What a process writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Settings(Section):
    """All settings of a process. `pool` is what a new pool of this log begins with, in the words of `pool set`."""

    log: LogSettings = LogSettings()
    gateway: GatewaySettings = GatewaySettings()
    processor: ProcessorSettings = ProcessorSettings()
    projector: ProjectorSettings = ProjectorSettings()
    disk: DiskSettings = DiskSettings()
    alarm: AlarmSettings = AlarmSettings()
    logs: LogsSettings = LogsSettings()
    pool: dict[str, Any] = {}

    @property
    def embedded(self) -> bool:
        """Whether the log lies in a folder of this machine."""
        return self.log.at.startswith("embedded:")

    @property
    def data_folder(self) -> Path:
        """The folder of the embedded log."""
        return Path(self.log.at.removeprefix("embedded:"))

    @property
    def bootstrap(self) -> str:
        """The brokers of the Kafka log: HOST:PORT,..."""
        return self.log.at.removeprefix("kafka:")

    def pool_defaults(self) -> dict[str, Any]:
        """The settings of a new pool in the log's names and units, as far as they are not the built-in ones."""
        return settings_in(self.pool)


def load_settings(
    flags: Mapping[str, Given] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    role: Role = "reader",
) -> Settings:
    """The settings of this process, checked for what it is about to be. Raises SettingsProblem."""
    layers = read_layers(flags, file=settings_file(config, environ), environ=environ)
    settings = settings_of(layers)
    problems = problems_of(settings, role, layers)
    if problems:
        raise SettingsProblem(" ".join(problems))
    return settings


def settings_of(layers: Layers) -> Settings:
    """The settings that stand in `layers`. Raises SettingsProblem for unknown names and values of a wrong kind."""
    nested: dict[str, dict[str, Any]] = {}
    for full, given in layers.items():
        section, _, name = full.partition(".")
        table = nested.setdefault(section, {})
        if full.startswith("log.kafka."):
            table.setdefault("kafka", {})[full.removeprefix("log.kafka.")] = _text(given.value)
        elif section == "pool":
            table[name] = _pool_value(given.value)
        elif full not in NAMES:
            raise SettingsProblem(f"{given.source}: {unknown(full, NAMES)}")
        else:
            table[name] = given.value.split(",") if full in LISTS and isinstance(given.value, str) else given.value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        full = ".".join(str(part) for part in first["loc"][:2])
        raise SettingsProblem(f"{_place(full, layers)} is {first['input']!r}: {plain(first)}.") from None


def _place(full: str, layers: Layers) -> str:
    """The setting, and where it was given: a file, a variable, or a flag that names it itself."""
    source = layers[full].source if full in layers else "settings"
    return source if source.endswith(full) else f"{source}: {full}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pool_value(value: Any) -> Any:
    """A value of a pool setting; in variables and flags numbers are written as text."""
    if isinstance(value, str):
        for number in (int, float):
            try:
                return number(value)
            except ValueError:
                continue
    return value


# ---- what is refused at start ----


def problems_of(settings: Settings, role: Role, layers: Layers | None = None) -> list[str]:
    """Why a process of this role does not start with these settings, a sentence each that says what to change.
    `layers`: where the settings were given.
    """
    problems = [_log_problem(settings), _role_problem(settings, role)]
    if role in ("up", "gateway"):
        problems += settings_problems(settings.gateway, RECORD_BYTES_MAX)
    if role in ("up", "processor"):
        problems.append(_pool_problem(settings, layers or {}))
    return [problem for problem in problems if problem]


def _log_problem(settings: Settings) -> str | None:
    kind, _, place = settings.log.at.partition(":")
    if kind not in ("embedded", "kafka") or not place:
        return f"log.at is {settings.log.at!r}: write embedded:FOLDER or kafka:HOST:PORT,HOST:PORT."
    if kind == "kafka":
        for address in place.split(","):
            host, _, port = address.rpartition(":")
            if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                return f"log.at names the broker {address!r}: write HOST:PORT, for example kafka:127.0.0.1:9092."
    elif settings.log.replication not in (None, 1):
        return (
            f"log.replication is {settings.log.replication}, but the embedded log has one copy: "
            "leave it out, or put the log on Kafka."
        )
    return None


def _role_problem(settings: Settings, role: Role) -> str | None:
    if settings.embedded and role in ("processor", "gateway"):
        return (
            f"`fleetlog {role}` needs a log on Kafka, the embedded log belongs to one process: "
            "say `fleetlog up`, or name the brokers with --kafka."
        )
    return None


def _pool_problem(settings: Settings, layers: Layers) -> str | None:
    changed = settings.pool_defaults()
    refusal = settings_problem(changed, PoolSettings())
    if refusal is not None:
        return _refused_setting(refusal, settings, layers)
    pool = PoolSettings(**changed)
    said = pool_problem(settings.gateway, pool.window_ms, pool.accept_ms)
    return f"[pool]: {said}" if said else None


def _refused_setting(refusal: Refusal, settings: Settings, layers: Layers) -> str:
    """A setting of new pools that a pool would refuse, under the name that it was given."""
    inside = (refusal.field or "").rpartition("/")[2]
    name = setting_outside(inside)
    full, said = f"pool.{name}", refusal.text.removeprefix(f"{inside}: ")
    if refusal.reason == "unknown_field":
        known = tuple(setting_outside(one) for one in SETTING_NAMES)
        return f"{layers[full].source if full in layers else '[pool]'}: {unknown(name, known, 'pool setting')}"
    if refusal.reason == "impossible_settings":
        sources = [layers[one].source for one in ("pool.window_s", "pool.lease_s") if one in layers]
        return f"{' and '.join(dict.fromkeys(sources)) or '[pool]'}: {refusal.text}."
    value = settings.pool.get(name)
    unit = " in seconds" if said.endswith("a duration") else ""
    return f"{_place(full, layers)} is {value!r}: it {said}{unit}."


# ---- showing ----


def _names() -> Iterator[tuple[str, Any]]:
    for section, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from ((f"{section}.{name}", inner.annotation) for name, inner in model.model_fields.items())


NAMES: Final = tuple(name for name, _ in _names() if name not in OPEN_SECTIONS)
LISTS: Final = frozenset(name for name, annotation in _names() if annotation == list[str])


def shown(settings: Settings, layers: Layers) -> list[tuple[str, Any, str]]:
    """Every setting with its value and where that came from; what could be a secret is not shown."""
    rows = []
    for full in NAMES:
        section, _, name = full.partition(".")
        value = getattr(getattr(settings, section), name)
        if full == "alarm.command" and value is not None:
            value = HIDDEN  # addresses of web hooks are secrets
        rows.append((full, str(value) if isinstance(value, Path) else value, _source(full, layers)))
    for name, value in settings.log.kafka.items():
        full = f"log.kafka.{name}"
        rows.append((full, HIDDEN if _secret(name) else value, _source(full, layers)))
    own = settings.pool_defaults()
    for inside, value in PoolSettings().as_json().items():
        if inside in own:
            full = f"pool.{setting_outside(inside)}"
            rows.append((full, settings.pool.get(full.removeprefix("pool."), value), _source(full, layers)))
    return rows


def _source(full: str, layers: Layers) -> str:
    return layers[full].source if full in layers else "default"


def _secret(name: str) -> bool:
    return any(word in name for word in ("password", "secret", "key", "jaas", "oauthbearer.config"))
