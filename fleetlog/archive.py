"""Files of exported events: one line for each event with the bytes as stored, so that a file can be verified alone.

A name that ends in `.gz` is compressed. A file is complete or not there: it gets its name when it is.
"""

import gzip
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fleetlog.problems import Problem, wrong_usage
from projections.audit import export_line, import_line
from streams.port import Record


def write_archive(records: Iterable[Record], file: IO[bytes], told: Callable[[int], None] = lambda _: None) -> int:
    """Writes records as lines; how many there were."""
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007
        file.write(export_line(record))
        told(1)
    return count


@contextmanager
def new_archive(path: Path) -> Iterator[IO[bytes]]:
    """The file to write an archive into, which gets its name when all is on the disk. Raises Problem."""
    if path.exists():
        raise Problem(f"{path} exists already: give another name.")
    scratch = path.with_name(path.name + ".part")
    try:
        with scratch.open("wb") as raw:
            if path.suffix == ".gz":
                # Without a name and a time inside, the same events make the same file.
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_archive(path: Path) -> Iterator[Record]:
    """The records of an archive (`-`: standard input). Raises Problem with the number of a line that is none."""
    with open_archive(path) as file:
        number = 0
        try:
            for line in file:
                number += 1
                yield import_line(line)
        except ValueError as error:
            raise Problem(f"line {number} of {path} is damaged: {error}.") from None
        except (EOFError, gzip.BadGzipFile) as error:
            raise Problem(f"{path} is damaged after line {number} ({error}): use another copy.") from None


@contextmanager
def open_archive(path: Path) -> Iterator[IO[bytes]]:
    """An archive for reading. Raises Problem."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        raw = path.open("rb")
    except OSError as error:
        raise wrong_usage(f"{path} cannot be read ({(error.strerror or '').lower()}): check the path.") from None
    with raw:
        yield gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw  # type: ignore[misc]
