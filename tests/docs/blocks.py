"""The blocks of code on a page, and what their first line says is to be done with them.

```console         run in one shell for the whole page: lines after `$ ` are commands (`> ` goes on), the others
                   must come in the output in this order; `...` stands for anything. A command succeeds.
```console keep    each command is started and goes on running until the page ends
```console check   not run: the words are compared with what exists
```python          run as a program; with a name after it, saved under that name for a command to run
```toml NAME       saved under that name; toml and json are parsed, all others are only shown
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generate import PAGES

PROJECT = Path(__file__).parents[2]
SHOWN = frozenset({"text", "mermaid", "c", "toml", "json", "ini", "sql"})
LANGUAGES = SHOWN | {"console", "python"}
END_ALL = "<!-- test: end what runs -->"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$|^(?P<end>" + re.escape(END_ALL) + ")$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """One block: its language, what stands after it, the text, and where it begins. Without language: `END_ALL`."""

    language: str
    words: tuple[str, ...]
    text: str
    place: str

    @property
    def is_run(self) -> bool:
        """Whether something of it is executed."""
        return self.language == "python" or (self.language == "console" and "check" not in self.words)


@dataclass(frozen=True)
class Step:
    """A command as typed, and the lines of output that the page shows for it."""

    command: str
    shown: tuple[str, ...]


def pages() -> list[Path]:
    """Every page, relative to the project."""
    found = [Path("README.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md")]
    return found + sorted(path.relative_to(PROJECT) for path in (PROJECT / "docs").rglob("*.md"))


def is_generated(page: Path) -> bool:
    """Whether `make docs` writes the page."""
    return page.as_posix().removeprefix("docs/") in PAGES


def text_of(page: Path) -> str:
    """The page."""
    return (PROJECT / page).read_text()


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks in order, and the marks between them."""
    text = text_of(page)
    return [_block(page, text, match) for match in _FENCE.finditer(text)]


def _block(page: Path, text: str, match: re.Match[str]) -> Block:
    place = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
    if match["end"]:
        return Block("", (), "", place)
    language, *words = (match["info"] or "").split() or [""]
    return Block(language or "none", tuple(words), match["text"], place)


def steps_of(block: Block) -> Iterator[Step]:
    """The commands of a console block with what is shown of their output."""
    command: list[str] = []
    shown: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command:
                yield Step("\n".join(command), tuple(shown))
            command, shown = [line[2:]], []
        elif line.startswith("> "):
            command.append(line[2:])
        elif line.strip():
            assert command, f"{block.place}: {line!r} stands before any command"
            shown.append(line)
    if command:
        yield Step("\n".join(command), tuple(shown))


def missing_of(shown: tuple[str, ...], output: str) -> str | None:
    """The first line that is shown but does not come in the output after those before it, or None."""
    lines = iter(output.splitlines())
    for wanted in shown:
        pattern = re.compile(".*".join(map(re.escape, wanted.rstrip().split("..."))))
        if not any(pattern.fullmatch(line.rstrip()) for line in lines):
            return wanted
    return None
