"""Figures of a gateway for Prometheus. Never labelled by task, robot or target."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REQUEST_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)


Registry = CollectorRegistry
"""Where the metrics of a process are gathered."""


class GatewayMetrics:
    """The gateway's own figures, in `registry` beside those of other parts of the process."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.commands = Counter("fleetlog_gateway_commands", "Commands sent to owners", registry=registry)
        self.reports = Counter("fleetlog_gateway_reports", "Robot messages sent to the log", registry=registry)
        outcomes = Counter(
            "fleetlog_gateway_outcomes", "Outcomes received, by whether somebody was there", ["to"], registry=registry
        )
        self.outcomes_delivered, self.outcomes_for_nobody = outcomes.labels("delivered"), outcomes.labels("nobody")
        self.requests = Counter(
            "fleetlog_gateway_requests", "HTTP requests answered", ["method", "route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "fleetlog_gateway_request_seconds",
            "Time to answer HTTP requests",
            buckets=REQUEST_SECONDS,
            registry=registry,
        )
        self.closed = Counter(
            "fleetlog_gateway_sessions_closed", "Robot sessions closed by the gateway", ["code"], registry=registry
        )
        self._sessions = Gauge("fleetlog_gateway_sessions", "Robot sessions open", registry=registry)
        self._unanswered = Gauge("fleetlog_gateway_unanswered", "Commands without an answer", registry=registry)
        self._overloaded = Gauge(
            "fleetlog_gateway_overloaded", "1 while the gateway takes no new work for its load", registry=registry
        )
        self._ready = Gauge("fleetlog_gateway_ready", "1 while every part of /readyz is ready", registry=registry)

    def watch(
        self,
        sessions: Callable[[], float],
        unanswered: Callable[[], float],
        ready: Callable[[], float],
        overloaded: Callable[[], float],
    ) -> None:
        """Where to read what is counted elsewhere."""
        self._ready.set_function(ready)
        self._overloaded.set_function(overloaded)
        self._sessions.set_function(sessions)
        self._unanswered.set_function(unanswered)

    def exposition(self) -> bytes:
        """All figures of the registry in Prometheus' text format."""
        return generate_latest(self.registry)
