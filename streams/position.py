"""Positions: how far an answer is true, as one opaque string of at most 512 characters.

Written `<log id, 8 hex>~<partition>:<offset>,...` or, for the answer to one command or report,
`<log id>~<pool>@<sequence>`: an answer is made in the transaction that writes its events, so it cannot know their
offsets; it names the pool's sequence, and the tables know both.
"""

from dataclasses import dataclass, field

from commands.vocabulary import is_name

CHARS_MAX = 512


@dataclass(slots=True, frozen=True)
class Position:
    """Per partition the offset after the answer's truth, per pool the sequence it includes."""

    log: str
    offsets: dict[int, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{p}:{offset}" for p, offset in sorted(self.offsets.items())]
        parts += [f"{pool}@{sequence}" for pool, sequence in sorted(self.sequences.items())]
        return f"{self.log[:8]}~{','.join(parts)}"


def parse_position(text: str) -> Position | None:
    """The position that `text` stands for, or None where it is none."""
    log, tilde, rest = text.partition("~")
    if len(text) > CHARS_MAX or not tilde or not log.isalnum():
        return None
    offsets: dict[int, int] = {}
    sequences: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        pool, at, sequence = part.rpartition("@")
        if at:
            if not (is_name(pool) or pool.startswith("_log-")) or not sequence.isascii() or not sequence.isdigit():
                return None
            sequences[pool] = int(sequence)
            continue
        partition, _, offset = part.partition(":")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            return None
        offsets[int(partition)] = int(offset)
    return Position(log, offsets, sequences)
