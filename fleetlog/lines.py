"""A file with a task in each line: read and checked as a whole before anything of it is submitted, then read again.

The id of a task that names none follows from the batch, the line and how many equal ones came before it. The batch is
an id that follows from the file's content and the options, so the same command means the same tasks; a corrected file
is gone on with under the batch of the first one.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from pydantic_core import to_json

from commands.ids import name_id
from commands.json_limits import limits_problem, parse_json
from commands.reasons import Refusal
from fleetlog.problems import Problem, wrong_usage
from fleetlog.submitting import json_or_text
from robot_gateway.models import TaskIn, model_of, submission_of

LINES_MAX: Final = 5_000_000
"""More tasks than a pool remembers ids: a repeated command would not be recognised."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_LINES: Final = 500
BATCH_BYTES: Final = 2 * 1024 * 1024
BAD_SHOWN: Final = 10


@dataclass(slots=True)
class Checked:
    """What reading a file came to. `bad`: line -> what is wrong with it. `digest`: of the bytes, as they were read."""

    tasks: int = 0
    digest: str = ""
    bad: dict[int, str] = field(default_factory=dict)


class LinesFile:
    """The lines of `path` (`-`: standard input, kept in a file meanwhile). `kind`: each line is a payload of it;
    None: each line is a whole task. `shared`: fields that the options gave. Raises Problem where it cannot be read.
    """

    def __init__(self, path: str, kind: str | None, shared: dict[str, Any]) -> None:
        self.name = "standard input" if path == "-" else path
        self._kind, self._shared = kind, shared
        self._file = _spooled() if path == "-" else _opened(Path(path))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def check(self, payload_max_bytes: int) -> Checked:
        """Reads every line as the gateway would; nothing is sent. Raises Problem."""
        checked, digest = Checked(), sha256()
        contents: dict[str, tuple[int, bytes]] = {}
        for number, raw in self._raw_lines():
            digest.update(raw)
            if not raw.strip():
                continue
            task = self._task(raw)
            wrong = task if isinstance(task, str) else _problem(task, payload_max_bytes)
            if wrong is None and isinstance(task, dict) and task.get("id") is not None:
                first, content = contents.setdefault(task["id"], (number, _short_digest(raw)))
                if content != _short_digest(raw):
                    wrong = f"id: {task['id']} stands in line {first} with other content"
            if wrong is not None:
                checked.bad[number] = wrong
            checked.tasks += wrong is None
        checked.digest = digest.hexdigest()
        return checked

    def batch(self, checked: Checked) -> str:
        """The id that the tasks of this content, with these options, have in common."""
        return name_id("lines", checked.digest, self._kind or "", sha256(to_json(self._shared)).hexdigest())

    def tasks(self, checked: Checked, batch: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and task of every line that is not bad, with its id. Raises Problem where the file has changed."""
        seen, digest = Counter[bytes](), sha256()
        for number, raw in self._raw_lines():
            digest.update(raw)
            if not raw.strip() or number in checked.bad:
                continue
            task = self._task(raw)
            if isinstance(task, str):
                break
            if task.get("id") is None:
                line = _short_digest(raw)
                task["id"] = name_id(batch, line.hex(), seen[line])
                seen[line] += 1
            yield number, task
        if digest.hexdigest() != checked.digest:
            raise Problem(f"{self.name} changed while it was submitted: let it be written first, then say it again.")

    # ---- inside ----

    def _raw_lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        number = 0
        while raw := self._file.readline(LINE_BYTES_MAX):
            number += 1
            if len(raw) == LINE_BYTES_MAX:
                raise Problem(f"line {number} of {self.name} has more than {LINE_BYTES_MAX} bytes: split the file.")
            if number > LINES_MAX:
                raise Problem(f"{self.name} has more than {LINES_MAX} lines: split it.")
            yield number, raw

    def _task(self, raw: bytes) -> dict[str, Any] | str:
        """The task of a line in the shape of HTTP, or what is wrong with the line."""
        try:
            text = raw.decode().strip()
        except UnicodeDecodeError:
            return "it is not UTF-8 text"
        if self._kind is not None:
            try:
                return self._shared | {"kind": self._kind, "payload": json_or_text(text, "it")}
            except Problem as problem:
                return str(problem).removesuffix(": correct it.")
        value, refused = parse_json(raw)
        if refused is not None:
            return _said(refused, "")
        if not isinstance(value, dict) or "kind" not in value:
            return "it is not a task: write an object with a kind, or name the kind and let each line be a payload"
        return self._shared | value


def in_batches(lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Lines in groups that fit into one message."""
    group: list[tuple[int, dict[str, Any]]] = []
    size = 0
    for number, task in lines:
        length = len(to_json(task))
        if group and (len(group) >= BATCH_LINES or size + length > BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append((number, task))
        size += length
    if group:
        yield group


def _problem(task: dict[str, Any], payload_max_bytes: int) -> str | None:
    """What the gateway would refuse of a task, whatever the pool; None where nothing is wrong."""
    refused = limits_problem({"tasks": [task]})
    if refused is not None:
        return _said(refused, "/tasks/0")
    read = model_of(TaskIn, task)
    checked = read if isinstance(read, Refusal) else submission_of(read, read.id or "t", payload_max_bytes)
    return _said(checked, "") if isinstance(checked, Refusal) else None


def _said(refusal: Refusal, before: str) -> str:
    """The field and what is wrong with it, or the text alone."""
    where = (refusal.field or "").removeprefix(before).strip("/")
    return f"{where}: {refusal.text}" if where else refusal.text


def _short_digest(raw: bytes) -> bytes:
    return sha256(raw.strip()).digest()[:16]


def _spooled() -> IO[bytes]:
    """Standard input in a file without a name, so that it can be read twice."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by LinesFile
    source: Any = getattr(sys.stdin, "buffer", sys.stdin)
    while piece := source.read(1 << 20):
        file.write(piece if isinstance(piece, bytes) else piece.encode())
    return file


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise wrong_usage(f"{path} cannot be read ({(error.strerror or '').lower()}): check the path.") from None
