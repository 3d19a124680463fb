"""What `fleetlog doctor` looks at: one finding for each thing, with the remedy where something is wrong."""

import json
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fleetlog.layers import SettingsProblem
from fleetlog.settings import Settings, problems_of

LIBRARIES: Final = {
    "fastapi": "server",
    "uvicorn": "server",
    "rocksdict": "server",
    "confluent-kafka": "kafka",
    "kafka-python": "audit",
}
"""Library -> the extra of fleetlog that brings it."""
ANSWER_S: Final = 5.0
CLOCK_OFF_S: Final = 2.0

Verdict = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `bad` needs mending, a `note` is worth knowing."""

    what: str
    verdict: Verdict
    text: str


def examine(load: Callable[[], Settings], url: str, token: str | None = None) -> Iterator[Finding]:
    """Everything that can be seen from this machine, one after the other; `token` is tried at the gateway."""
    yield _python()
    yield from _libraries()
    try:
        settings = load()
    except SettingsProblem as problem:
        yield Finding("settings", "bad", str(problem))
        return
    problems = problems_of(settings, "up")
    yield Finding("settings", "bad" if problems else "ok", " ".join(problems) or "they fit together")
    yield _tokens(settings)
    yield _disk(settings)
    yield _alarm(settings)
    if settings.embedded:
        yield _folder(settings)
    else:
        yield from _brokers(settings)
    yield from _gateway(settings, url, token)


def _python() -> Finding:
    found = platform.python_version()
    return Finding("python", "ok", f"{found} on {platform.system()} {platform.machine()}")


def _libraries() -> Iterator[Finding]:
    lacking: dict[str, list[str]] = {}
    for library, extra in LIBRARIES.items():
        try:
            version(library)
        except PackageNotFoundError:
            lacking.setdefault(extra, []).append(library)
    for extra, names in lacking.items():
        yield Finding(
            "libraries",
            "note",
            f"{', '.join(names)} not installed; where it is needed: pip install 'fleetlog[{extra}]'.",
        )
    if not lacking:
        yield Finding("libraries", "ok", f"fleetlog {version('fleetlog')} with all it can use")


def _tokens(settings: Settings) -> Finding:
    if settings.gateway.tokens is None:
        return Finding("tokens", "ok", "none: whoever reaches this machine's loopback may do everything")
    from robot_gateway.tokens import TokenFileUnusable, read_tokens

    try:
        entries = read_tokens(settings.gateway.tokens)
    except TokenFileUnusable as unusable:
        return Finding("tokens", "bad", str(unusable))
    now = datetime.now(UTC)
    over = [entry.name for entry in entries if entry.expires is not None and entry.expires <= now]
    if over:
        return Finding("tokens", "note", f"expired: {', '.join(over)}; `fleetlog token revoke` removes them.")
    return Finding("tokens", "ok", f"{len(entries)} in {settings.gateway.tokens}")


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _disk(settings: Settings) -> Finding:
    from fleetlog.composition import room, tables_folder

    place = settings.data_folder if settings.embedded else tables_folder(settings)
    free, least = shutil.disk_usage(_existing(place)).free, settings.disk.min_free_bytes
    if free < least:
        return Finding(
            "disk",
            "bad",
            f"{room(free)} are free under {place}; below disk.min_free_bytes ({room(least)}) "
            "submissions are refused: make room, or set it lower.",
        )
    return Finding("disk", "ok", f"{room(free)} free under {place}")


def _alarm(settings: Settings) -> Finding:
    """Whether what is to be told of alarms can be found; it is not run."""
    if settings.alarm.command is None:
        return Finding("alarm", "ok", "no alarm.command: watch /readyz and /metrics, or the lines of the gateway")
    first = (settings.alarm.command.split() or [""])[0]
    look = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", first]
    if "=" in first or subprocess.run(look, check=False, capture_output=True).returncode == 0:
        return Finding("alarm", "ok", f"alarms go to {first}")
    return Finding(
        "alarm", "bad", f"alarm.command begins with {first}, which is not found: correct it, or install that."
    )


def _folder(settings: Settings) -> Finding:
    from fleetlog.log_work import check
    from streams.port import LogFault

    folder = settings.data_folder
    if not (folder / "log").exists():
        return Finding("log", "note", f"there is none in {folder} yet; `fleetlog up` makes it.")
    try:
        found = check(settings)
    except LogFault as fault:
        return Finding("log", "bad", str(fault))
    if found.problems:
        return Finding("log", "bad", " ".join(found.problems))
    return Finding("log", "ok", f"{found.log_id} in {folder}, format {found.format}, {found.partitions} partitions")


def _brokers(settings: Settings) -> Iterator[Finding]:
    from streams.port import LogFault

    for address in settings.bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
        except OSError as error:
            yield Finding(
                "broker", "bad", f"{address} does not answer ({error.strerror}): start it, or correct log.at."
            )
        else:
            yield Finding("broker", "ok", f"{address} answers")
    from fleetlog.log_work import check

    try:
        found = check(settings)
    except LogFault as fault:
        yield Finding("log", "bad", str(fault))
    else:
        for problem in found.problems:
            yield Finding("log", "bad", problem)
        if not found.problems:
            yield Finding("log", "ok", f"{found.log_id}, format {found.format}, {found.partitions} partitions")


def _gateway(settings: Settings, url: str, token: str | None) -> Iterator[Finding]:
    try:
        told, date = _get(f"{url}/v1/version")
    except (URLError, OSError, ValueError):
        yield _port(settings, url)
        return
    if not isinstance(told, dict) or "log_id" not in told:
        yield Finding("gateway", "bad", f"what answers at {url} is no Fleetlog gateway: choose another gateway.listen.")
        return
    mine = version("fleetlog")
    if told.get("software") != mine:
        text = f"{url} runs version {told.get('software')}, this is {mine}: update the older one."
        yield Finding("gateway", "note", text)
    else:
        yield Finding("gateway", "ok", f"{url} serves log {str(told['log_id'])[:8]}, version {mine}")
    yield _readiness(url)
    yield _token(url, token)
    off_s = abs((date - datetime.now(UTC)).total_seconds()) if date else 0.0
    if off_s > CLOCK_OFF_S:
        yield Finding("clock", "note", f"this clock and the gateway's differ by {off_s:.0f} s: run a time service.")
    else:
        yield Finding("clock", "ok", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")


def _readiness(url: str) -> Finding:
    try:
        with urlopen(f"{url}/readyz", timeout=ANSWER_S) as response:  # noqa: S310
            lines = response.read().decode("utf-8", "replace").splitlines()
        worse = [line.replace(": degraded: ", ": ", 1) for line in lines if ": degraded: " in line]
        return Finding("ready", "note", "; ".join(worse)) if worse else Finding("ready", "ok", "every part is ready")
    except URLError as error:
        read = getattr(error, "read", None)
        lines = read().decode("utf-8", "replace").splitlines() if read else [str(error)]
        text = "; ".join(line for line in lines if not line.endswith(": ready"))
        return Finding("ready", "bad", f"{text}: wait a little, else see the log lines of that process.")


def _token(url: str, token: str | None) -> Finding:
    """Whether the gateway lets in who asks with this token, or without one."""
    try:
        if _status(url, None) != 401:
            return Finding("token", "ok", "none is needed")
        if token is None:
            return Finding("token", "note", "the gateway asks for one: --token-file FILE tries yours.")
        known = _status(url, token) != 401
    except OSError as error:
        return Finding("token", "note", f"could not be tried: {error}.")
    if known:
        return Finding("token", "ok", "the gateway knows it")
    text = "the gateway does not know it, or it is expired: see `fleetlog token list` where the gateway runs."
    return Finding("token", "bad", text)


def _status(url: str, token: str | None) -> int:
    """How the gateway answers to a question that needs a token where there are tokens."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = Request(f"{url}/v1/pools?limit=1", headers=headers)  # noqa: S310
    try:
        with urlopen(request, timeout=ANSWER_S) as response:  # noqa: S310
            return int(response.status)
    except HTTPError as refused:
        return refused.code


def _get(url: str) -> tuple[Any, datetime | None]:
    with urlopen(url, timeout=ANSWER_S) as response:  # noqa: S310
        date = response.headers.get("Date")
        return json.loads(response.read()), parsedate_to_datetime(date) if date else None


def _port(settings: Settings, url: str) -> Finding:
    """Nobody serves there: whether a gateway could."""
    host, port = settings.gateway.host, settings.gateway.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            why = (error.strerror or "").lower()
            text = f"{settings.gateway.listen} cannot be used ({why}): stop what listens there, or set gateway.listen."
            return Finding("gateway", "bad", text)
    return Finding("gateway", "note", f"nobody serves at {url}; {settings.gateway.listen} is free for `fleetlog up`.")
