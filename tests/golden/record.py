"""Records golden logs: `python -m tests.golden.record` writes those that do not exist yet, and nothing else.

NAME.jsonl holds the stored bytes of a pool's events, one a line; NAME.end the chain and the rows that they fold to. A
log that is there is never written again: it is what some software wrote once. Where rows get a new form on purpose,
`python -m tests.golden.record --ends` writes the .end files anew; look at the difference before you keep it.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from commands import events as e
from commands import inputs as i
from commands.evolve import apply_stored, new_pool
from commands.rows import canonical
from commands.state import PoolState
from tests.support.play import play
from tests.support.world import World

FOLDER: Final = Path(__file__).parent


def fold(lines: Iterable[bytes]) -> PoolState:
    """The state of a pool after these stored events."""
    state = new_pool("hall")
    for offset, line in enumerate(lines):
        apply_stored(state, line, offset)
    return state


def end_of(state: PoolState) -> str:
    """Chain and rows, for people to compare."""
    return f"{state.chain.hex()}\n{canonical(state).decode()}\n"


def lives() -> World:
    """Tasks from submission to every end."""
    world = play("""
        t+0   submit   done target=dock requirement=gpu prefer=zone:1 priority=7 lease=20 run=60:alarm
        t+0   submit   failed first=1 failures_max=2 end=900:dead
        t+0   submit   poison lost_max=1
        t+0   submit   cancelled kind=cut
        t+0   submit   late late=record
        t+0   robot    r1 slots=8 caps=gpu|zone:1
        t+0   accept   r1 done
        t+1   checkpoint r1 done 1
        t+2   complete r1 done result=7
        t+2   accept   r1 failed
        t+3   fail     r1 failed
        t+4   accept   r1 poison
        t+4   cancel   cancelled
        t+4   accept   r1 late
        t+5   accept   r1 failed
        t+6   fail     r1 failed
        t+7   redrive  failed priority=3
        t+8   accept   r1 failed
        t+9   fail     r1 failed fatal
        t+10  discard  failed
        t+40  wait
        t+41  complete r1 late #1
        t+42  robot    r2
        t+43  accept   r2 late
        t+44  resolve  poison
        t+45  cancel   late
        t+46  stopped  r2 late cancel checkpoint=1
        t+47  drain    r2
        t+50  submit   never policy=never target=s1
        t+50  submit   waits policy=wait wait=10 target=s2
        t+50  submit   again target=s1
        t+51  robot    r3 slots=2
        t+51  accept   r3 never
        t+51  accept   r3 waits
        t+75  wait
        t+76  beat     r3 never#1
        t+77  release  never
        t+80  stopped  r3 never stop #1
        t+95  wait
    """)
    robot = world.robots["r3"]
    world.submit("p1", requirement=["none"])
    world.verb(i.ChangeTask, "p1", changed=e.TaskChanges(requirement=[], labels={"line": "3"}))
    robot.hello()
    robot.ready()
    robot.accept("p1")
    robot.beat(i.HeldByRobot(task="p1", attempt=1, progress=40, note="reading"))
    world.wait(1)
    world.submit("due", deadlines=e.Deadlines(start=e.InstantDeadline(at=world.now + 1_000, then="cancel")), kind="z")
    world.do(i.Pause, i.ScopeBody(scope="kind", name="z"))
    world.wait(2)
    return world


def robots() -> World:
    """Robots from registration to retirement, and everything they may do wrong."""
    world = play("""
        t+0   robot    r1 slots=2 caps=gpu
        t+1   hello    r1 fresh fault=jammed
        t+2   recovered r1
        t+3   ready    r1 2
        t+4   update   r1 slots=3 caps=gpu|arm
        t+5   drain    r1
        t+6   undrain  r1
        t+7   submit   t1 requirement=arm
        t+8   reject   r1 t1 unsafe
        t+10  reject   r1 t1 busy
        t+13  accept   r1 t1
        t+14  complete r1 t1
        t+15  fault    r1
        t+16  clear    r1
        t+17  submit   t2 requirement=arm accept=1
        t+21  wait
        t+22  bye      r1
        t+23  retire   r1
    """)
    robot = world.stranger("r2")
    for _ in range(7):
        robot.hello(fresh=True)
    return world


def windows() -> World:
    """Silence, expiry held, hand-over, a clock step, a new window length."""
    world = World(settings={"expiry_held_min": 2})
    for k in range(3):
        robot = world.robot(f"r{k}")
        world.submit(f"t{k}")
        robot.accept(f"t{k}")
    world.wait(30)
    for k in range(3):
        world.robots[f"r{k}"].beat(("other", 1))
    world.wait(6)
    world.take_over(gap_s=2)
    world.wall_at = world.now + 3_600_000
    world.do(i.AcceptClock, i.ReasonBody(reason="new battery"))
    world.now = world.wall_at
    world.wall_at = None
    world.do(i.ConfigurePool, i.SettingsBody(settings={"window_ms": 10_000, "lease_ms": 30_000}, reason="slow link"))
    world.wait(90)
    return world


def pool() -> World:
    """What is said of a pool itself; and types that are written by parts of the product beside the core."""
    world = World()
    world.submit("t1")
    world.submit("t1")
    world.do(i.Pause, i.ScopeBody(scope="pool", until=world.now + 5_000, reason="lunch"))
    world.do(i.Pause, i.ScopeBody(scope="target", name="dock"))
    world.wait(6)
    world.do(i.Resume, i.ScopeBody(scope="target", name="dock"))
    digest = "0" * 64
    for event in (
        e.LimitSet(scope="kind", name_="weld", running=4, rate_per_s=2.5, burst=10),
        e.LimitSet(scope="key", name_="tenant-1", running=1),
        e.LimitRemoved(scope="key", name_="tenant-1"),
        e.ScheduleSet(
            schedule="nightly", cron="0 2 * * *", zone="Europe/Berlin", overlap="queue_one", task={"kind": "weld"}
        ),
        e.ScheduleSet(schedule="ping", every_ms=60_000, jitter_ms=500, task={"kind": "ping"}),
        e.SchedulePaused(schedule="nightly", reason="holiday"),
        e.ScheduleResumed(schedule="nightly"),
        e.FiringsSkipped(schedule="ping", first=world.now, last=world.now + 120_000, count=3, reason="catch_up"),
        e.ScheduleDeleted(schedule="ping", reason="moved"),
        e.PoolFrozen(where="tick", error="KeyError: 't9'", digest=digest),
        e.PoolUnfrozen(reason="mended"),
        e.RecordQuarantined(topic="commands", partition=0, offset=17, digest=digest, error="it cannot be decoded"),
        e.FormatRaised(from_format=1, to_format=2),
    ):
        world.note(event)
    return world


def limits() -> World:
    """Limits of kinds and keys: reached, replaced, removed, and what they let begin."""
    return play("""
        t+0   limit    kind weld running=2 rate=0.5 burst=2
        t+0   limit    key ann running=1
        t+0   submit   a1 limit_key=ann
        t+0   submit   a2 limit_key=ann kind=cut
        t+0   submit   w1
        t+0   submit   w2
        t+0   submit   c1 kind=cut
        t+0   robot    r1 slots=9
        t+0   accept   r1 a1
        t+0   accept   r1 w1
        t+0   accept   r1 c1
        t+1   complete r1 a1
        t+1   accept   r1 a2
        t+3   accept   r1 w2
        t+4   complete r1 w1
        t+5   limit    kind weld running=1
        t+5   submit   w3
        t+6   complete r1 w2
        t+6   accept   r1 w3
        t+7   limit    kind cut rate=0.25 burst=3
        t+7   submit   c2 kind=cut
        t+7   unlimit  key ann
    """)


def schedules() -> World:
    """Schedules: fired, skipped for each reason, replaced, paused, removed, fired by hand; over a hand-over."""
    return play("""
        t+0    schedule ping every=10 requirement=link
        t+0    schedule hourly cron=15_*_*_*_* zone=Australia/Lord_Howe jitter=30 overlap=queue_one
        t+0    schedule all every=30 overlap=allow catch_up=2 kind=cut
        t+0    robot    r1 slots=9 caps=link
        t+0    keep     r1
        t+11   accept   r1 ping@20260921T141410Z
        t+45   complete r1 ping@20260921T141410Z
        t+61   schedule ping every=20 requirement=link
        t+70   pause_schedule all
        t+70   fire     hourly
        t+75   take_over gap=100
        t+200  resume_schedule all
        t+230  unschedule ping
        t+230  set      queue_max=1
        t+250  cancel   hourly@20260921T141510Z
        t+300  wait
    """)


LOGS: Final[dict[str, Callable[[], World]]] = {
    "lives": lives,
    "robots": robots,
    "windows": windows,
    "pool": pool,
    "limits": limits,
    "schedules": schedules,
}


def record(folder: Path = FOLDER, ends: bool = False) -> list[str]:
    """Writes what is missing (with `ends`, every .end anew); returns the names of the files written."""
    written = []
    for name, make in LOGS.items():
        log = folder / f"{name}.jsonl"
        if not log.exists():
            world = make()
            world.verify()
            log.write_bytes(b"".join(row.value + b"\n" for row in world.log))
            written.append(log.name)
    for log in sorted(folder.glob("*.jsonl")):
        end = log.with_suffix(".end")
        if ends or not end.exists():
            end.write_text(end_of(fold(log.read_bytes().splitlines())))
            written.append(end.name)
    return written


def main(arguments: list[str] | None = None) -> Any:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ends", action="store_true", help="write the .end files anew; the logs stay as they are")
    written = record(ends=parser.parse_args(arguments).ends)
    print("\n".join(f"wrote {name}" for name in written) or "all logs are there; nothing was written")


if __name__ == "__main__":
    main()
