"""Selections and bulk work on disk: what a dry run found, what was asked of it, and how far that is.

A selection is a folder called by its token, and each file in it is written once or only grows:

    found.json   verb, pool, filter, who looked, when, how many, and ten examples
    tasks        a line for each task: pool, tab, id
    asked.json   the act: reason and the verb's own fields; there from the moment it was accepted
    done         a line of JSON for each batch: from, to, outcomes, refusals; the last one says that it is over

A crash leaves a `done` without its last line, or with half of one: that batch is done again under the same command
ids, and the owners answer it from memory.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

SELECTION_S: Final = 3_600
"""How long a token that was not used holds: as long as a cursor."""
KEPT_S: Final = 7 * 86_400
KEPT_MAX: Final = 200
"""How long bulk work that is over can be looked at, and how many of them, the newest."""
UNUSED_MAX: Final = 16
"""Selections that nobody has used yet; the oldest makes room for a new one."""
REFUSALS_SHOWN: Final = 20


@dataclass(slots=True)
class Tally:
    """How far bulk work is. `outcomes`: by state or word; `refused`: by reason; `refusals`: the first of them."""

    done: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    position: str | None = None
    over: str | None = None
    why: str | None = None
    over_at: int | None = None

    def add(self, batch: dict[str, Any]) -> None:
        """One line of `done`."""
        self.over, self.why = batch.get("over", self.over), batch.get("why", self.why)
        if self.over is not None:
            self.over_at = batch["at"]
        self.done = batch.get("to", self.done)
        self.position = batch.get("position") or self.position
        for name, sums in (("outcomes", self.outcomes), ("refused", self.refused)):
            for word, count in batch.get(name, {}).items():
                sums[word] = sums.get(word, 0) + count
        self.refusals += batch.get("refusals", [])[: REFUSALS_SHOWN - len(self.refusals)]


class Selection:
    """One selection: `found` and `asked` as they stand in its files (`asked` is None until somebody acts)."""

    def __init__(self, folder: Path) -> None:
        """Reads it. Raises FileNotFoundError where there is none."""
        self.token = folder.name
        self._folder = folder
        self.found: dict[str, Any] = json.loads((folder / "found.json").read_text())
        asked = folder / "asked.json"
        self.asked: dict[str, Any] | None = json.loads(asked.read_text()) if asked.exists() else None

    @property
    def expires_at(self) -> int:
        """Until when the token holds, in ms since 1970."""
        return int(self.found["at"]) + SELECTION_S * 1000

    def ask(self, asked: dict[str, Any]) -> None:
        """Makes the act durable: from here on it is done, whatever ends meanwhile."""
        _write_whole(self._folder / "asked.json", json.dumps(asked))
        self.asked = asked

    def tally(self) -> Tally:
        """How far the work is, as the file says."""
        tally = Tally()
        for batch in _lines(self._folder / "done"):
            tally.add(batch)
        return tally

    def note(self, batch: dict[str, Any]) -> None:
        """One more line of `done`."""
        with open(self._folder / "done", "ab") as file:
            file.write(json.dumps(batch).encode() + b"\n")

    def mend(self) -> None:
        """Cuts off half a line that a crash left, before anything follows it."""
        with open(self._folder / "done", "ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)

    @contextmanager
    def tasks_from(self, first: int) -> Iterator[Iterator[tuple[str, str]]]:
        """(pool, id) of the tasks from number `first` on."""
        with open(self._folder / "tasks") as file:
            yield (_pool_and_id(line) for line in islice(file, first, None))

    def hold(self) -> TextIO | None:
        """A lock that one process has at a time and that ends with it; None where another has it."""
        file = open(self._folder / "lock", "w")  # noqa: SIM115 - the lock lives as long as the file is open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return file


class BulkFolder:
    """All selections of a host's gateways, in one folder that is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def selection(self, token: str) -> Selection | None:
        """The selection with this token, or None."""
        try:
            folder = self.path / str(uuid.UUID(token))
            return Selection(folder)
        except (ValueError, FileNotFoundError, NotADirectoryError):
            return None

    def unfinished(self) -> list[Selection]:
        """Work that was accepted and is not over, oldest first."""
        acted = [one for one in self._all() if one.asked is not None and one.tally().over is None]
        return sorted(acted, key=lambda one: one.asked["at"] if one.asked else 0)

    def writing(self) -> "Writing":
        """A new selection, to be filled."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Writing(self.path)

    def forget_old(self, now_ms: int) -> None:
        """Removes what nobody can use any more, and what a crash left half written."""
        unused: list[tuple[int, str]] = []
        over: list[tuple[int, str]] = []
        for folder in list(self.path.iterdir()) if self.path.is_dir() else []:
            try:
                selection = Selection(folder)
            except (OSError, ValueError):
                if now_ms - folder.stat().st_mtime * 1000 > SELECTION_S * 1000:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            over_at = selection.tally().over_at if selection.asked is not None else None
            if over_at is not None:
                over.append((over_at, selection.token))
            elif selection.asked is None:
                unused.append((int(selection.found["at"]), selection.token))
        # An unused one is kept for a second hour, to be told that it is too old.
        for ones, kept_s, most in ((unused, 2 * SELECTION_S, UNUSED_MAX), (over, KEPT_S, KEPT_MAX)):
            for index, (at, token) in enumerate(sorted(ones, reverse=True)):
                if index >= most or now_ms - at > kept_s * 1000:
                    shutil.rmtree(self.path / token, ignore_errors=True)

    def _all(self) -> Iterator[Selection]:
        for folder in sorted(self.path.iterdir()) if self.path.is_dir() else []:
            with suppress(OSError, ValueError):
                yield Selection(folder)


class Writing:
    """A selection that is being made; `finish` makes it one, whole."""

    def __init__(self, parent: Path) -> None:
        self.token = str(uuid.uuid4())
        self._parent = parent
        self._scratch = parent / f"new-{self.token}"
        self._scratch.mkdir(mode=0o700)
        self._file = open(self._scratch / "tasks", "w")  # noqa: SIM115 - filled page by page

    def add(self, tasks: list[tuple[str, str]]) -> None:
        """More tasks: pool and id of each."""
        self._file.writelines(f"{pool}\t{task}\n" for pool, task in tasks)

    def finish(self, found: dict[str, Any]) -> Selection:
        """Durable, under its token."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        _write_whole(self._scratch / "found.json", json.dumps(found))
        folder = self._parent / self.token
        self._scratch.rename(folder)
        return Selection(folder)

    def drop(self) -> None:
        """Nothing came of it."""
        self._file.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _write_whole(path: Path, text: str) -> None:
    """The file is there whole, or not at all."""
    scratch = path.with_suffix(".new")
    with open(scratch, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of `done`; half a line at the end is what a crash left."""
    try:
        content = path.read_text()
    except FileNotFoundError:
        return
    for line in content.split("\n")[:-1]:
        yield json.loads(line)


def _pool_and_id(line: str) -> tuple[str, str]:
    pool, _, task = line.rstrip("\n").partition("\t")
    return pool, task
