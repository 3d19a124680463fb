"""A reader beside projectors that die and begin again sees what each of them wrote, the last words too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from projections.reader import TablesReader
from projections.rows import Table
from tests.support.ending import with_us

PROJECTOR = """
import os, sys
from pathlib import Path
from projections.rows import Table
from projections.store import Folder
folder = Folder(Path(sys.argv[1]))
folder.lock()
store = folder.open_current() or folder.begin("log", 1)
print("open", flush=True)
for line in sys.stdin:
    if line == "die\\n":
        os._exit(9)
    key, value = line.encode().split()
    store.write({Table.TASKS: {key: value}})
    print("written", flush=True)
"""


class Life:
    """One life of a process that writes rows; `die` is as sudden as SIGKILL."""

    def __init__(self, folder: Path) -> None:
        command = with_us([sys.executable, "-c", PROJECTOR, str(folder)])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def say(self, line: str) -> None:
        """`key value`, or `die`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if line == "die":
            self._process.communicate()
        else:
            self._answer()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TablesReader]:
    """The reader of a gateway, which stays open over all lives."""
    made = TablesReader(tmp_path)
    yield made
    made.close()


def test_the_last_words_of_a_projector_are_read(tmp_path: Path, reader: TablesReader) -> None:
    """Written just before it died and not read until the next life: not hidden by what was read before."""

    def rows() -> list[bytes | None]:
        return reader.read(lambda store: store.get_many(Table.TASKS, [b"a", b"b"]))

    first = Life(tmp_path)
    first.say("a running")
    assert rows() == [b"running", None]
    first.say("a completed")
    first.say("die")
    second = Life(tmp_path)
    second.say("b waiting")
    assert rows() == [b"completed", b"waiting"]
    second.say("a again")
    assert rows() == [b"again", b"waiting"]
    second.say("die")
    assert rows() == [b"again", b"waiting"]
