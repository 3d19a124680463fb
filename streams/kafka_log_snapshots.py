"""Snapshots on the compacted topic: chunks under two alternating slots, a manifest last, old lives tidied away.

Keys are `<partition>/<slot>/<incarnation>/<chunk number or "manifest">`. A life writes under its own name only, so a
paused former owner cannot overwrite what a newer one keeps. A crash before the manifest leaves chunks that nobody
finds; a later life takes them away.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.kafka_log_clients import LOGGER, Clients, error_of, fault
from streams.kafka_log_follower import scan
from streams.kafka_log_offsets import Offsets
from streams.port import CHUNK_BYTES_MAX, LogUnavailable, RecordTooLarge, Snapshot

MANIFEST: Final = "manifest"
SLOTS: Final = (0, 1)
WRITE_S: Final = 60.0
IN_FLIGHT: Final = 8
ORPHAN_MS: Final = 3_600_000
"""Chunks of another life without a manifest are taken away when they are this much older than our newest record."""


@dataclass(slots=True)
class Kept:
    """What one slot of one life holds: chunk numbers, manifest, and when its last record was appended (ms)."""

    numbers: set[str] = field(default_factory=set)
    manifest: dict[str, Any] | None = None
    appended_at: int = 0
    good: bool = False

    @property
    def position(self) -> int:
        """The position that the manifest names, -1 where it names none."""
        position = (self.manifest or {}).get("position")
        return position if isinstance(position, int) else -1


Place = tuple[int, str]
"""Slot and incarnation."""


class Snapshots:
    """Keeps and finds snapshots. Used by any thread; one of them at a time."""

    def __init__(self, clients: Clients, offsets: Offsets) -> None:
        self._clients = clients
        self._offsets = offsets
        self._using = threading.Lock()
        self._known: dict[int, dict[Place, Kept]] = {}
        self._bad = 0

    def bad(self) -> int:
        """How many were found bad since the start of this process."""
        return self._bad

    # ---- finding ----

    def find(self, partition: int) -> list[Snapshot]:
        """See `port.LogReader.find_snapshots`."""
        with self._using:
            return self._find(partition)

    def _find(self, partition: int) -> list[Snapshot]:
        kept: dict[Place, Kept] = {}
        values: dict[tuple[Place, str], bytes] = {}
        at, end = self._offsets.snapshots(partition)
        for messages in scan(self._clients, at, end):
            for message in messages:
                _fold(kept, values, message)
        self._known[partition] = kept
        found = []
        for place, one in kept.items():
            if one.manifest is not None:
                snapshot = _verified(one.manifest, place, values)
                one.good = snapshot is not None
                if snapshot is None:
                    self._bad += 1
                    LOGGER.error("Snapshot %s of partition %d is damaged and is skipped.", place, partition)
                else:
                    found.append(snapshot)
        return sorted(found, key=lambda snapshot: snapshot.position, reverse=True)

    # ---- keeping ----

    def keep(self, partition: int, snapshot: Snapshot) -> None:
        """See `port.Log.keep_snapshot`."""
        for chunk in snapshot.chunks:
            if len(chunk) > CHUNK_BYTES_MAX:
                raise RecordTooLarge(f"A chunk of {len(chunk)} bytes is larger than the {CHUNK_BYTES_MAX} allowed.")
        with self._using:
            if partition not in self._known:
                self._find(partition)
            known = self._known[partition]
            producer = self._clients.keeper()
            place = self._next_place(known, snapshot.incarnation)
            before = known.get(place, Kept())
            if before.manifest is not None:
                # From here on the slot is empty: nobody mixes its old manifest with new chunks.
                self._write(producer, partition, [(_key(partition, place, MANIFEST), None)])
            numbers = [str(number) for number in range(len(snapshot.chunks))]
            known[place] = Kept(before.numbers | set(numbers))
            self._write(
                producer,
                partition,
                [(_key(partition, place, n), c) for n, c in zip(numbers, snapshot.chunks, strict=True)],
            )
            manifest = _manifest(snapshot)
            last = [(_key(partition, place, MANIFEST), json.dumps(manifest).encode())]
            appended_at = self._write(producer, partition, last)
            known[place] = Kept(set(numbers), manifest, appended_at, True)
            self._tidy(producer, partition, place, before.numbers - set(numbers))

    @staticmethod
    def _next_place(known: dict[Place, Kept], incarnation: str) -> Place:
        """The slot of this life that holds no good snapshot, else the one with the older."""

        def position(slot: int) -> int:
            kept = known.get((slot, incarnation))
            return kept.position if kept and kept.good else -1

        return min(SLOTS, key=position), incarnation

    def _tidy(self, producer: Producer, partition: int, place: Place, surplus: set[str]) -> None:
        """Takes away surplus chunks of this slot, and lives that ours is ahead of; never what may be newer."""
        known = self._known[partition]
        ours = known[place]
        gone = [_key(partition, place, number) for number in surplus]
        for other, kept in list(known.items()):
            if other[1] == place[1]:
                continue
            passed = kept.manifest is not None and kept.position < ours.position
            orphan = kept.manifest is None and kept.appended_at < ours.appended_at - ORPHAN_MS
            if (passed and self._is_second(known, place[1])) or orphan:
                # The manifest goes first: a slot half taken away must not look damaged.
                gone += [_key(partition, other, name) for name in (MANIFEST, *sorted(kept.numbers))]
                del known[other]
        if gone:
            self._write(producer, partition, [(key, None) for key in gone])

    @staticmethod
    def _is_second(known: dict[Place, Kept], incarnation: str) -> bool:
        """Whether this life has two good snapshots: only then the one before is not needed as the other."""
        return sum(kept.good for (_, life), kept in known.items() if life == incarnation) == len(SLOTS)

    def _write(self, producer: Producer, partition: int, records: Sequence[tuple[str, bytes | None]]) -> int:
        """Writes all, in order; the append time of the last (ms). Raises LogFault if any of them is not durable."""
        doing = f"keeping a snapshot of partition {partition}"
        answers: list[tuple[KafkaError | None, int]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message.timestamp()[1]))

        for number, (key, value) in enumerate(records):
            while number - len(answers) >= IN_FLIGHT:
                producer.poll(0.1)
            try:
                producer.produce(self._clients.snapshots, value, key, partition, on_delivery=note)
            except KafkaException as failed:
                raise fault(error_of(failed), doing) from None
        producer.flush(WRITE_S)
        for error, _ in answers:
            if error is not None:
                raise fault(error, doing)
        if len(answers) < len(records):
            raise LogUnavailable(f"Kafka does not answer ({doing}).")
        return answers[-1][1] if answers else 0


def _key(partition: int, place: Place, name: str) -> str:
    return f"{partition}/{place[0]}/{place[1]}/{name}"


def _fold(kept: dict[Place, Kept], values: dict[tuple[Place, str], bytes], message: Message) -> None:
    """Applies one record of the compacted topic; what is not ours is left out."""
    parts = (message.key() or b"").decode(errors="replace").split("/")
    if len(parts) < 4 or not parts[1].isdigit():
        return
    place, name, value = (int(parts[1]), "/".join(parts[2:-1])), parts[-1], message.value()
    one = kept.setdefault(place, Kept())
    one.appended_at = message.timestamp()[1]
    if name == MANIFEST:
        one.manifest = _read_manifest(value) if value is not None else None
    elif value is None:
        one.numbers.discard(name)
        values.pop((place, name), None)
    else:
        one.numbers.add(name)
        values[place, name] = value
    if one.manifest is None and not one.numbers:
        del kept[place]


def _manifest(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "v": 1,
        "position": snapshot.position,
        "incarnation": snapshot.incarnation,
        "made_at": snapshot.made_at,
        "chunks": len(snapshot.chunks),
        "sha256": _digest(snapshot.position, snapshot.chunks),
    }


def _digest(position: int, chunks: Sequence[bytes]) -> str:
    """SHA-256 over the position and each chunk with its length before it."""
    digest = sha256(position.to_bytes(8, "big"))
    for chunk in chunks:
        digest.update(len(chunk).to_bytes(8, "big"))
        digest.update(chunk)
    return digest.hexdigest()


def _read_manifest(value: bytes) -> dict[str, Any]:
    """The manifest; an unreadable one is an empty one, which verifies nothing."""
    try:
        manifest = json.loads(value)
    except ValueError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _verified(manifest: dict[str, Any], place: Place, values: dict[tuple[Place, str], bytes]) -> Snapshot | None:
    """The snapshot whose chunks match its manifest, or None."""
    try:
        chunks = tuple(values[place, str(number)] for number in range(manifest["chunks"]))
        snapshot = Snapshot(manifest["position"], manifest["incarnation"], manifest["made_at"], chunks)
        good = _digest(snapshot.position, chunks) == manifest["sha256"] and snapshot.incarnation == place[1]
    except (KeyError, TypeError, AttributeError, OverflowError):
        return None
    return snapshot if good else None
