"""The work of the demonstration: every Python file of the running Python's standard library, as tasks."""

import re
import sysconfig
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from commands.vocabulary import NAME_CHARS_MAX

KIND: Final = "compress"
IN_PARTS: Final = 4
"""So many of the largest files are compressed in parts, with a checkpoint after each."""
PARTS: Final = 6
BY_PARTS: Final = "parts"
"""The capability of robots that can do that."""
_NOT_OURS: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:-]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to compress: the id of its task, where it lies, its size in bytes."""

    task: str
    path: Path
    size: int


def standard_library(most: int | None = None) -> list[SourceFile]:
    """The files that can be read, largest first; at most `most`."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in root.rglob("*.py"):
        inside = path.relative_to(root)
        if _NOT_OURS & set(inside.parts) or not path.is_file():
            continue
        try:
            with path.open("rb"):
                found.append(SourceFile(task_of(inside), path, path.stat().st_size))
        except OSError:
            continue
    found.sort(key=lambda file: (-file.size, file.task))
    return found[:most]


def task_of(inside: Path) -> str:
    """The task's id: `json/decoder.py` gives `py:json:decoder.py`; a name that would not do gives its digest."""
    text = "py:" + ":".join(inside.parts)
    if len(text) <= NAME_CHARS_MAX and not _NOT_IN_NAMES.search(text):
        return text
    return "py:" + sha256(inside.as_posix().encode()).hexdigest()


def submission(file: SourceFile, in_parts: bool) -> dict[str, Any]:
    """The task as it is submitted: its payload is the path, as bare text for a shell robot."""
    task: dict[str, Any] = {"id": file.task, "kind": KIND, "payload": str(file.path), "labels": {"demo": "yes"}}
    if in_parts:
        # These come first and want a robot that keeps checkpoints.
        task |= {"requirement": [BY_PARTS], "priority": 9, "payload": {"path": str(file.path), "parts": PARTS}}
    return task


def path_in(payload: Any) -> Path:
    """The file that a payload speaks of."""
    return Path(payload["path"] if isinstance(payload, dict) else payload)
