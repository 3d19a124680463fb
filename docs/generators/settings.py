"""docs/reference/settings.md: what can be set for a process, and what for a pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from commands.settings import _CHOICES, _RANGES, PoolSettings
from docs.generators.markdown import code, limits_of, page, table
from fleetlog.settings import NAMES, Settings
from robot_gateway.wire import setting_outside, to_seconds

INTRODUCTION: Final = """
A setting comes from a flag, else from the environment (`FLEETLOG_<SECTION>_<NAME>`), else from `fleetlog.toml` in the
working folder or where `--config` or `FLEETLOG_CONFIG` says, else from its default. `fleetlog settings` prints every
value and where it came from. Unknown names and impossible combinations are refused at start, with the sentence that
says what to change.

```toml
[log]
at = "kafka:kafka-1:9092,kafka-2:9092"

[gateway]
listen = "127.0.0.1:8780"
```

The same in the environment: `FLEETLOG_LOG_AT=kafka:kafka-1:9092,kafka-2:9092`. Any process takes `--set
SECTION.NAME=VALUE`. `log.kafka.*` goes to librdkafka as it is; what Fleetlog sets itself is refused by name.
"""
OF_POOLS: Final = """
What decides must be in the log, so these live there: `fleetlog pool set NAME=VALUE`, or `PATCH /v1/pools/{pool}`.
**Task**: a submission may say otherwise. The section `[pool]` of `fleetlog.toml` (`pool.window_s` and so on) says
what a *new* pool begins with.

Beside the ranges: `lease_s` is at least three windows and is rounded up to whole ones; `window_s` divides 60 s.
"""

PROCESS: Final = {
    "log.at": "`embedded:FOLDER` or `kafka:HOST:PORT,HOST:PORT`",
    "log.prefix": "Kafka: topics are called `<prefix>.events` and so on",
    "log.partitions": "when a log is made; fixed from then on",
    "log.replication": "Kafka: copies of each topic; default 3 with three brokers or more, else 1",
    "log.kafka": "names and values for librdkafka",
    "log.sync": "embedded: records are on the disk before they are answered",
    "gateway.listen": "HOST:PORT; port 0 takes any free one",
    "gateway.tokens": "the token file; without it only loopback may be listened on",
    "gateway.tls_cert": "certificate (PEM)",
    "gateway.tls_key": "its key (PEM)",
    "gateway.behind_tls_proxy": "a proxy before the gateway speaks TLS",
    "gateway.origins": "web pages (`scheme://host[:port]`) that may use the gateway from a browser",
    "gateway.payload_max_bytes": "of one payload, result or checkpoint",
    "gateway.unanswered_max": "commands that may wait for an answer; beyond: 429 `gateway_busy`",
    "gateway.answer_timeout_s": "then 504 `no_answer`; above 10 s",
    "gateway.heartbeat_gather_ms": "heartbeats are gathered for so long into one record",
    "gateway.sessions_max": "robots connected here at once",
    "gateway.send_buffer_bytes": "what may wait for one slow robot; beyond it is closed (4009)",
    "processor.batch_max": "commands decided in one transaction",
    "processor.partitions_max": "partitions of one process",
    "processor.snapshot_events": "a snapshot after so many events",
    "processor.snapshot_s": "or after so many seconds",
    "processor.cache": "Kafka: a folder for disposable copies of payloads",
    "processor.cache_bytes": "its size",
    "processor.clock_step_s": "a bigger step of the wall clock is not followed until it is accepted",
    "projector.folder": "the tables of this machine; default: beside the embedded log, or `fleetlog-data/tables`",
    "projector.ended_days": "days that ended tasks stay in the tables; the log keeps them",
    "projector.after_wait_s": "how long `?after=` waits",
    "disk.min_free_bytes": "below it submissions are refused, reports are still taken",
    "alarm.command": "run by `/bin/sh` for each [alarm](../operate/alarms.md), which it reads as JSON from its input",
    "logs.level": "what a process writes to standard error",
    "logs.format": "",
}
"""What each setting of a process means; a name that is missing here stops the generation."""

POOL: Final = {
    "window_ms": "heartbeat window; a change holds from the next whole minute and resets counts",
    "lease_ms": "lease time",
    "accept_ms": "time to accept an assignment",
    "ageing_ms": "a waiting task gains one priority level per",
    "failures_max": "failures until DEAD `failed`",
    "backoff_first_ms": "first wait after a failure (20 % jitter)",
    "backoff_factor": "times this for each further failure",
    "backoff_max_ms": "longest wait",
    "lost_max": "lost attempts until DEAD `poison`",
    "on_lost": "what follows when a lease ends by silence",
    "wait_ms": "how long `wait` waits for the same robot",
    "late": "whether a late `complete` counts while there is no newer attempt",
    "passing": "which tasks of a target may pass one that backs off",
    "excluded_ms": "a robot that rejected a task does not get it again before",
    "lapses_max": "assignments in a row not accepted until ERROR",
    "rejects_max": "rejections in a row until ERROR",
    "supersessions_per_minute": "sessions superseded within a minute until ERROR `two_programs`",
    "expiry_held_min": "so many leases ending at once are held for one window (0: never)",
    "expiry_held_share": "if they are more than this share of all",
    "queue_max": "tasks that may wait; beyond: 429 `queue_full`",
    "lanes_max": "different combinations of requirement, kind and limit key that may wait",
    "firings_max": "firings of schedules in one tick",
    "remember_days": "days of event time that ids are remembered",
    "remember_max": "and at most so many",
}
"""What each setting of a pool means, by its name in the log; a name that is missing here stops the generation."""
OF_TASKS: Final = frozenset(
    {"lease_ms", "accept_ms", "failures_max", "backoff_first_ms", "backoff_factor", "backoff_max_ms", "lost_max"}
    | {"on_lost", "wait_ms", "late", "passing"}
)
"""What a submission may override."""


def settings_page() -> str:
    """docs/reference/settings.md."""
    return page(
        "Settings",
        INTRODUCTION,
        "## Of a process",
        table(("setting", "default", "values", ""), list(_process_rows())),
        "## Of a pool",
        OF_POOLS,
        table(("setting", "default", "values", "task", ""), list(_pool_rows())),
    )


def _process_rows() -> Iterator[tuple[str, str, str, str]]:
    for full in (*NAMES, "log.kafka"):
        section, _, name = full.partition(".")
        model = Settings.model_fields[section].annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"{section} is no section")
        field = model.model_fields[name]
        yield code(full), _shown(field.default), _values(field), PROCESS[full]


def _values(field: FieldInfo) -> str:
    limits = ", ".join(words for words in limits_of(field))
    kind = _kind(field.annotation)
    return f"{kind}, {limits}" if kind and limits else kind or limits


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if annotation is bool:
        return "true, false"
    if annotation == list[str]:
        return "list"
    return "path" if Path in (annotation, *get_args(annotation)) else ""


def _shown(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else code(value)


def _pool_rows() -> Iterator[tuple[str, str, str, str, str]]:
    for name, default in PoolSettings().as_json().items():
        in_ms = name.endswith("_ms")
        shown = to_seconds(default) if in_ms else default
        if name in _CHOICES:
            values = ", ".join(sorted(_CHOICES[name]))
        else:
            low, high = (to_seconds(end) if in_ms else end for end in _RANGES[name])
            values = f"{low:,} to {high:,}"
        yield code(setting_outside(name)), _shown(shown), values, "yes" if name in OF_TASKS else "", POOL[name]
