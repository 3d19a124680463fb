"""Figures of the fleet for Prometheus, as `Health` saw it last: of pools by the tables, of owners by this process.

Labels are pool, state, reason, partition and topic; never a task, robot or target.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from commands.vocabulary import DeadlineThen, DeadReason
from projections.figures import Overview
from robot_gateway.health import Seen
from streams.owner_status import Distribution

POOL_TOTALS: Final = (
    ("leases_expired", "fleetlog_leases_expired", "Leases that ended because their robot was silent"),
    ("done_twice", "fleetlog_done_twice", "Tasks that were probably done twice"),
    ("late_reports", "fleetlog_late_reports", "Reports about attempts that were no longer current"),
    ("expiry_held", "fleetlog_expiry_held", "Times that very many leases were due at once and were held for a window"),
    ("unsatisfiable", "fleetlog_unsatisfiable", "Times that no registered robot met what waiting tasks require"),
    ("quarantined", "fleetlog_quarantined", "Inputs that could not be decoded or decided and were set aside"),
)
POOL_SUMMARIES: Final = (
    ("waits", "waited_ms", "fleetlog_wait_seconds", "Time that tasks waited before each assignment"),
    ("runs", "ran_ms", "fleetlog_run_seconds", "Time that completed attempts ran"),
)
OWNER_COUNTERS: Final = (
    ("batches", "fleetlog_owner_batches", "Batches committed"),
    ("events_written", "fleetlog_owner_events", "Events written"),
)
OWNER_HISTOGRAMS: Final = (
    ("commit_seconds", "fleetlog_owner_commit_seconds", "Time to commit a batch"),
    ("batch_inputs", "fleetlog_owner_batch_inputs", "Commands and reports in a batch"),
)


class FleetMetrics(Collector):
    """One look, as far as the pools go that `sees` lets pass."""

    def __init__(self, seen: Seen, bad_snapshots: int, sees: Callable[[str], bool]) -> None:
        self._seen, self._bad_snapshots, self._sees = seen, bad_snapshots, sees

    def exposition(self) -> bytes:
        """Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterable[Metric]:
        """Every figure."""
        pools = [overview for overview in self._seen.pools if self._sees(overview["progress"]["pool"])]
        yield from _of_pools(pools, self._seen.at)
        yield from _of_tables(self._seen)
        yield from _of_owners(self._seen)
        bad = CounterMetricFamily("fleetlog_bad_snapshots", "Snapshots found damaged and passed over by this process")
        bad.add_metric([], self._bad_snapshots)
        yield bad


def _of_pools(overviews: Sequence[Overview], at: int) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("fleetlog_tasks", "Tasks in the tables", labels=["pool", "state"])
    robots = GaugeMetricFamily("fleetlog_robots", "Registered robots", labels=["pool", "state"])
    oldest = GaugeMetricFamily(
        "fleetlog_oldest_waiting_seconds", "How long the oldest task that may run waits", labels=["pool"]
    )
    dead = CounterMetricFamily("fleetlog_dead_letters", "Tasks that became dead letters", labels=["pool", "reason"])
    deadlines = CounterMetricFamily(
        "fleetlog_deadlines_passed", "Deadlines that passed, by what then happens", labels=["pool", "then"]
    )
    counters = {key: CounterMetricFamily(name, text, labels=["pool"]) for key, name, text in POOL_TOTALS}
    summaries = {
        (count, total): SummaryMetricFamily(name, text, labels=["pool"]) for count, total, name, text in POOL_SUMMARIES
    }
    for overview in overviews:
        pool, totals = overview["progress"]["pool"], overview["progress"]["totals"]
        for state, count in overview["tasks"].items():
            tasks.add_metric([pool, state], count)
        for state, count in overview["robots"].items():
            robots.add_metric([pool, state], count)
        if "oldest_waiting_at" in overview:
            oldest.add_metric([pool], max(0, at - overview["oldest_waiting_at"]) / 1_000)
        # Each is there from the first look on: Prometheus sees no increase in a figure that begins at 1.
        for reason in get_args(DeadReason):
            dead.add_metric([pool, reason], totals.get(f"dead_{reason}", 0))
        for then in get_args(DeadlineThen):
            deadlines.add_metric([pool, then], totals.get(f"deadline_{then}", 0))
        for key, counter in counters.items():
            counter.add_metric([pool], totals.get(key, 0))
        for (count_of, sum_of), summary in summaries.items():
            summary.add_metric([pool], totals.get(count_of, 0), totals.get(sum_of, 0) / 1_000)
    yield from (tasks, robots, oldest, dead, deadlines, *counters.values(), *summaries.values())


def _of_tables(seen: Seen) -> Iterator[Metric]:
    frozen = GaugeMetricFamily(
        "fleetlog_pools_frozen", "Pools that assign nothing after a fault", value=len(seen.frozen)
    )
    behind = GaugeMetricFamily(
        "fleetlog_tables_behind_seconds", "How long ago the tables were at the end of the log", value=seen.behind_s
    )
    lag = GaugeMetricFamily(
        "fleetlog_tables_lag", "Offsets between the tables and the end of the events", labels=["partition"]
    )
    clock = GaugeMetricFamily(
        "fleetlog_clock_distrusted", "Partitions whose wall clock stepped and is not followed", value=len(seen.off_ms)
    )
    disk = GaugeMetricFamily(
        "fleetlog_disk_low", "1 while the disk is nearly full and no submissions are taken", value=seen.disk is not None
    )
    for partition, count in sorted(seen.lag.items()):
        lag.add_metric([str(partition)], count)
    yield from (frozen, behind, lag, clock, disk)


def _of_owners(seen: Seen) -> Iterator[Metric]:
    by_partition = ["partition"]
    deciding = GaugeMetricFamily("fleetlog_owner_deciding", "1 while the partition is decided for", labels=by_partition)
    pools = GaugeMetricFamily("fleetlog_owner_pools", "Pools of the partition", labels=by_partition)
    off = GaugeMetricFamily(
        "fleetlog_owner_clock_offset_seconds",
        "How far the wall clock is ahead of the log's time, where it is farthest off",
        labels=by_partition,
    )
    backlog = GaugeMetricFamily(
        "fleetlog_owner_backlog", "Inputs in the log that are not decided yet", labels=["topic", "partition"]
    )
    counters = {key: CounterMetricFamily(name, text, labels=by_partition) for key, name, text in OWNER_COUNTERS}
    histograms = {key: HistogramMetricFamily(name, text, labels=by_partition) for key, name, text in OWNER_HISTOGRAMS}
    for status in seen.owners:
        partition = [str(status.partition)]
        deciding.add_metric(partition, status.phase == "deciding")
        pools.add_metric(partition, status.pools)
        off.add_metric(partition, status.clock_offset_ms / 1_000)
        for key, counter in counters.items():
            counter.add_metric(partition, getattr(status, key))
        for key, histogram in histograms.items():
            _add(histogram, partition, getattr(status, key))
    for (topic, number), count in sorted(seen.backlog.items()):
        backlog.add_metric([topic.value, str(number)], count)
    yield from (deciding, pools, off, backlog, *counters.values(), *histograms.values())


def _add(family: HistogramMetricFamily, labels: list[str], seen: Distribution) -> None:
    """Prometheus' buckets hold what is up to their bound, those before included."""
    bounds = [*(f"{bound:g}" for bound in seen.bounds), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(seen.counts), strict=True)), seen.sum)
