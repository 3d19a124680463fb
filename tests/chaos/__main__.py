"""Chaos: a cluster, the product and its robots as processes; a seeded plan of faults; then an independent referee.

python -m tests.chaos --rounds 20 --seed 7
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.chaos.arena import Arena
from tests.chaos.plan import plan
from tests.chaos.referee import Verdict, judge, read


def play(folder: Path, rounds: int, seed: int, say: Callable[[str], None] = print) -> tuple[Verdict, list[float]]:
    """`rounds` rounds in an arena of their own; the verdict, and the seconds from a whole cluster until work flowed."""
    gaps: list[float] = []
    with Arena(folder, seed, say) as arena:
        arena.until_work_flows()
        for number, faults in enumerate(plan(rounds, seed), 1):
            with ThreadPoolExecutor(len(faults)) as at_once:
                list(at_once.map(arena.suffer, faults))
            arena.revive()
            whole_s = arena.until_cluster_is_whole()
            gaps.append(arena.until_work_flows())
            what = ", ".join(map(str, faults))
            say(
                f"round {number}: {what}; the cluster is whole after {whole_s:.1f} s, work flows {gaps[-1]:.1f} s later"
            )
        arena.crew.stop_submitting()
        arena.revive()
        arena.until_all_ended()
        events, commands = (read(arena.brokers.address, f"{arena.prefix}.{topic}") for topic in ("events", "commands"))
        return judge(events, commands, arena.crew.acknowledged(), arena.crew.work(), arena.shown()), gaps


def main() -> int:
    """The script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="keeps what the processes logged; without it nothing is kept")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fleetlog-chaos-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        verdict, gaps = play(folder, given.rounds, given.seed, lambda line: print(line, flush=True))
    summary = asdict(verdict) | {"good": verdict.good, "worst_gap_s": round(max(gaps, default=0), 1)}
    print(json.dumps(summary, default=str))
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
