"""docs/reference/metrics.md: every figure that /metrics shows."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

from docs.generators.markdown import page, table
from robot_gateway.health import Seen
from robot_gateway.metrics import GatewayMetrics, Registry
from robot_gateway.metrics_of_fleet import FleetMetrics

Row = tuple[str, str, str, str]

INTRODUCTION: Final = """
What `GET /metrics` shows, in Prometheus' text format. Counters end in `_total`; summaries and histograms have `_count`
and `_sum`. Nothing is labelled by task, robot or target, so the number of series grows with pools, kinds of answers
and partitions alone. Of pools a token is shown those that it is for.
"""
OF_THE_GATEWAY: Final = """
## Of this gateway

Since the start of its process.
"""
OF_POOLS: Final = """
## Of pools

From the tables of this host, looked at every two seconds: every gateway of the host shows the same. Totals are those of
the log since the pool was made, so they are right after a restart, and after the tables were built anew.
"""
OF_OWNERS: Final = """
## Of owners and log

Of the partitions that this process decides for, since it took them over (`fleetlog up`). A `fleetlog processor` has no
HTTP: what matters of it stands in the log, and so in the figures of pools, in [`/readyz`](../operate/readiness.md), and
in its log lines.
"""


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    columns = ("figure", "type", "labels", "")
    fleet = sorted(_row(family, vars(family)["_labelnames"]) for family in FleetMetrics(Seen(), 0, bool).collect())
    owners = [row for row in fleet if row[0].startswith(("`fleetlog_owner_", "`fleetlog_bad_"))]
    return page(
        "Metrics",
        INTRODUCTION,
        OF_THE_GATEWAY,
        table(columns, sorted(_of_the_gateway())),
        OF_POOLS,
        table(columns, [row for row in fleet if row not in owners]),
        OF_OWNERS,
        table(columns, owners),
    )


def _of_the_gateway() -> Iterator[Row]:
    registry = Registry()
    GatewayMetrics(registry)
    for collector in list(registry._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            for family in collector.describe():
                yield _row(family, vars(collector)["_labelnames"])


def _row(family: Metric, labels: Iterable[str]) -> Row:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation
