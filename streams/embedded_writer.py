"""The one thread that writes an embedded log: it gathers what all threads want written into groups.

A group is one WriteBatch: written, synced, and only then visible and answered, so it happened whole or not at all.
Once RocksDB failed in a write, only opening it anew tells whether the group is there: it carries a number for that.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocksdict import WriteBatch, WriteOptions

from streams.embedded_faults import fault_of
from streams.embedded_record import encode_record, record_key
from streams.embedded_store import Store, Track, Tracks, open_store, write_gently
from streams.local_log import Bells, LocalSeat, fenced
from streams.port import (
    Appended,
    Fenced,
    Headers,
    LogBusy,
    LogFault,
    LogLocked,
    LogUnavailable,
    Output,
    TakenOver,
    Topic,
)

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024
"""Where a group ends, so that nobody waits long for its end."""
RECORD_OVERHEAD_BYTES: Final = 300
"""What a waiting record takes in memory beside its own bytes."""
RETRY_EVERY_S: Final = 1.0
"""How often a log that failed is tried again; between that everything is refused at once."""
SAID_S: Final = 30.0
"""How long a failed write is said where nothing is written any more."""
RELEASED_S: Final = 5.0
"""How long readers may take to let go of a RocksDB that failed."""

logger = logging.getLogger("fleetlog")

Append = tuple[Track, str, bytes, Headers, Appended, int]


class Request:
    """Something else than an append that stands in a group; the asking thread waits for its answer."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self._fault: LogFault | None = None

    def fill(self, writer: "Writer", group: "Group") -> None:
        """Adds to the group what is to be written. May be called again when the group is written again."""
        raise NotImplementedError

    def written(self, writer: "Writer") -> None:
        """The group is durable."""
        self._answered.set()

    def refuse(self, fault: LogFault) -> None:
        """The group was not written, or nobody knows."""
        self._fault = fault
        self._answered.set()

    def wait(self) -> None:
        """Returns when the group is durable. Raises what it was refused with."""
        self._answered.wait()
        if self._fault:
            raise self._fault


class Group:
    """What becomes durable together."""

    __slots__ = ("acks", "batch", "now", "number", "touched")

    def __init__(self, number: int, now: int) -> None:
        self.batch = WriteBatch(raw_mode=True)
        self.number = number
        self.now = now
        self.touched: set[Track] = set()
        self.acks: list[tuple[Appended, int]] = []

    def add(self, track: Track, key: str, value: bytes, headers: Headers) -> int:
        """Adds a record at the track's next offset."""
        offset = track.next
        track.next = offset + 1
        self.touched.add(track)
        stored_key = record_key(track.partition, offset)
        self.batch.put(stored_key, encode_record(stored_key, key, value, headers, self.now), track.handle)
        return offset


class Commit(Request):
    """An owner's batch: outputs and input positions."""

    def __init__(self, seat: LocalSeat, outputs: Sequence[Output], reports_next: int, commands_next: int) -> None:
        super().__init__()
        self.offsets: list[int] = []
        self._seat = seat
        self._outputs = outputs
        self._reports_next = reports_next
        self._commands_next = commands_next
        self._refused = False

    def fill(self, writer: "Writer", group: Group) -> None:
        """As in `Request`; nothing where another owner has taken over."""
        partition = self._seat.partition
        self._refused = self._seat.epoch != writer.epochs[partition]
        if self._refused:
            return
        self.offsets = []
        for output in self._outputs:
            track = writer.tracks[output.topic][partition]
            offset = group.add(track, output.key, output.value, output.headers)
            if output.topic is Topic.EVENTS:
                self.offsets.append(offset)
        writer.store.put_inputs_next(group.batch, partition, self._reports_next, self._commands_next)

    def written(self, writer: "Writer") -> None:
        """As in `Request`."""
        if self._refused:
            self.refuse(fenced(self._seat.partition))
        else:
            super().written(writer)

    def refuse(self, fault: LogFault) -> None:
        """As in `Request`; the owner is to look what happened."""
        super().refuse(
            fault if isinstance(fault, Fenced) else Fenced(f"{fault} The partition must be taken over again.")
        )


class TakeOver(Request):
    """A new owner: all commits of former ones are before it, or refused."""

    taken: TakenOver

    def __init__(self, seat: LocalSeat) -> None:
        super().__init__()
        self._seat = seat

    def fill(self, writer: "Writer", group: Group) -> None:
        """As in `Request`."""
        writer.epochs[self._seat.partition] += 1
        self._seat.epoch = writer.epochs[self._seat.partition]

    def written(self, writer: "Writer") -> None:
        """As in `Request`."""
        partition = self._seat.partition
        self.taken = TakenOver(*writer.store.inputs_next(partition), writer.tracks[Topic.EVENTS][partition].end)
        super().written(writer)


class Trim(Request):
    """Retention is over for what is before `beginning`."""

    def __init__(self, track: Track, beginning: int) -> None:
        super().__init__()
        self._track = track
        self._beginning = beginning

    def fill(self, writer: "Writer", group: Group) -> None:
        """As in `Request`."""
        # Said before it is done: a reader below finds an offset that is not kept, never a hole.
        self._track.beginning = max(self._track.beginning, self._beginning)
        writer.store.put_beginning(group.batch, self._track, self._beginning)


class RaiseFormat(Request):
    """The log is written in a newer format from here on; `raised` is the number that the head has then."""

    raised: int

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def fill(self, writer: "Writer", group: Group) -> None:
        """As in `Request`; whoever asked for more before is not undone."""
        head = writer.store.head()
        if head is None:
            raise LogUnavailable("The log does not say who it is any more; nothing was raised.")
        self.raised = max(head.format, self._to)
        writer.store.put_head(group.batch, replace(head, format=self.raised))


class Writer:
    """The writing thread with its queue. `hook` is called with "write" and "written" around each write, for tests."""

    def __init__(
        self,
        store: Store,
        tracks: Tracks,
        bells: Bells,
        *,
        sync: bool,
        clock: Callable[[], int],
        queued_bytes_max: int,
        hook: Callable[[str], None] | None = None,
    ) -> None:
        self.tracks = tracks
        self.epochs = [0] * len(tracks[Topic.EVENTS])
        self._opened: Store | None = store
        self._folder: Path = store.folder
        self._bells = bells
        self._sync = sync
        self._clock = clock
        self._hook = hook or (lambda _: None)
        self._number = store.group()
        self._queued_bytes_max = queued_bytes_max
        self._queued_bytes = 0
        self._queue: list[Append | Request] = []
        self._work = threading.Condition()
        self._idle = False
        self._closing = False
        self._failed_at = -RETRY_EVERY_S
        self._failing: tuple[float, str] | None = None
        self._reason = self._closed_reason = f"The log in {self._folder} is closed."
        self._group = Group(0, 0)
        self._thread = threading.Thread(target=self._run, name="fleetlog-log", daemon=True)
        self._thread.start()

    @property
    def store(self) -> Store:
        """The opened store. Raises LogUnavailable while there is none."""
        store = self._opened
        if store is None:
            raise LogUnavailable(self._reason)
        return store

    def failing(self) -> str | None:
        """What the last write failed with, if that was lately and none has succeeded since."""
        failing = self._failing
        return failing[1] if failing is not None and time.monotonic() - failing[0] < SAID_S else None

    def append(self, track: Track, key: str, value: bytes, headers: Headers, done: Appended, size: int) -> None:
        """Queues a record. Raises LogBusy, LogUnavailable."""
        size += RECORD_OVERHEAD_BYTES
        with self._work:
            if self._queued_bytes + size > self._queued_bytes_max:
                raise LogBusy("Too much waits to be appended; send again in a moment.")
            self._queued_bytes += size
            self._put((track, key, value, headers, done, size))

    def ask(self, request: Request) -> None:
        """Queues a request and waits for its answer. Raises LogFault."""
        with self._work:
            self._put(request)
        request.wait()

    def _put(self, item: Append | Request) -> None:
        if self._closing:
            raise LogUnavailable(self._closed_reason)
        self._queue.append(item)
        if self._idle:
            self._work.notify()

    def close(self) -> None:
        """Writes what is queued, then closes the store."""
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()

    # --- the writing thread ---

    def _run(self) -> None:
        while items := self._next_items():
            try:
                self._write(items)
            except Exception as error:
                logger.exception("A group of the log failed.")
                self._refuse(items, LogUnavailable(f"The log in {self._folder} failed: {error!r}."))
            with self._work:
                self._queued_bytes -= sum(item[5] for item in items if isinstance(item, tuple))
        # While the lock is still ours: whoever gets it next writes its own.
        (self._folder / "pid").unlink(missing_ok=True)
        self._drop_store(self._closed_reason)

    def _next_items(self) -> list[Append | Request]:
        """What is queued, up to the size of a group; nothing when the log was closed."""
        with self._work:
            while not self._queue and not self._closing:
                self._idle = True
                self._work.wait()
                self._idle = False
            if self._queued_bytes <= GROUP_BYTES_MAX:
                items, self._queue = self._queue, []
                return items
            room, count = GROUP_BYTES_MAX, 0
            while count < len(self._queue) and room > 0:
                item = self._queue[count]
                room -= item[5] if isinstance(item, tuple) else 0
                count += 1
            items, self._queue = self._queue[:count], self._queue[count:]
            return items

    def _write(self, items: Sequence[Append | Request]) -> None:
        """Makes a group of `items` durable and answers them; tries once more where it is known not to be written."""
        fault: LogFault = LogUnavailable(self._reason)
        tries = 2 if time.monotonic() - self._failed_at >= RETRY_EVERY_S else 0
        for _ in range(tries):
            if self._opened is None and not self._open_anew():
                fault = LogUnavailable(self._reason)
                break
            self._number += 1
            try:
                self._make_durable(items)
            except Exception as error:
                fault = fault_of(error, self._folder)
                logger.warning("%s", fault)
                self._drop_store(str(fault))
                if not self._open_anew() or self.store.group() != self._number:
                    continue
            self._answer(items)
            return
        now = time.monotonic()
        self._failing = (now, str(fault))
        if tries:
            self._failed_at = now
            self._reason = str(fault)
        self._refuse(items, fault)

    def _make_durable(self, items: Sequence[Append | Request]) -> None:
        self._hook("write")
        write_gently(self.store.db, lambda: self._fill(items), WriteOptions())
        if self._sync:
            # A synced write would hold the interpreter's lock for as long as the disk takes; this does not.
            self.store.db.flush_wal(True)
        self._hook("written")

    def _fill(self, items: Sequence[Append | Request]) -> WriteBatch:
        for places in self.tracks.values():
            for track in places:
                track.next = track.end
        self._group = group = Group(self._number, self._clock())
        self.store.put_group(group.batch, group.number)
        add, acks = group.add, group.acks
        for item in items:
            if isinstance(item, tuple):
                track, key, value, headers, done, _ = item
                acks.append((done, add(track, key, value, headers)))
            else:
                item.fill(self, group)
        return group.batch

    def _answer(self, items: Sequence[Append | Request]) -> None:
        """What was written becomes visible, then everybody hears of it."""
        self._failing = None
        group = self._group
        for track in group.touched:
            track.end = track.next
        for track in group.touched:
            self._bells.ring(track.topic, track.partition)
        for item in items:
            if isinstance(item, Request):
                item.written(self)
        for done, offset in group.acks:
            _call(done, None, offset)

    def _refuse(self, items: Sequence[Append | Request], fault: LogFault) -> None:
        for item in items:
            if isinstance(item, Request):
                item.refuse(fault)
            else:
                _call(item[4], fault, -1)

    def _drop_store(self, reason: str) -> None:
        """Closes RocksDB; `reason` is what everybody hears until it is open again."""
        store, self._opened, self._reason = self._opened, None, reason
        if store:
            store.close()

    def _open_anew(self) -> bool:
        """Opens the folder again after a fault, and finds what is in it."""
        give_up = time.monotonic() + RELEASED_S
        while True:
            try:
                store = open_store(self._folder, create=False)
                store.bind(self.tracks)
            except Exception as error:
                fault = fault_of(error, self._folder)
                # Readers in other threads still hold the RocksDB that failed, for as long as one read takes.
                if isinstance(fault, LogLocked) and time.monotonic() < give_up:
                    time.sleep(0.02)
                    continue
                self._reason = str(fault)
                return False
            self._opened = store
            return True


def _call(done: Appended, fault: LogFault | None, offset: int) -> None:
    try:
        done(fault, offset)
    except Exception:
        logger.exception("What was to be told of an appended record failed.")
