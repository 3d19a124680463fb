"""A genuine Apache Kafka in KRaft mode on loopback ports, for tests and for people.

    with Broker() as broker: ...                   # broker.address is "127.0.0.1:PORT"
    with Broker(proxies=1) as broker: ...          # broker.proxies[0].address leads through a proxy only
    with Brokers(3) as brokers: ...                # a cluster; brokers[0].kill(), brokers.through(0)

`python -m tests.support.broker start|stop|status` keeps one running beside the shell.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka_home import InDocker, Runtime, runtime
from tests.support.ports import LOOPBACK, free_ports
from tests.support.proxy import KafkaProxy

CEILING_S = 60.0
PORT_TAKEN = "Address already in use"
# The broker tells warnings and errors on stderr, nothing else.
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dlog4j2.level=WARN")
# Halves the time and the work of a start; under a long load the second compiler pays.
QUICK = "-XX:TieredStopAtLevel=1"


class BrokerFailed(Exception):
    """The broker did not start; the message holds the end of its own log."""


class Broker:
    """One broker with a data folder of its own: start, stop, kill, pause, resume, restart.

    `add_partitions_backoff_ms` is the broker's retry back-off for transactions (its own default is 20).
    `proxies` lead to it, so many or these: who enters by one is told only that proxy's address.
    `settings` are further lines for server.properties. A `detached` broker outlives this process and is made
    for a long load rather than a quick start.
    """

    def __init__(
        self,
        *,
        add_partitions_backoff_ms: int = 1,
        proxies: int | Sequence[KafkaProxy] = 0,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        detached: bool = False,
        node_id: int = 1,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = new_cluster_id()
        self.controllers: Mapping[int, int] = {}
        self.proxies = [KafkaProxy() for _ in range(proxies)] if isinstance(proxies, int) else proxies
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fleetlog-kafka-"))
        self._settings = {"add.partitions.to.txn.retry.backoff.ms": str(add_partitions_backoff_ms)}
        self._settings |= settings or {}
        self._detached = detached
        self._runtime: Runtime | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._name = f"fleetlog-kafka-{uuid.uuid4().hex[:12]}"
        self._ports: list[int] = []
        self._formatted = False

    @property
    def address(self) -> str:
        """Where clients reach it directly, `127.0.0.1:PORT`."""
        return f"{LOOPBACK}:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """The process id; of the Docker client where Docker runs the broker."""
        assert self._process is not None, "the broker has not been started"
        return self._process.pid

    @property
    def container(self) -> str | None:
        """The name of the container, where Docker runs the broker."""
        return self._name if isinstance(self._runtime, InDocker) else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it and wait until it answers a metadata request."""
        for _ in range(3):
            self.launch()
            try:
                wait_until_ready(self.address, brokers=1, alive=lambda: self.running, log=self._log)
                return self
            except BrokerFailed as failure:
                self.kill()
                if PORT_TAKEN not in str(failure):
                    raise
                self._ports = []
        raise BrokerFailed("No free port was found in three tries: see what else opens ports on this machine.")

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.running:
            return
        self._runtime = self._runtime or runtime()
        if not self._ports:
            self.choose_ports()
        for proxy, port in zip(self.proxies, self._ports[1:], strict=False):
            proxy.target = f"{LOOPBACK}:{port}"
            proxy.start()
        properties = self.folder / "server.properties"
        properties.write_text(self._properties())
        if not self._formatted:
            self._format(properties)
        words = [*JVM, *([] if self._detached else [QUICK]), "kafka.Kafka", str(properties)]
        command = self._runtime.command(*words, folder=self.folder, name=self._name)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        if not self._detached:
            self._guard = guard(*self._ending())

    def choose_ports(self) -> int:
        """Settle the ports before the start; gives the controller's, which the whole cluster must know."""
        self._ports = free_ports(len(self.proxies) + 2)
        return self._ports[-1]

    def stop(self) -> None:
        """End it in order, or by SIGKILL after the ceiling; a second call does nothing. The data stay."""
        if self.running:
            self.resume()
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait()
        self.kill()

    def kill(self) -> None:
        """SIGKILL: no goodbye, data as they were."""
        if self.running:
            self._signal(signal.SIGKILL)
            self._wait()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        while self.container is None and not _stands_still(self.pid):
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop it in order and start it on the same ports and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it with its proxies and remove its data."""
        self.stop()
        for proxy in self.proxies:
            proxy.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log_text(self) -> str:
        """What the broker wrote to its log so far: warnings and errors."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _signal(self, which: signal.Signals) -> None:
        if self._process is None or not self.running:
            return
        if isinstance(self._runtime, InDocker):
            docker = self._runtime.docker
            subprocess.run([docker, "kill", "--signal", which.name, self._name], check=True, capture_output=True)
        else:
            self._process.send_signal(which)

    def _ending(self) -> list[str]:
        """The command that ends the broker whatever state it is in."""
        if isinstance(self._runtime, InDocker):
            return [self._runtime.docker, "rm", "--force", self._name]
        return ["kill", "-KILL", str(self.pid)]

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=CEILING_S)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _format(self, properties: Path) -> None:
        assert self._runtime is not None
        tool = ["kafka.tools.StorageTool", "format", "--config", str(properties), "--cluster-id", self.cluster_id]
        command = self._runtime.command(*JVM, QUICK, *tool, folder=self.folder, name=f"{self._name}-format")
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise BrokerFailed(f"Kafka could not format {self.folder}:\n{done.stdout}{done.stderr}")
        self._formatted = True

    def _properties(self) -> str:
        proxied = {f"PROXY{number}": number for number in range(len(self.proxies))}
        names = ["DIRECT", *proxied, "CONTROLLER"]
        listeners = {name: f"{LOOPBACK}:{port}" for name, port in zip(names, self._ports, strict=True)}
        advertised = {"DIRECT": listeners["DIRECT"]}
        advertised |= {name: self.proxies[number].address for name, number in proxied.items()}
        voters = self.controllers or {self.node_id: self._ports[-1]}
        copies = str(len(voters))
        alone = len(voters) == 1
        own = {
            # A killed broker is let in again when its former session is over; alone it may be called dead soon.
            "broker.session.timeout.ms": "2000" if alone else "9000",
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "DIRECT",
            "listeners": ",".join(f"{name}://{where}" for name, where in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{where}" for name, where in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": str(len(voters) // 2 + 1),
            "share.coordinator.state.topic.replication.factor": copies,
        }
        lines = {**SMALL_AND_FAST, **own, **self._settings}
        return "".join(f"{name}={value}\n" for name, value in lines.items())


# What differs from Kafka's defaults so that a broker is small, quick to start, and makes no topic by mistake.
SMALL_AND_FAST = {
    "auto.create.topics.enable": "false",
    "background.threads": "2",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "4",
}


class Brokers:
    """A cluster of several brokers; `address` names them all. `proxies` is the number of proxies to each broker."""

    def __init__(self, count: int, *, proxies: int = 0, settings: Mapping[str, str] | None = None) -> None:
        numbers = range(1, count + 1)
        self._brokers = [Broker(node_id=number, proxies=proxies, settings=settings) for number in numbers]

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    def through(self, proxy: int) -> str:
        """The cluster as it is reached by every broker's proxy of this number."""
        return ",".join(broker.proxies[proxy].address for broker in self._brokers)

    def start(self) -> Self:
        """Start all and wait until they know each other."""
        controllers = {broker.node_id: broker.choose_ports() for broker in self._brokers}
        for broker in self._brokers:
            broker.controllers = controllers
            broker.cluster_id = self._brokers[0].cluster_id
            broker.launch()
        self.wait_for(len(self._brokers))
        return self

    def wait_for(self, count: int) -> None:
        """Wait until a metadata request names `count` brokers."""
        alive = [broker for broker in self._brokers if broker.running]
        logs = self._brokers[0].folder / "broker.log"
        address = ",".join(broker.address for broker in alive)
        wait_until_ready(address, brokers=count, alive=lambda: all(b.running for b in alive), log=logs)

    def close(self) -> None:
        """Stop them all and remove their data."""
        for broker in self._brokers:
            broker.kill()
            broker.close()

    def __len__(self) -> int:
        return len(self._brokers)

    def __getitem__(self, index: int) -> Broker:
        return self._brokers[index]

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._brokers)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped; true where the system does not tell."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread has just ended
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def new_cluster_id() -> str:
    """A random id in the form that Kafka's storage tool takes: 22 characters, not starting with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def guard(*ending: str) -> subprocess.Popen[bytes]:
    """A process that runs the command `ending` when this one is gone, however it went; kill it to call that off."""
    waits_for_us = 'read -r _; exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", waits_for_us, "guard", *ending],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_until_ready(address: str, *, brokers: int, alive: Callable[[], bool], log: Path) -> None:
    """Return when a metadata request to `address` is answered and names `brokers` brokers, else BrokerFailed."""
    deadline = time.monotonic() + CEILING_S
    while time.monotonic() < deadline:
        if not alive():
            raise BrokerFailed(f"Kafka ended while starting:\n{_end_of(log)}")
        if _listens(address.split(",")[0]):
            client = AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": 2000})
            with contextlib.suppress(KafkaException):
                if len(client.list_topics(timeout=2).brokers) >= brokers:
                    return
        time.sleep(0.05)
    raise BrokerFailed(f"Kafka did not answer within {CEILING_S:.0f} s:\n{_end_of(log)}")


def _listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:] if log.exists() else "(it wrote no log)"


if __name__ == "__main__":
    from tests.support.detached import main

    sys.exit(main())
