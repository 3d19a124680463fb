"""Killing rounds: parts of the running product are killed with SIGKILL under load, then a referee reads the log.

    python -m tests.system.rounds --log embedded --rounds 10
    python -m tests.system.rounds --log kafka --rounds 10 [--brokers 3 | --kafka HOST:PORT]

Each round kills one part, all of them, or a broker of its own, at a moment drawn by the seed, starts them again, and
waits until a task submitted after it has been completed. In the end everything submitted has to end, and the judge
finds nothing.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.broker import Brokers
from tests.system.crew import Crew
from tests.system.judge import Verdict, judge
from tests.system.product import Product, embedded, on_kafka

SETTLE_S = 180.0
"""Without any progress for so long, something does not end."""
VICTIMS = ("part", "part", "child", "all", "broker")


def play(
    product: Product, crew: Crew, rounds: int, seed: int, victims: Sequence[str] = VICTIMS, say: Any = print
) -> tuple[Verdict, list[float]]:
    """`rounds` rounds on a running product; the verdict, and the seconds until work flowed again in each."""
    rng, gaps = random.Random(seed), list[float]()
    crew.start()
    product.probe()
    for number in range(1, rounds + 1):
        time.sleep(rng.uniform(0.3, 2.0))
        what = kill_something(product, rng.choice(victims), rng)
        gaps.append(product.probe())
        say(f"round {number}: killed {what}, work flows again after {gaps[-1]:.1f} s")
    crew.stop_submitting()
    work_off(product, say)
    product.until_ready()
    reader = product.reader()
    try:
        return judge(reader, crew.acknowledged(), crew.work()), gaps
    finally:
        reader.close()


def work_off(product: Product, say: Any) -> None:
    """Waits until everything has ended, as long as that makes progress: many outages leave a long backlog."""
    fewest, since = sys.maxsize, time.monotonic()
    while left := sum(product.counts().values()):
        if left < fewest:
            fewest, since = left, time.monotonic()
        elif time.monotonic() - since > SETTLE_S:
            say("\n".join(what_is_left(product)))
            raise AssertionError(f"{left} tasks do not end")
        time.sleep(0.2)


def what_is_left(product: Product) -> list[str]:
    """How many tasks have not ended, why some of them have not, and how the robots are."""
    told = [f"not ended: {product.counts()}"]
    for state in product.counts():
        for task in product.ask("GET", f"/v1/tasks?where=state={state}&limit=3")["items"]:
            told.append(product.ask("GET", f"/v1/pools/{task['pool']}/tasks/{task['id']}/why")["text"])
    robots = product.ask("GET", "/v1/robots?limit=10")["items"]
    return told + [f"robot {one['id']}: {one['state']} {one.get('fault') or ''}".rstrip() for one in robots]


def kill_something(product: Product, choice: str, rng: random.Random) -> str:
    """Kills a part, a child of it, everything, or the broker; starts again what does not come back by itself."""
    part = rng.choice(product.parts)
    if choice == "broker" and product.brokers:
        broker = rng.choice(product.brokers)
        broker.kill()
        broker.start()
        return f"broker {broker.node_id}"
    if choice == "child" and part.children():
        for pid in part.children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"the projector of {part.name}"
    chosen = product.parts if choice == "all" else [part]
    for one in chosen:
        one.kill()
    for one in chosen:
        one.start()
    return ", ".join(one.name for one in chosen)


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--brokers", type=int, default=1, help="with --log kafka: so many brokers, any of which may die"
    )
    parser.add_argument("--kafka", help="HOST:PORT of a running broker, which stays; without it brokers are started")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetlog-rounds-")))
        if given.log == "embedded":
            product = embedded(folder)
        elif given.kafka:
            product = on_kafka(folder, given.kafka)
        else:
            brokers = stack.enter_context(Brokers(given.brokers))
            product = on_kafka(folder, brokers.address, list(brokers))
        stack.callback(product.stop)
        product.start()
        crew = Crew(product.url, folder)
        stack.callback(crew.stop)
        verdict, gaps = play(product, crew, given.rounds, given.seed)
    print(
        json.dumps(asdict(verdict) | {"good": verdict.good, "worst_gap_s": round(max(gaps, default=0), 1)}, default=str)
    )
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
