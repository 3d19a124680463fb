"""What goes wrong, each in one small function. A fault may come at any time, or when an owner has done a numbered step.

`FAULTS` is the table of all: its name, and what it does to the product. Those that need a process do it to the one that
is in the middle of its step, where the fault came there.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from fleetlog.sim.owners import SESSION_S, Killed, OwnerProcess
from streams.memory_log import CommitFault
from streams.port import Topic

if TYPE_CHECKING:
    from fleetlog.sim.product import Product

Fault = Callable[["Product", "OwnerProcess | None"], None]
"""Does it; the process is the owner whose step it comes in, None between steps."""


def owner_killed(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGKILL of an owner, in the middle of its batch; it is started again."""
    victim = owner or product.some(product.owners)
    if victim is None:
        return
    victim.kill()
    product.scheduler.later(product.random.uniform(0.5, 12.0), product.start_owner)
    if owner is not None:
        raise Killed


def owner_stands_still(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGSTOP past the session, in the middle of its batch: others take over, then it goes on (a zombie)."""
    victim = owner or product.some(product.owners)
    if victim is None:
        return
    seconds = product.random.choice((0.3, 2.0, 1.5 * SESSION_S, 4 * SESSION_S))
    victim.pause(seconds)
    if owner is not None:
        product.go_on_around(owner, seconds)


def handed_over(product: "Product", owner: OwnerProcess | None) -> None:
    """The group gives a partition to another member while this one still decides."""
    partition = product.random.choice(list(product.group.owners))
    product.group.hand_over(partition)
    if owner is not None:
        product.go_on_around(owner, product.random.uniform(0.0, 1.0))


def owner_cut_off(product: "Product", owner: OwnerProcess | None) -> None:
    """An owner does not reach the log for a while."""
    victim = owner or product.some(product.owners)
    if victim is not None:
        victim.log.cut = True
        product.scheduler.later(product.random.uniform(0.2, 2 * SESSION_S), partial(_joined, victim))


def _joined(process: "OwnerProcess") -> None:
    process.log.cut = False


def commit_unanswered(product: "Product", owner: OwnerProcess | None) -> None:
    """The answer to a commit is lost: it happened."""
    product.store.next_commits.append(CommitFault.ANSWER_LOST)


def commit_failed(product: "Product", owner: OwnerProcess | None) -> None:
    """A commit is not answered: it did not happen."""
    product.store.next_commits.append(CommitFault.NOT_WRITTEN)


def log_away(product: "Product", owner: OwnerProcess | None) -> None:
    """The log answers nobody for a while."""
    product.store.away = True
    product.scheduler.later(product.random.uniform(0.5, 20.0), product.log_is_back)


def disk_slow(product: "Product", owner: OwnerProcess | None) -> None:
    """What is appended takes long."""
    product.store.hold()
    product.scheduler.later(product.random.uniform(0.2, 8.0), product.store.release)


def disk_full(product: "Product", owner: OwnerProcess | None) -> None:
    """The gateways take no submissions."""
    product.disk_full = True
    product.scheduler.later(product.random.uniform(1.0, 20.0), product.disk_is_free)


def gateway_killed(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGKILL of a gateway; another life of it is started."""
    victim = product.some(product.gateways)
    if victim is not None:
        victim.kill()
        product.cut_all(victim.gateway)
        product.scheduler.later(product.random.uniform(0.5, 8.0), product.start_gateway)


def gateway_stands_still(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGSTOP of a gateway: it goes on with what it believed."""
    victim = product.some(product.gateways)
    if victim is not None:
        victim.pause(product.random.uniform(0.5, 25.0))


def gateway_cut_off(product: "Product", owner: OwnerProcess | None) -> None:
    """A gateway does not reach the log for a while; its robots reach it."""
    victim = product.some(product.gateways)
    if victim is not None:
        log = victim.gateway.sim_log
        log.cut = True
        product.scheduler.later(product.random.uniform(0.5, 25.0), partial(setattr, log, "cut", False))


def answers_lost(product: "Product", owner: OwnerProcess | None) -> None:
    """What owners said and a gateway has not read yet is lost."""
    victim = product.some(product.gateways)
    if victim is not None:
        victim.gateway.skip_outcomes()


def appends_late(product: "Product", owner: OwnerProcess | None) -> None:
    """What a gateway has sent stays under way, and what others send overtakes it."""
    victim = product.some(product.gateways)
    if victim is not None:
        log = victim.gateway.sim_log
        log.hold_back()
        product.scheduler.later(product.random.uniform(0.1, 6.0), log.let_go)


def append_twice(product: "Product", owner: OwnerProcess | None) -> None:
    """The next record of a gateway is written twice."""
    victim = product.some(product.gateways)
    if victim is not None:
        victim.gateway.sim_log.twice = True


def robot_killed(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGKILL of a robot."""
    product.random.choice(product.robots).dies()


def robot_stands_still(product: "Product", owner: OwnerProcess | None) -> None:
    """A robot's machine sleeps."""
    robot = product.random.choice(product.robots)
    if robot.process.is_well:
        robot.pause(product.random.choice((1.0, 6.0, 20.0, 60.0)))


def robot_cut_off(product: "Product", owner: OwnerProcess | None) -> None:
    """A connection breaks; what was under way is lost."""
    link = product.random.choice(product.robots).link
    if link is not None:
        link.cut()


def robot_cut_off_late(product: "Product", owner: OwnerProcess | None) -> None:
    """A connection breaks for the robot; what it had sent arrives all the same."""
    link = product.random.choice(product.robots).link
    if link is not None:
        link.cut(late=True)


def storm(product: "Product", owner: OwnerProcess | None) -> None:
    """All connections break at once."""
    for robot in product.robots:
        if robot.link is not None:
            robot.link.cut()


def clock_stepped(product: "Product", owner: OwnerProcess | None) -> None:
    """The wall clock of an owner's machine is set: a little, or by hours."""
    victim = owner or product.some(product.owners)
    if victim is not None:
        victim.clock.step(product.random.choice((-30_000, 30_000, -2_000, 7_200_000, -7_200_000)))


def snapshot_corrupt(product: "Product", owner: OwnerProcess | None) -> None:
    """The newest snapshot of a partition is damaged."""
    partition = product.random.randrange(product.store.partitions)
    good, _ = product.store.find_snapshots(partition) if not product.store.away else ([], 0)
    if good:
        product.store.spoil_snapshot(partition, good[0].position)


def projector_killed(product: "Product", owner: OwnerProcess | None) -> None:
    """SIGKILL of the projector; it is started again."""
    product.restart_projector()


def garbage(product: "Product", owner: OwnerProcess | None) -> None:
    """Somebody writes to the log what nobody can read."""
    raw = product.random.choice((b"", b"{", b"\xff\xfe", b'{"what":"report"}', b'{"v":1,"type":"submit","pool":1}'))
    topic = product.random.choice((Topic.REPORTS, Topic.COMMANDS))
    product.store.append(topic, product.random.choice(product.pools), raw, (), lambda fault, offset: None)


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        owner_killed, owner_stands_still, handed_over, owner_cut_off, commit_unanswered, commit_failed,
        log_away, disk_slow, disk_full,
        gateway_killed, gateway_stands_still, gateway_cut_off, answers_lost, appends_late, append_twice,
        robot_killed, robot_stands_still, robot_cut_off, robot_cut_off_late, storm,
        clock_stepped, snapshot_corrupt, projector_killed, garbage,
    )
}  # fmt: skip
STEPS: Final = 8
