"""Robots of the kit: the SDK's bookkeeping on virtual time, with the user's handlers."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from commands.messages import Assign
from commands.vocabulary import KIND_CHARS_MAX, is_name
from fleetlog.sim.gateways import SimGateway
from fleetlog.sim.product import Product
from fleetlog.sim.robots import SimRobot, Temper
from fleetlog.testing.handlers import HandlerRun, run_of
from robot_gateway.sdk.holdings import Attempt
from robot_gateway.sdk.runs import Handler, objection_of

if TYPE_CHECKING:
    from robot_gateway.sdk.robot import Robot as RealRobot

LOOK_S: Final = 0.1
Call = Callable[..., Any]


@dataclass(eq=False)
class HandlerRobot(SimRobot):
    """A robot whose handlers are functions. `takes_s`: by kind, how long one works before its code runs."""

    handlers: Mapping[str, Handler] = field(default_factory=dict)
    takes_s: Mapping[str, float] = field(default_factory=dict)

    def _objection(self, assign: Assign) -> tuple[str, str] | None:
        return objection_of(self.handlers, assign)

    def make_run(self, attempt: Attempt, assign: Assign) -> HandlerRun:
        """As in `SimRobot`."""
        return run_of(self, self.handlers[assign.kind], attempt, assign)

    def kill(self) -> None:
        """As in `SimRobot`; its handlers end where they rest."""
        super().kill()
        runs = [run for run in self.runs.values() if isinstance(run, HandlerRun)]
        self.runs.clear()
        for run in sorted(runs, key=lambda run: run.is_here):  # the one that is here ends by an exception: last
            run.vanish()

    def go_on(self) -> None:
        """As in `SimRobot`, when handlers that were told to end meanwhile have had their turn."""
        self.process.later(0.0, super().go_on)

    def leave(self, grace_s: float) -> None:
        """As `Robot.stop` of the SDK."""
        self.holdings.leave()
        if self._epoch is not None:
            self.say_ready()
            self._pump()
        self.process.later(grace_s, lambda: self.holdings.end_all(self.clock.seconds()))
        self.process.later(grace_s, self._keep)
        self._bye_when_idle()

    def _bye_when_idle(self) -> None:
        if self.holdings.attempts:
            self.process.later(LOOK_S, self._bye_when_idle)
        else:
            self.retired = True
            self.bye()
            self.process.later(LOOK_S, self.kill)


class Robot:
    """A robot of a test. It runs from the beginning; what happens to it happens when its method is called."""

    def __init__(self, product: Product, pool: str, name: str, handlers: Mapping[str, Handler], temper: Temper,
                 takes_s: float | Mapping[str, float]) -> None:  # fmt: skip
        takes = takes_s if isinstance(takes_s, Mapping) else dict.fromkeys(handlers, takes_s)
        self._product, self._pool = product, pool
        self._cut = False
        self.inner = HandlerRobot(
            product.scheduler, product.chance(), name, pool, product.host_clock(), self._reachable, temper,
            handlers=handlers, takes_s=takes,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Its id."""
        return self.inner.name

    @property
    def state(self) -> str:
        """As its pool sees it: OFFLINE, IDLE, BUSY or ERROR."""
        state = self._product.live().get(self._pool)
        row = None if state is None else state.robots.get(self.name)
        return "OFFLINE" if row is None else str(row.state)

    @property
    def alive(self) -> bool:
        """Whether its program runs."""
        return self.inner.process.alive

    @property
    def working_on(self) -> list[tuple[str, int]]:
        """(task, attempt) of its handlers at work."""
        return list(self.inner.runs)

    def kill(self) -> None:
        """As kill -9: it does nothing any more. A handler that calls this itself goes no further."""
        self.inner.retired = True
        self.inner.kill()

    def start(self) -> None:
        """Starts its program again after `kill` or `stop`; raises RuntimeError where it runs."""
        if self.alive:
            raise RuntimeError(f"{self.name} runs already")
        self.inner.retired = False
        self.inner.start()

    def stop(self, grace_s: float = 30.0) -> None:
        """Takes nothing new, lets what runs end within so many seconds, stops the rest, says bye."""
        self.inner.leave(grace_s)

    def cut(self, seconds: float | None = None) -> None:
        """Its connection breaks, and it finds no gateway for so many seconds, or until `join`. It works on."""
        self._cut = True
        if self.inner.link is not None:
            self.inner.link.cut()
        if seconds is not None:
            self._product.scheduler.later(seconds, self.join)

    def join(self) -> None:
        """It finds a gateway again."""
        self._cut = False

    def pause(self, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT after so many seconds."""
        self.inner.pause(seconds)

    def _reachable(self) -> list[SimGateway]:
        return [] if self._cut else self._product.well_gateways()


def handlers_of(kinds: Mapping[str, Call | Handler]) -> dict[str, Handler]:
    """Functions as handlers: coroutine functions are `async`, others threads. Raises ValueError."""
    found = {}
    for kind, given in kinds.items():
        run_in: Any = "async" if inspect.iscoroutinefunction(given) else "thread"
        handler = given if isinstance(given, Handler) else Handler(kind, given, run_in)
        if handler.run_in == "command":
            raise ValueError(f"{kind} is done by a shell command, which knows nothing of virtual time: test it by hand")
        if not is_name(kind, KIND_CHARS_MAX):
            raise ValueError(f"{kind!r} cannot be a kind: use letters, digits and . _ : - (up to 64)")
        found[kind] = handler
    return found


def temper_of(
    handlers: Mapping[str, Handler], slots: int, capabilities: Iterable[str], cancel_grace_s: float | None
) -> Temper:
    """What a robot is, for `SimRobot`."""
    if not 1 <= slots <= 1024:
        raise ValueError(f"slots is a number from 1 to 1024, not {slots}")
    return Temper(slots, tuple(capabilities), tuple(handlers), cancel_grace_s=cancel_grace_s)


def as_real(robot: "RealRobot") -> tuple[dict[str, Handler], Temper]:
    """Handlers, slots and capabilities of a robot that was made for a gateway. Raises ValueError."""
    config = robot.config
    handlers = handlers_of(config.handlers)
    return handlers, temper_of(handlers, config.slots, config.capabilities, config.cancel_grace_s)
