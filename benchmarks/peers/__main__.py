"""`python -m benchmarks.peers` (or `make bench-peers`): install the peers, measure them in turn, write the page.

python -m benchmarks.peers --list
python -m benchmarks.peers --tasks 500 --seconds 5 --rounds 1 --only celery --only fleetlog --out /tmp
"""

import argparse
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.peers import works
from benchmarks.peers.celery_peer import Celery, CeleryAlways
from benchmarks.peers.dramatiq_peer import Dramatiq, DramatiqAlways
from benchmarks.peers.fleetlog_peer import FleetlogEmbedded, FleetlogKafka
from benchmarks.peers.peer import Peer, Place, Profile
from benchmarks.peers.processes import Missing, PeerFailed, Processes, last_words
from benchmarks.peers.procrastinate_peer import Procrastinate
from benchmarks.peers.report import PAGE, write
from benchmarks.peers.restate_peer import Restate
from benchmarks.peers.results import Found, Measured, RowFound, load
from benchmarks.peers.temporal_peer import Temporal

PROJECT: Final = Path(__file__).parents[2]
PEERS: Final[tuple[type[Peer], ...]] = (
    FleetlogEmbedded,
    FleetlogKafka,
    Celery,
    CeleryAlways,
    Dramatiq,
    DramatiqAlways,
    Procrastinate,
    Restate,
    Temporal,
)


class Interrupted(BaseException):
    """SIGTERM came: what runs is ended; no failure of a work, so nothing that records those catches it."""


def main(arguments: Sequence[str]) -> int:
    """The command line; exit code 2 for wrong usage, 1 where a work failed, 0 also where a peer is missing."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        print("\n".join(f"{peer.key:16} {peer.title}" for peer in PEERS))
        return 0
    unknown = [name for name in asked.only if not any(peer.key.startswith(name) for peer in PEERS)]
    if unknown:
        print(f"no row is called {unknown[0]}: there are {', '.join(peer.key for peer in PEERS)}", file=sys.stderr)
        return 2
    chosen = [peer for peer in PEERS if not asked.only or any(peer.key.startswith(name) for name in asked.only)]
    if not asked.out.is_dir():
        print(f"--out is not a folder: {asked.out}", file=sys.stderr)
        return 2
    if asked.report:
        return _report(asked.out)
    cache = asked.cache
    found = Found(asked.tasks, asked.seconds, asked.wait, asked.rounds, os.cpu_count() or 1, conditions())
    try:
        rows = [(kind, _installed(kind, cache, found)) for kind in chosen]
        if not asked.install:
            for number in range(1, asked.rounds + 1):
                for kind, row in rows:
                    measure(kind, row, cache, number, found, asked.work)
                    write(found, asked.out)
    except (KeyboardInterrupt, Interrupted):
        print("interrupted: all that was started is ended", file=sys.stderr)
        return 130
    if not asked.install:
        for path in write(found, asked.out):
            print(path)
    return int(any(one.failed for row in found.rows for one in row.measured))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Fleetlog beside others.")
    parser.add_argument("--only", action="append", default=[], metavar="PEER", help="rows whose name begins so; --list")
    parser.add_argument("--work", action="append", choices=WORKS, help="only this work; default: all")
    parser.add_argument("--tasks", type=_positive, default=10_000, help="no-op tasks; default 10,000")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of 50 tasks each; default 30")
    parser.add_argument("--rounds", type=_positive, default=2, help="how often each row is measured; default 2")
    parser.add_argument("--wait", type=float, default=150.0, help="seconds to wait for a killed worker's task")
    parser.add_argument("--out", type=Path, default=PROJECT / "docs", help="folder for page, JSON and charts")
    parser.add_argument(
        "--cache", type=Path, default=PROJECT / ".cache" / "peers", help="folder for installations, data, logs"
    )
    parser.add_argument("--install", action="store_true", help="install the peers, measure nothing")
    parser.add_argument("--report", action="store_true", help="write page and charts anew from the JSON in --out")
    parser.add_argument("--list", action="store_true", help="show the rows, do nothing")
    return parser


WORKS: Final[dict[str, tuple[Any, Profile]]] = {
    "throughput": (works.throughput, Profile.FAST),
    "latency": (works.latency, Profile.FAST),
    "crash_default": (works.crash, Profile.DEFAULT),
    "crash_best": (works.crash, Profile.BEST),
}


def _installed(kind: type[Peer], cache: Path, found: Found) -> RowFound:
    """The row of a peer, which is installed now; or its row says why it cannot be."""
    row = RowFound(
        kind.key, kind.title, kind.durability, kind.recorded, _words(kind), crashes=kind.crashes, survives=kind.survives
    )
    found.rows.append(row)
    say(f"{kind.title}: installing")
    with Processes(cache / "logs") as processes:
        peer = kind(Place(cache, cache / "data"), processes)
        try:
            peer.install()
            row.versions = peer.versions()
        except Missing as missing:
            row.missing, row.remedy = missing.reason, missing.remedy
            say(f"{kind.title}: {missing}")
        except PeerFailed as fault:
            row.missing, row.remedy = str(fault), "see its own words"
            say(f"{kind.title}: {fault}")
    return row


def _words(kind: type[Peer]) -> dict[str, str]:
    return {str(profile): text for profile, text in kind.settings.items()}


def measure(
    kind: type[Peer], row: RowFound, cache: Path, number: int, found: Found, chosen: Sequence[str] | None = None
) -> None:
    """All works of one row, one after another; a work that fails is recorded as failed, and the next begins."""
    if row.missing:
        return
    sizes = {"throughput": found.tasks, "latency": found.seconds, "crash_default": found.wait_s}
    for name, (work, profile) in WORKS.items():
        if (chosen and name not in chosen) or (name.startswith("crash") and not kind.crashes):
            continue
        place = Place(cache, cache / "data")
        shutil.rmtree(place.data, ignore_errors=True)
        place.data.mkdir(parents=True)
        one = Measured(name, number, round(os.getloadavg()[0], 2))
        row.measured.append(one)
        with Processes(cache / "logs") as processes:
            try:
                result = works.measure(kind(place, processes), profile, work, sizes.get(name, found.wait_s))
                one.found = asdict(result)
                if isinstance(result, works.Throughput):
                    one.found |= {"per_s": result.per_s, "submitted_per_s": result.submitted_per_s}
            except PeerFailed as fault:
                one.failed = str(fault)
            except Exception as fault:  # What a peer's parts may raise is not known; the next work begins all the same.
                one.failed = last_words(f"{type(fault).__name__}: {fault}")
        shutil.rmtree(place.data, ignore_errors=True)
        say(f"{kind.title}, {name}, round {number}: {one.failed or _short(one.found)}")


def conditions() -> dict[str, str]:
    """The machine, without its name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GiB, {_kernel()}, "
        f"{platform.machine()}; servers, workers and submitter on it, all on loopback",
        "Python": platform.python_version(),
        "priority": f"nice {os.nice(0)}",
    }


def _kernel() -> str:
    return f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"


def _report(folder: Path) -> int:
    try:
        found = load(folder / f"{PAGE}.json")
    except (OSError, ValueError, TypeError, KeyError) as fault:
        print(f"{PAGE}.json in --out cannot be read: {fault}", file=sys.stderr)
        return 2
    for path in write(found, folder):
        print(path)
    return 0


def _short(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items() if isinstance(value, float))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return number


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:]))
