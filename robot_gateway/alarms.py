"""Which alarms there are, and when each is told: at most once a minute for each alarm and pool, never lost.

Two sorts. What is **counted** (dead letters, deadlines, ...) is told when the pool's figure has grown; what came within
a minute of the last telling is told together when that minute is over. What **lasts** (a frozen pool, a full disk, ...)
is told when it begins, once an hour while it goes on, and when it is over. Everything is read from looks that are taken
anyway (`health.Health`), so alarms cost the product nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from robot_gateway.health import Seen, degraded
from robot_gateway.wire import instant_text

TOLD_EVERY_S: Final = 60.0
"""At most so often for each alarm and pool."""
AGAIN_S: Final = 3_600.0
"""What lasts is told again after so long."""
READY_WITHIN_S: Final = 60.0
"""A gateway that begins, or whose log is away for a moment, is no alarm yet."""
SETTLED_S: Final = 30.0
"""Figures that are still growing because tables are being built say nothing new; not for longer than this."""

COUNTED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "poison": (
        ("dead_poison",),
        "{n} dead of poison: their attempts were lost again and again; see `fleetlog dead-letters --pool {pool}`",
    ),
    "dead_letter": (
        ("dead_failed", "dead_fatal", "dead_deadline"),
        "{n} became dead letters; see `fleetlog dead-letters --pool {pool}`, then redrive, resolve or discard",
    ),
    "deadline": (
        ("deadline_alarm",),
        "{n} deadlines with `then: alarm` have passed; see `fleetlog events --pool {pool} --types DeadlinePassed`",
    ),
    "expiry_held": (
        ("expiry_held",),
        "{n} times very many leases were due at once and were held; see whether the network or gateways are away",
    ),
    "done_twice": (
        ("done_twice",),
        "{n} were probably done twice; see `fleetlog events --pool {pool} --types ReportedLate`, compare the results",
    ),
    "quarantined": (
        ("quarantined",),
        "{n} inputs were set aside; see `fleetlog events --pool {pool} --types RecordQuarantined`",
    ),
}
"""Alarm -> the figures of a pool whose growth it tells, and the sentence."""
LASTING: Final = ("frozen", "clock", "tables", "disk", "load", "not_ready")
"""Alarms that begin and end; `frozen` is told for each pool, the others for the gateway's host."""
NAMES: Final = (*COUNTED, *LASTING)

Key = tuple[str, str | None]


@dataclass(slots=True, frozen=True)
class Alarm:
    """What is told. `pool` None: of the host. `count`: how many since it was told last. `over`: it has ended."""

    name: str
    pool: str | None
    text: str
    count: int = 1
    over: bool = False

    def as_json(self, gateway: str, at_ms: int) -> dict[str, Any]:
        """What the command gets."""
        told = {"alarm": self.name, "pool": self.pool, "text": self.text, "count": self.count, "over": self.over}
        told |= {"gateway": gateway, "at": instant_text(at_ms)}
        return {name: value for name, value in told.items() if value is not None}


@dataclass(slots=True)
class _Lasting:
    """Something that goes on: since when, and when it was told last (s); None while it was not."""

    since: float
    text: str
    told_at: float | None = None


@dataclass(slots=True)
class Alarms:
    """What was seen and told so far. `look` gives what is to be told now; instants are seconds of any steady clock."""

    _known: dict[Key, int] = field(default_factory=dict)
    _untold: dict[Key, int] = field(default_factory=dict)
    _told_at: dict[Key, float] = field(default_factory=dict)
    _lasting: dict[Key, _Lasting] = field(default_factory=dict)
    _began: float | None = None
    _settled: bool = False

    def look(self, seen: Seen, unready: Sequence[str], now_s: float) -> list[Alarm]:
        """`unready`: lines of readiness that are not ready, in words."""
        self._told_at = {key: at for key, at in self._told_at.items() if now_s - at < TOLD_EVERY_S}
        self._count(seen, now_s)
        told = [*self._grown(), *self._begun_or_over(dict(_lasting(seen, unready)), now_s)]
        for alarm in told:
            self._told_at[alarm.name, alarm.pool] = now_s
        return told

    def _count(self, seen: Seen, now_s: float) -> None:
        """Notes what has grown. What was there before the tables were first at the end of the log is old news."""
        self._began = now_s if self._began is None else self._began
        news = self._settled
        for pool in seen.pools:
            name, totals = str(pool["progress"]["pool"]), pool["progress"]["totals"]
            for alarm, (figures, _) in COUNTED.items():
                key, count = (alarm, name), sum(totals.get(figure, 0) for figure in figures)
                grown = count - self._known.get(key, 0)
                if grown <= 0:
                    continue  # also while tables are built anew: their figures come back to where they were
                self._known[key] = count
                if news:
                    self._untold[key] = self._untold.get(key, 0) + grown
        at_the_end = bool(seen.at) and not any(seen.lag.values())
        self._settled = news or at_the_end or now_s - self._began >= SETTLED_S

    def _grown(self) -> Iterator[Alarm]:
        for key in [key for key in self._untold if key not in self._told_at]:
            count = self._untold.pop(key)
            yield Alarm(*key, COUNTED[key[0]][1].format(n=count, pool=key[1]), count)

    def _begun_or_over(self, now: dict[Key, str], now_s: float) -> Iterator[Alarm]:
        for key, text in now.items():
            one = self._lasting.setdefault(key, _Lasting(now_s, text))
            one.text = text
            if now_s - one.since < (READY_WITHIN_S if key[0] == "not_ready" else 0) or key in self._told_at:
                continue
            if one.told_at is None or now_s - one.told_at >= AGAIN_S:
                one.told_at = now_s
                yield Alarm(*key, text)
        for key in [key for key in self._lasting if key not in now]:
            if self._lasting[key].told_at is None:
                del self._lasting[key]
            elif key not in self._told_at:
                yield Alarm(*key, f"over: {self._lasting.pop(key).text}", over=True)


def _lasting(seen: Seen, unready: Iterable[str]) -> Iterator[tuple[Key, str]]:
    for pool in seen.frozen:
        yield ("frozen", pool), f"pool {pool} is frozen after a fault of Fleetlog and assigns nothing"
    for part, text in degraded(seen, with_names=False):
        if part in LASTING:
            yield (part, None), text
    lines = "; ".join(unready)
    if lines:
        yield ("not_ready", None), lines
