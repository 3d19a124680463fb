"""The plan of a chaos run: which faults come in which round, all by the seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

KINDS: Final[dict[str, tuple[str, float, float]]] = {
    "broker killed": ("broker", 1, 6),
    "broker stopped and continued": ("broker", 1, 12),
    "broker restarted": ("broker", 0, 0),
    "broker cut off from its clients": ("broker", 1, 8),
    "broker's network silent": ("broker", 1, 8),
    "broker's disk full": ("broker", 1, 4),
    "two brokers killed": ("broker", 1, 5),
    "owner killed": ("owner", 0, 3),
    "owner stopped and continued": ("owner", 1, 15),
    "owners all killed": ("owner", 0, 2),
    "owner cut off from the brokers": ("lane", 1, 15),
    "owner's network silent": ("lane", 1, 15),
    "gateway killed": ("gateway", 0, 3),
    "gateway stopped and continued": ("gateway", 1, 10),
    "gateway cut off from its robots": ("link", 1, 6),
    "robots' network silent": ("link", 1, 10),
    "projector killed": ("projector", 0, 3),
    "projector stopped and continued": ("projector", 1, 8),
    "projector's disk full": ("projector", 1, 4),
    "robot killed": ("robot", 0, 8),
    "robot drained": ("robot", 1, 4),
    "pool paused": ("pool", 1, 3),
}
"""Fault -> whom it meets, and its shortest and longest time (s)."""
SECOND_FAULT: Final = 0.4
"""How often a second fault comes into the same round."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something goes wrong: what, to which one (a number, taken modulo), for how long, how soon in the round."""

    what: str
    number: int
    seconds: float
    after_s: float

    @property
    def whom(self) -> str:
        """The kind of part that it meets."""
        return KINDS[self.what][0]

    def __str__(self) -> str:
        return f"{self.what} ({self.number % 3}, {self.seconds:.1f} s)"


def plan(rounds: int, seed: int) -> list[list[Fault]]:
    """The faults of each round. Every kind comes once before any comes again; no round meets one part twice."""
    dice = random.Random(seed)
    deck = _deck(dice)
    found = []
    for _ in range(rounds):
        faults = [next(deck)]
        if dice.random() < SECOND_FAULT:
            second = next(deck)
            # What could not be told apart goes into a round of its own.
            if second.whom != faults[0].whom:
                faults.append(second)
        found.append(faults)
    return found


def _deck(dice: random.Random) -> Iterator[Fault]:
    while True:
        kinds = list(KINDS)
        dice.shuffle(kinds)
        for kind in kinds:
            _, shortest, longest = KINDS[kind]
            yield Fault(kind, dice.randrange(60), dice.uniform(shortest, longest), dice.uniform(0.2, 2.0))
