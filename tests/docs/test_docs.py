"""What the pages show is run, what they name exists, and what cannot be run is compared with what there is."""

import ast
import json
import re
import shlex
import tomllib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import LANGUAGES, PROJECT, Block, blocks_of, is_generated, missing_of, pages, steps_of, text_of
from tests.docs.terminal import Terminal, environment_of
from tests.docs.verbs import untrue
from tests.support.ports import LOOPBACK, free_port

WRITTEN = [page for page in pages() if not is_generated(page)]
RUN = [page for page in WRITTEN if any(block.is_run for block in blocks_of(page))]
GATEWAY = "127.0.0.1:8780"
BROKER = "127.0.0.1:9092"
README_LINES_MAX = 150
READERS = 3
Readings = dict[Path, "Future[None]"]
WHEN = re.compile(r"# when ([\w-]+) is ([A-Z]+)$")
"""A remark after a command: the reader waits for that before typing it."""


# ---- what is run ----


@pytest.fixture(scope="module")
def readings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readings]:
    """Every page that a test of this run asks for is being read, a few at a time: readers mostly wait."""
    wanted = [page for page in RUN if any(item.name.endswith(f"happens[{page}]") for item in request.session.items)]
    broker = request.getfixturevalue("broker").address if any(map(needs_broker, wanted)) else ""
    with ThreadPoolExecutor(READERS) as readers:
        folders = {page: tmp_path_factory.mktemp(page.stem) for page in wanted}
        yield {page: readers.submit(read, page, folders[page], broker) for page in wanted}


@pytest.mark.parametrize("page", RUN, ids=str)
def test_what_a_page_shows_is_what_happens(page: Path, readings: Readings) -> None:
    """Every block is run as its first line says, in order, from an empty folder, against a fleet of the page's own."""
    readings[page].result()


def read(page: Path, folder: Path, broker: str) -> None:
    """Reads one page from beginning to end."""
    Reader(page, folder, broker).read()


def needs_broker(page: Path) -> bool:
    """Whether something that is run names a broker."""
    return any(BROKER in block.text and block.is_run for block in blocks_of(page))


class Reader:
    """Somebody who does what a page says. Addresses that the page names become those of this test."""

    def __init__(self, page: Path, folder: Path, broker: str) -> None:
        self._blocks = blocks_of(page)
        self._folder = folder
        self._address = f"{LOOPBACK}:{free_port()}"
        self._named = {GATEWAY: self._address} | ({BROKER: broker} if broker else {})
        self._terminal = Terminal(
            folder,
            environment_of(
                folder,
                FLEETLOG_GATEWAY=f"http://{self._address}",
                FLEETLOG_GATEWAY_LISTEN=self._address,
                FLEETLOG_DISK_MIN_FREE_BYTES="0",
                FLEETLOG_LOG_PREFIX=f"docs-{uuid.uuid4().hex[:8]}",
                FLEETLOG_LOG_PARTITIONS="2",
                FLEETLOG_POOL_WINDOW_S="1",
                FLEETLOG_POOL_LEASE_S="3",
            ),
        )

    def read(self) -> None:
        """The whole page."""
        try:
            if not any(is_serving(step.command) for block in self._blocks if block.is_run for step in steps_in(block)):
                self._keep("fleetlog up")
            for number, block in enumerate(self._blocks):
                self._do(number, block)
            self._terminal.end_kept()
        finally:
            self._terminal.close()

    def _do(self, number: int, block: Block) -> None:
        text = self._here(block.text)
        if block.language == "":
            self._terminal.end_kept()
        elif block.language == "python":
            name = block.words[0] if block.words else f"block_{number}.py"
            (self._folder / name).write_text(text)
            if not block.words:
                self._terminal.run(f"python {name}")
        elif block.language == "console" and block.is_run:
            for step in steps_of(block):
                self._step(block, self._here(step.command), step.shown)
        elif block.words and "check" not in block.words:
            (self._folder / block.words[0]).write_text(text)

    def _step(self, block: Block, command: str, shown: tuple[str, ...]) -> None:
        if "keep" in block.words:
            self._keep(command)
            return
        for task, state in WHEN.findall(command):
            self._terminal.wait_for_task(f"http://{self._address}", task, state)
        output = self._terminal.run(command)
        missing = missing_of(tuple(map(self._here, shown)), output)
        assert missing is None, (
            f"{block.place}: $ {command}\n{output}\ndoes not show {missing!r}{self._terminal.told()}"
        )

    def _keep(self, command: str) -> None:
        self._terminal.keep(command)
        if is_serving(command):
            self._terminal.wait_until_ready(f"http://{self._address}")

    def _here(self, text: str) -> str:
        for named, real in self._named.items():
            text = text.replace(named, real)
        return text


def steps_in(block: Block) -> list[Any]:
    """The commands of a block, if it has any."""
    return list(steps_of(block)) if block.language == "console" else []


def is_serving(command: str) -> bool:
    """Whether the command starts a gateway."""
    return command.startswith(("fleetlog up", "fleetlog gateway"))


# ---- what is compared ----


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_blocks_say_what_they_are(page: Path) -> None:
    """No block escapes: each has a known language; what is TOML or JSON can be read, Python can be compiled."""
    for block in blocks_of(page):
        if block.language == "":
            continue
        assert block.language in LANGUAGES, f"{block.place}: say what the block is"
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "python":
            ast.parse(block.text)


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_commands_that_are_not_run_exist(page: Path) -> None:
    """Programs, verbs, options, targets, extras, units and services that a page names are there."""
    for block in blocks_of(page):
        if block.language == "console" and not block.is_run:
            for step in steps_of(block):
                assert not unknown_in(step.command), f"{block.place}: {step.command}: {unknown_in(step.command)}"


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_verbs_that_a_page_mentions_exist(page: Path) -> None:
    """`fleetlog VERB --option` within a sentence names a verb and options that there are."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.S | re.M)
    for mentioned in re.findall(r"`(fleetlog\s[^`>]+)`", prose):
        command = " ".join(mentioned.split()).replace("...", "")
        assert not unknown_in(command), f"{page}: {mentioned}: {unknown_in(command)}"


def unknown_in(command: str) -> list[str]:
    """What a command names that does not exist here."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    while words and (words[0] in ("sudo", "exec") or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words.pop(0)
    if not words:
        return []
    program = words[0].rpartition("/")[2]
    return CHECKS[program](words[1:]) if program in CHECKS else [program]


def _units(words: list[str]) -> list[str]:
    units = {path.stem for path in (PROJECT / "deploy/systemd").glob("*.service")}
    named = [word.removesuffix(".service") for word in words[1:] if not word.startswith("-")]
    return [name for name in named if name not in units]


def _targets(words: list[str]) -> list[str]:
    folder = PROJECT
    if words[:1] == ["-C"]:
        folder, words = PROJECT / words[1], words[2:]
    makefile = (folder / "Makefile").read_text()
    named = [word for word in words if "=" not in word]
    return [name for name in named if not re.search(rf"^{re.escape(name)}:", makefile, re.M)]


def _compose(words: list[str]) -> list[str]:
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    known = {"compose", "up", "down", "ps", "logs", "exec", "stop", "start", "pull", "build", *services}
    asked = words[: words.index("exec") + 2] if "exec" in words else words
    return [word for word in asked if not word.startswith("-") and word.partition("=")[0] not in known]


def _extras(words: list[str]) -> list[str]:
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [name for word in words for name in re.findall(r"fleetlog\[([\w,]+)\]", word)]
    return [extra for names in named for extra in names.split(",") if extra not in known]


def _nothing(words: list[str]) -> list[str]:
    return []


def _files(words: list[str]) -> list[str]:
    """Files of this project that are copied or shown; others belong to the reader."""
    ours = [word for word in words if word.startswith(("deploy/", "examples/", "docs/"))]
    return [word for word in ours if not list(PROJECT.glob(word))]


CHECKS: dict[str, Callable[[list[str]], list[str]]] = {
    "fleetlog": untrue,
    ".": _nothing,
    "make": _targets,
    "systemctl": _units,
    "journalctl": lambda words: _units(["", *[word for word in words if word.startswith("fleetlog")]]),
    "docker": _compose,
    "pip": _extras,
    "cp": _files,
    "install": _files,
    **dict.fromkeys(("cd", "git", "python3", "useradd", "chown", "chmod", "curl", "cc", "apt-get", "tar"), _nothing),
}


# ---- what is named ----

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"`([\w/.-]+\.py)(?:::(\w+)|:([\w.]+))?`")


def anchors(page: Path) -> set[str]:
    """The places that a link into a page may name."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that a page links to exist."""
    for link in LINK.findall(text_of(page)):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (PROJECT / page.parent / file).resolve() if file else PROJECT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target.relative_to(PROJECT)), f"{page} links to {link}"


@pytest.mark.parametrize("page", WRITTEN, ids=str)
def test_code_that_a_page_names_exists(page: Path) -> None:
    """`file.py`, `file.py:name` and `file.py::test_name` are there."""
    for file, test, name in CODE.findall(text_of(page)):
        if "/" not in file and not (PROJECT / file).exists():
            continue
        assert (PROJECT / file).is_file(), f"{page} names {file}"
        if name or test:
            assert (name or test) in names_in(file), f"{page} names {name or test} of {file}"


def names_in(file: str) -> set[str]:
    """Functions, classes and methods of a file; tests of a class stand for themselves too."""
    found: set[str] = set()

    def walk(node: ast.AST, prefix: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + inner.name)
                if inner.name.startswith("test_"):
                    found.add(inner.name)
                if isinstance(inner, ast.ClassDef):
                    walk(inner, f"{prefix}{inner.name}.")

    walk(ast.parse((PROJECT / file).read_text()), "")
    return found


def test_every_page_is_reached_from_the_index() -> None:
    """docs/README.md leads to every page, directly or over others."""
    reached, todo = set(), [Path("docs/README.md")]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for link in LINK.findall(text_of(page)):
            target = (PROJECT / page.parent / link.partition("#")[0]).resolve()
            if not link.startswith("http") and target.is_relative_to(PROJECT) and target.is_file():
                todo.append(target.relative_to(PROJECT))
    assert [page for page in pages() if page not in reached] == []


def test_the_readme_is_short() -> None:
    """A front door, not a house."""
    assert len(text_of(Path("README.md")).splitlines()) <= README_LINES_MAX
