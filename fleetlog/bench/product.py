"""The product under measurement: everything that `fleetlog up` runs, in processes of its own, on a fresh log."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from fleetlog.composition import new_gateway, new_processor, open_reader, run_up, start_serving, tables_folder
from fleetlog.settings import Settings
from projections.projector import Projector
from streams.memory_log import MemoryLog, MemoryStore
from streams.port import LogReader

START_S: Final = 60.0


class BenchProblem(Exception):
    """A benchmark could not be run; the message says why."""


class Product:
    """A running product: its gateway's `url`; `reader` opens its log for the referee."""

    def __init__(self, url: str, reader: Callable[[], LogReader]) -> None:
        self.url = url
        self.reader = reader


class ProductProcess(Product):
    """The product as a process tree that can be measured, killed and begun again on the same log and address.

    `folder` is what it writes on the disk, beside the brokers.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(f"http://{settings.gateway.listen}", lambda: open_reader(settings))
        self.folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begins, and returns when it is ready. Raises BenchProblem."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fleetlog.bench.product"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"FLEETLOG_LOGS_LEVEL": "warning"},
        )
        self.url = _started(self._process, self._settings)

    def stop(self) -> None:
        """Ends in order."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(30)

    def kill(self) -> None:
        """SIGKILL of the whole tree."""
        for pid in self._pids():
            os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def memory_bytes(self) -> int:
        """What all its processes hold in memory (resident)."""
        return sum(_resident_bytes(pid) for pid in self._pids())

    def _pids(self) -> list[int]:
        if self._process is None:
            return []
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [*map(int, children), first]


@contextmanager
def running(log: str, kafka: str | None) -> Iterator[Product]:
    """The product on a fresh log: `memory`, `embedded`, or `kafka` with the brokers' addresses. Raises BenchProblem."""
    if log != "memory":
        with running_apart(log, kafka) as product:
            yield product
        return
    with (
        tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as folder,
        _in_memory(settings_of("embedded", None, Path(folder))) as product,
    ):
        yield product


@contextmanager
def running_apart(log: str, kafka: str | None, pool: Mapping[str, Any] | None = None) -> Iterator[ProductProcess]:
    """The product as processes of its own on a fresh log, `embedded` or `kafka`; `pool` are settings of its pools."""
    with tempfile.TemporaryDirectory(prefix="fleetlog-bench-") as name:
        folder = Path(name)
        settings = settings_of(log, kafka, folder, pool=pool)
        if log == "kafka":
            from streams.kafka_log import init_log

            init_log(settings.bootstrap, settings.log.prefix, settings.log.partitions)
        product = ProductProcess(settings, folder)
        product.start()
        try:
            yield product
        finally:
            product.stop()


@contextmanager
def _in_memory(settings: Settings) -> Iterator[Product]:
    """Log, owners, gateway and projector in this process, which nothing outlives."""
    store = MemoryStore(settings.log.partitions)
    log = MemoryLog(store)
    projector = Projector(MemoryLog(store), tables_folder(settings))
    projecting = threading.Thread(target=projector.run, daemon=True)
    processor = new_processor(settings, log)
    gateway = new_gateway(settings, log)
    with ExitStack() as parts:
        projecting.start()
        parts.callback(projecting.join, 10)
        parts.callback(projector.stop)
        processor.start()
        parts.callback(processor.close)
        served = start_serving(gateway)
        parts.callback(served.stop)
        _until_ready(served.url)
        yield Product(served.url, lambda: MemoryLog(store))


def settings_of(
    log: str, kafka: str | None, folder: Path, partitions: int = 4, pool: Mapping[str, Any] | None = None
) -> Settings:
    """Settings of a log of its own: an embedded one in `folder`, or topics of a new prefix. Raises BenchProblem."""
    if log == "kafka" and not kafka:
        raise BenchProblem("say where the brokers are: --kafka HOST:PORT (`make kafka` starts one)")
    given: dict[str, Any] = {
        "log": {
            "at": f"kafka:{kafka}" if log == "kafka" else f"embedded:{folder}",
            "prefix": f"bench-{uuid.uuid4().hex[:8]}",
            "partitions": partitions,
        },
        "gateway": {"listen": f"127.0.0.1:{_free_port()}"},
        "projector": {"folder": str(folder / "tables")},
        "pool": dict(pool or {}),
    }
    return Settings.model_validate(given)


def _free_port() -> int:
    """One that a product which is killed and begun again can keep."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _started(process: "subprocess.Popen[bytes]", settings: Settings) -> str:
    if process.stdin is None or process.stdout is None:
        raise BenchProblem("the product was started without pipes")
    process.stdin.write(settings.model_dump_json().encode() + b"\n")
    process.stdin.flush()
    url = process.stdout.readline().decode().strip()
    if not url:
        raise BenchProblem("the product did not start; its own words stand above")
    _until_ready(url)
    return url


def _until_ready(url: str) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with urlopen(f"{url}/readyz", timeout=5):  # noqa: S310
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise BenchProblem("the product did not become ready")


def main() -> None:
    """The process that is measured: settings on the first line of standard input; ends when that is closed."""
    settings = Settings.model_validate(json.loads(sys.stdin.readline()))
    stop = threading.Event()

    def end_with_parent() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=end_with_parent, daemon=True).start()
    run_up(settings, stop, lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
