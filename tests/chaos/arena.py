"""Where chaos reigns: three brokers, owners, gateways and projectors as processes, and proxies on every way.

Lane 0 of each broker is the first owner's alone, lane 1 everybody else's, so that one owner can be cut off from the
cluster while the others go on. Robots reach each gateway by a proxy of its own.
"""

import json
import resource
import time
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.error import URLError

from streams.kafka_log import init_log
from tests.chaos.crew import Crew
from tests.chaos.plan import Fault
from tests.support.broker import Broker, BrokerFailed, Brokers
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.system.product import Part, freeze, wait_until

PARTITIONS: Final = 4
POOLS: Final = ("hall-a", "hall-b", "hall-f")
"""Of three different partitions."""
ALONE, OTHERS = 0, 1
QUICK: Final = (
    "pool.window_s=1", "pool.lease_s=5", "pool.accept_s=3", "pool.lost_max=100", "pool.failures_max=100",
    "disk.min_free_bytes=0", "processor.snapshot_events=2000",
)  # fmt: skip
FLOW_S: Final = 180.0
"""How long work may take to flow again before that is a fault; a slow machine needs far less."""


class Arena:
    """Everything that can be hurt. `say` gets a line for what ended by itself."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None] = print, owners: int = 3) -> None:
        self.folder, self.say = folder, say
        self.prefix = f"chaos-{uuid.uuid4().hex[:8]}"
        self._stack = ExitStack()
        self._owners, self._seed = owners, seed
        # A process dies with the thread that started it, so all are started by one that lives as long as the arena.
        self._starter = self._stack.enter_context(ThreadPoolExecutor(1))

    def __enter__(self) -> Self:
        try:
            return self._build()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _build(self) -> Self:
        stack = self._stack
        self.brokers = stack.enter_context(Brokers(3, proxies=2, settings={"default.replication.factor": "3"}))
        init_log(self.brokers.address, self.prefix, PARTITIONS)
        self.owners = [self._part(f"owner-{n}", ALONE if n == 0 else OTHERS, "processor") for n in range(self._owners)]
        ports = [free_port(), free_port()]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.projectors = [self._part(f"projector-{n}", OTHERS, "projector", *self._tables(n)) for n in (0, 1)]
        self.gateways = [
            self._part(f"gateway-{n}", OTHERS, "gateway", *self._tables(n), "--listen", f"127.0.0.1:{port}")
            for n, port in enumerate(ports)
        ]
        self.links = [stack.enter_context(Proxy(f"127.0.0.1:{port}")) for port in ports]
        for part in self.parts:
            stack.callback(part.kill)
            self.start(part)
        for url in self.urls:
            wait_until(partial(ask, url, "GET", "/readyz"), FLOW_S)
        links = [f"http://{link.address}" for link in self.links]
        self.crew = Crew(links, self.urls, POOLS, self.folder, self._seed)
        stack.callback(self.crew.stop)
        self.crew.start()
        return self

    @property
    def parts(self) -> list[Part]:
        """Every process of the product."""
        return [*self.owners, *self.projectors, *self.gateways]

    def _part(self, name: str, lane: int, *words: str) -> Part:
        sets = [word for setting in (*QUICK, f"log.prefix={self.prefix}") for word in ("--set", setting)]
        at = ("--kafka", self.brokers.through(lane))
        return Part(name, *words, *at, *sets, lines=self.folder / f"{name}.log")

    def _tables(self, number: int) -> tuple[str, str]:
        return "--set", f"projector.folder={self.folder / f'host-{number}' / 'tables'}"

    def start(self, part: Part) -> None:
        """A process begins, or begins again; from any thread."""
        self._starter.submit(part.start).result()

    # ---- faults ----

    def suffer(self, fault: Fault) -> None:
        """The fault, from its beginning to its end; what died is started again."""
        time.sleep(fault.after_s)
        ACTS[fault.what](self, fault)

    def revive(self) -> None:
        """Starts what ended by itself, as a supervisor would do."""
        for part in self.parts:
            if not part.running:
                self.say(f"  {part.name} had ended by itself and is started again")
                self.start(part)
        for broker in self.brokers:
            if not broker.running:
                self.say(f"  broker {broker.node_id} had ended by itself and is started again")
                broker.start()
        for name in self.crew.revive():
            self.say(f"  {name} had ended by itself and is started again")

    def until_cluster_is_whole(self) -> float:
        """Seconds until a metadata request names every broker again: what the product cannot hasten."""
        began = time.monotonic()

        def whole() -> bool:
            self.revive()
            try:
                self.brokers.wait_for(len(self.brokers))
            except BrokerFailed:
                return False
            return True

        wait_until(whole, FLOW_S)
        return time.monotonic() - began

    def until_work_flows(self) -> float:
        """Seconds until a task of every pool, submitted now, has been completed."""
        began = time.monotonic()
        waiting = dict.fromkeys(POOLS, "")
        for number, pool in enumerate(POOLS):
            waiting[pool] = f"probe-{uuid.uuid4().hex}"
            body = {"id": waiting[pool], "kind": "work", "payload": {"target": waiting[pool]}, "priority": 9}
            url = self.urls[number % len(self.urls)]
            wait_until(partial(ask, url, "POST", f"/v1/pools/{pool}/tasks", body), FLOW_S)
        for pool, task in waiting.items():
            wait_until(partial(self._is_completed, pool, task), FLOW_S)
        return time.monotonic() - began

    def _is_completed(self, pool: str, task: str) -> bool:
        told = ask(self.urls[0], "GET", f"/v1/pools/{pool}/tasks/{task}?wait_s=2") or {}
        return bool(told.get("state") == "COMPLETED")

    def until_all_ended(self) -> None:
        """Waits until both gateways show no task that has not ended."""

        def open_tasks() -> int:
            states = ("WAITING", "ASSIGNED", "RUNNING", "LOST")
            told = [ask(url, "GET", f"/v1/tasks/count?where=state={state}") for url in self.urls for state in states]
            return -1 if None in told else sum(answer["count"] for answer in told if answer)

        wait_until(lambda: open_tasks() == 0, 4 * FLOW_S)

    def shown(self) -> list[dict[str, Any]]:
        """Every task as each gateway shows it."""
        found: list[dict[str, Any]] = []
        for url in self.urls:
            cursor = ""
            while True:
                answer = wait_until(partial(ask, url, "GET", f"/v1/tasks?limit=1000{cursor}"), FLOW_S)
                found += answer["items"]
                if not answer.get("next"):
                    break
                cursor = f"&cursor={answer['next']}"
        return found


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """One request; None where it is not answered with 2xx."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            text = answer.read().decode()
    except (URLError, OSError):
        return None
    return json.loads(text) if text.startswith(("{", "[")) else text


# ---- what each fault does ----


def _one(things: Any, fault: Fault) -> Any:
    return list(things)[fault.number % len(list(things))]


def _killed(group: str) -> Callable[[Arena, Fault], None]:
    def act(arena: Arena, fault: Fault) -> None:
        part: Part = _one(getattr(arena, group), fault)
        part.kill()
        time.sleep(fault.seconds)
        arena.start(part)

    return act


def _stopped(group: str) -> Callable[[Arena, Fault], None]:
    return lambda arena, fault: freeze(_one(getattr(arena, group), fault), fault.seconds)


def _all_owners_killed(arena: Arena, fault: Fault) -> None:
    for part in arena.owners:
        part.kill()
    time.sleep(fault.seconds)
    for part in arena.owners:
        arena.start(part)


def _broker_killed(arena: Arena, fault: Fault) -> None:
    _brokers_killed([_one(arena.brokers, fault)], fault.seconds)


def _two_brokers_killed(arena: Arena, fault: Fault) -> None:
    spared = _one(arena.brokers, fault)
    _brokers_killed([broker for broker in arena.brokers if broker is not spared], fault.seconds)


def _brokers_killed(victims: list[Broker], seconds: float) -> None:
    for broker in victims:
        broker.kill()
    time.sleep(seconds)
    for broker in victims:
        broker.launch()


def _broker_stopped(arena: Arena, fault: Fault) -> None:
    broker: Broker = _one(arena.brokers, fault)
    broker.pause()
    time.sleep(fault.seconds)
    broker.resume()


def _broker_restarted(arena: Arena, fault: Fault) -> None:
    broker: Broker = _one(arena.brokers, fault)
    broker.stop()
    broker.launch()


def _through(proxies: Callable[[Arena, Fault], list[Proxy]], how: str) -> Callable[[Arena, Fault], None]:
    def act(arena: Arena, fault: Fault) -> None:
        chosen = proxies(arena, fault)
        for proxy in chosen:
            getattr(proxy, how)()
        time.sleep(fault.seconds)
        for proxy in chosen:
            proxy.restore()

    return act


def _of_a_broker(arena: Arena, fault: Fault) -> list[Proxy]:
    return list(_one(arena.brokers, fault).proxies)


def _of_the_first_owner(arena: Arena, fault: Fault) -> list[Proxy]:
    return [broker.proxies[ALONE] for broker in arena.brokers]


def _of_robots(arena: Arena, fault: Fault) -> list[Proxy]:
    return [_one(arena.links, fault)]


def _disk_full(pid: int, seconds: float) -> None:
    """No file of this process may grow any more: what a full disk is to it. Its hard limit stays as it was."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    time.sleep(seconds)
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    except ProcessLookupError:
        return  # it ended for it, as a broker does


def _broker_disk_full(arena: Arena, fault: Fault) -> None:
    broker: Broker = _one(arena.brokers, fault)
    _disk_full(broker.pid, fault.seconds)
    if broker.running:
        # A broker that gave its folder up does not take it back while it runs.
        broker.stop()
    broker.launch()


def _projector_disk_full(arena: Arena, fault: Fault) -> None:
    _disk_full(_one(arena.projectors, fault).pid, fault.seconds)


def _robot_killed(arena: Arena, fault: Fault) -> None:
    name = _one(arena.crew.names, fault)
    arena.crew.kill_robot(name)
    time.sleep(fault.seconds)
    arena.crew.start_robot(name)


def _for_a_while(arena: Arena, fault: Fault, path: str, begin: str, end: str) -> None:
    def say(verb: str) -> None:
        wait_until(lambda: ask(_one(arena.urls, fault), "POST", f"{path}/{verb}", {"reason": "chaos"}), FLOW_S)

    say(begin)
    time.sleep(fault.seconds)
    say(end)


def _robot_drained(arena: Arena, fault: Fault) -> None:
    name = _one(arena.crew.names, fault)
    pool = name.rpartition("-")[0]
    if ask(_one(arena.urls, fault), "GET", f"/v1/pools/{pool}/robots/{name}"):
        _for_a_while(arena, fault, f"/v1/pools/{pool}/robots/{name}", "drain", "undrain")


def _pool_paused(arena: Arena, fault: Fault) -> None:
    _for_a_while(arena, fault, f"/v1/pools/{_one(POOLS, fault)}", "pause", "resume")


ACTS: Final[dict[str, Callable[[Arena, Fault], None]]] = {
    "broker killed": _broker_killed,
    "broker stopped and continued": _broker_stopped,
    "broker restarted": _broker_restarted,
    "broker cut off from its clients": _through(_of_a_broker, "cut"),
    "broker's network silent": _through(_of_a_broker, "hold"),
    "broker's disk full": _broker_disk_full,
    "two brokers killed": _two_brokers_killed,
    "owner killed": _killed("owners"),
    "owner stopped and continued": _stopped("owners"),
    "owners all killed": _all_owners_killed,
    "owner cut off from the brokers": _through(_of_the_first_owner, "cut"),
    "owner's network silent": _through(_of_the_first_owner, "hold"),
    "gateway killed": _killed("gateways"),
    "gateway stopped and continued": _stopped("gateways"),
    "gateway cut off from its robots": _through(_of_robots, "cut"),
    "robots' network silent": _through(_of_robots, "hold"),
    "projector killed": _killed("projectors"),
    "projector stopped and continued": _stopped("projectors"),
    "projector's disk full": _projector_disk_full,
    "robot killed": _robot_killed,
    "robot drained": _robot_drained,
    "pool paused": _pool_paused,
}
"""What each fault of the plan does."""
