"""The one place where adapters are chosen and the parts of the product are put together.

Every function takes settings that were read once, builds what it needs, and hands it down. `stop` is an event that a
signal handler sets. Faults of the log, the folder and the settings are sentences (`CannotStart`, `LogFault`).

Each part is imported where it is put together: a projector or an owner alone begins without the web server.
"""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleetlog.settings import Settings
from streams.port import Log, LogFault, LogReader

if TYPE_CHECKING:
    from robot_gateway.gateway import Gateway
    from robot_gateway.serve import Served
    from streams.processor import Processor

logger = logging.getLogger("fleetlog")

CHILD_RETRY_S: Final = 1.0
CHILD_GRACE_S: Final = 10.0
LOOK_EVERY_S: Final = 0.2
LOOK_AT_DISK_S: Final = 1.0


class CannotStart(Exception):
    """A part of the product cannot start; the message says what to change."""


def tables_folder(settings: Settings) -> Path:
    """Where the projections of this host lie: beside the embedded log, or where `projector.folder` says."""
    if settings.projector.folder is not None:
        return settings.projector.folder
    return (settings.data_folder if settings.embedded else Path("fleetlog-data")) / "tables"


def open_log(settings: Settings, create: bool = True) -> Log:
    """The log for reading and writing. Raises LogFault."""
    if settings.embedded:
        from streams.embedded_log import EmbeddedLog

        folder = settings.data_folder / "log"
        partitions = None if folder.exists() else settings.log.partitions
        return EmbeddedLog.open(folder, create, partitions, settings.log.sync)
    return _kafka_log(settings)


def open_reader(settings: Settings) -> LogReader:
    """The log for reading alone, beside the process that writes it. Raises LogFault."""
    if settings.embedded:
        from streams.embedded_reader import EmbeddedReader

        return EmbeddedReader(settings.data_folder / "log")
    return _kafka_log(settings)


def _kafka_log(settings: Settings) -> Log:
    try:
        from streams.kafka_log import KafkaLog
    except ImportError:
        raise CannotStart("Kafka needs the extra: pip install 'fleetlog[server,kafka]'.") from None
    return KafkaLog(settings.bootstrap, settings.log.prefix, dict(settings.log.kafka))


# ---- the parts ----


def new_processor(settings: Settings, log: Log) -> "Processor":
    """The owners of this process; payloads are cached beside them unless the log itself is at hand."""
    from robot_gateway.version import VERSION
    from streams.owner import OwnerSettings
    from streams.processor import Processor

    own = settings.processor
    owner = OwnerSettings(
        name=_life("owner"),
        software=VERSION,
        batch_max=own.batch_max,
        snapshot_events=own.snapshot_events,
        snapshot_s=own.snapshot_s,
        clock_step_ms=int(own.clock_step_s * 1_000),
        defaults=settings.pool_defaults(),
    )
    cache = None if settings.embedded else own.cache
    return Processor(log, owner, cache, own.cache_bytes)


def new_gateway(settings: Settings, log: Log) -> "Gateway":
    """A gateway on this host's tables."""
    from projections.queries import Tables
    from robot_gateway.gateway import Gateway

    folder = settings.data_folder if settings.embedded else tables_folder(settings)
    return Gateway(
        log,
        Tables(tables_folder(settings), log),
        settings.gateway,
        _life("gateway"),
        tables_folder(settings).with_name("bulk"),
        after_wait_s=settings.projector.after_wait_s,
        submissions_stopped=LowDisk(folder, settings.disk.min_free_bytes),
    )


def start_serving(gateway: "Gateway") -> "Served":
    """The gateway at its address. Raises CannotServe."""
    from robot_gateway.serve import Served

    return Served(gateway).start()


def alarms_of(settings: Settings, gateway: "Gateway") -> AbstractContextManager[object]:
    """Tells the operator's command of alarms until the end; nothing where none is set."""
    if settings.alarm.command is None:
        return nullcontext()
    from robot_gateway.alarm_command import AlarmCommand

    def unready() -> list[str]:
        return [str(line) for line in gateway.readiness(with_names=False) if not line.ready]

    return AlarmCommand(settings.alarm.command, gateway.name, lambda: gateway.health.seen, unready)


def _life(part: str) -> str:
    """A name that is new for every life of a process."""
    return f"{part}-{socket.gethostname()[:32]}-{uuid.uuid4().hex[:8]}"


GIB: Final = 1 << 30
MIB: Final = 1 << 20


def room(size_bytes: int) -> str:
    """So much of a disk, in words."""
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / MIB:.1f} MiB"


class LowDisk:
    """Says why no submissions are taken while the disk is nearly full, or None; looks at most once a second."""

    def __init__(self, folder: Path, min_free_bytes: int) -> None:
        self._folder, self._min_free_bytes = folder, min_free_bytes
        self._looked_at = -LOOK_AT_DISK_S
        self._said: str | None = None

    def __call__(self) -> str | None:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_AT_DISK_S:
            self._looked_at, self._said = now, self._look()
        return self._said

    def _look(self) -> str | None:
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return None
        if free >= self._min_free_bytes:
            return None
        return (
            f"the disk under {self._folder} has {room(free)} free, below disk.min_free_bytes "
            f"({room(self._min_free_bytes)}): make room, or lower that setting; reports are still taken"
        )


def run_projector(settings: Settings, stop: threading.Event) -> None:
    """Keeps this host's tables until `stop`. Raises StoreFault, LogFault."""
    reader = open_reader(settings)
    try:
        _project(settings, reader, stop)
    finally:
        reader.close()


def _project(settings: Settings, reader: LogReader, stop: threading.Event) -> None:
    from projections.projector import Projector

    projector = Projector(reader, tables_folder(settings), settings.projector.ended_days)

    def end() -> None:
        stop.wait()
        projector.stop()

    threading.Thread(target=end, name="stopper", daemon=True).start()
    try:
        projector.run()
    finally:
        projector.close()


def run_processor(settings: Settings, stop: threading.Event, ready: Callable[[str], None]) -> None:
    """Owns partitions until `stop`. Raises LogFault, CannotStart."""
    if settings.embedded:
        raise CannotStart("the embedded log belongs to one process: use `fleetlog up`, or a Kafka log with --kafka.")
    with _closing(open_log(settings)) as log:
        processor = new_processor(settings, log)
        processor.start()
        ready("deciding")
        try:
            stop.wait()
        finally:
            processor.close()


def run_gateway(settings: Settings, stop: threading.Event, ready: Callable[[str], None]) -> None:
    """Serves HTTP and robot sessions until `stop`; `ready` gets the address.

    Raises LogFault, CannotStart, CannotServe.
    """
    if settings.embedded:
        raise CannotStart("the embedded log belongs to one process: use `fleetlog up`, or a Kafka log with --kafka.")
    with _closing(open_log(settings)) as log:
        gateway = new_gateway(settings, log)
        served = start_serving(gateway)
        try:
            ready(served.url)
            with alarms_of(settings, gateway):
                _wait(stop, served)
        finally:
            served.stop()


def run_up(settings: Settings, stop: threading.Event, ready: Callable[[str], None]) -> None:
    """Everything on one machine: log, owners and gateway in this process, the projector in a child of it.

    Raises LogFault, CannotStart, CannotServe.
    """
    with ExitStack() as parts:
        log = parts.enter_context(_closing(open_log(settings)))
        child = parts.enter_context(ProjectorChild(settings))
        processor = new_processor(settings, log)
        processor.start()
        parts.callback(processor.close)
        gateway = new_gateway(settings, log)
        gateway.watch_owners(processor.statuses, processor.why_not_ready)
        gateway.add_part("projector", child.why_not_ready)
        served = start_serving(gateway)
        parts.callback(served.stop)
        parts.enter_context(alarms_of(settings, gateway))
        ready(served.url)
        _wait(stop, served)


def _wait(stop: threading.Event, served: "Served") -> None:
    while not stop.wait(LOOK_EVERY_S):
        if served.wait(0):
            raise CannotStart(f"the gateway ended: {served.failure}")


@contextmanager
def _closing(log: Log) -> Iterator[Log]:
    try:
        yield log
    finally:
        log.close()


# ---- the projector as a child ----


class ProjectorChild:
    """The projector in a process of its own: started again when it ends, ended with its parent.

    It reads the settings from its standard input and ends when that is closed, however its parent dies.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._restarts = -1
        self._thread = threading.Thread(target=self._keep, name="projector-child", daemon=True)

    def __enter__(self) -> "ProjectorChild":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(CHILD_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join(CHILD_GRACE_S)

    def why_not_ready(self) -> str | None:
        """A sentence while the projector does not run, else None."""
        process = self._process
        if process is not None and process.poll() is None:
            return None
        return "the projector is being started"

    def _keep(self) -> None:
        while not self._closing.is_set():
            self._restarts += 1
            if self._restarts:
                logger.warning("the projector ended and is started again")
                self._closing.wait(CHILD_RETRY_S)
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", "fleetlog.projector_child"], stdin=subprocess.PIPE, start_new_session=True
            )
            if process.stdin is not None:
                process.stdin.write(self._settings.model_dump_json().encode() + b"\n")
                process.stdin.flush()
            process.wait()


def project_as_child() -> int:
    """What the child does: settings from the first line of standard input, then the projector until it is closed."""
    from projections.store import StoreFault

    settings = Settings.model_validate(json.loads(sys.stdin.readline()))
    stop = threading.Event()

    def end_with_parent() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=end_with_parent, name="parent", daemon=True).start()
    try:
        run_projector(settings, stop)
    except (StoreFault, LogFault, CannotStart) as fault:
        print(f"fleetlog projector: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        os._exit(130)
    return 0
