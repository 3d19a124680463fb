"""A running fleet, and the command line called as the console script calls it."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetlog.cli import run
from tests.support.fleet import Fleet

PROGRAM = Path(sys.executable).parent / "fleetlog"


@dataclass(frozen=True)
class Done:
    """What a call of the command line came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of the result."""
        return self.out.splitlines()


CommandLine = Callable[..., Done]


def objects(done: Done) -> list[dict[str, Any]]:
    """The objects that a call with --json printed."""
    assert done.code == 0, done
    return [json.loads(line) for line in done.lines]


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of whoever runs the tests, and no settings file, has a say."""
    for name in os.environ:
        if name.startswith("FLEETLOG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Calls the command line in this process; standard input is what is given, and no terminal.

    What a call says about lines for standard error ends with it: what threads of others say later is nobody's.
    """
    logger = logging.getLogger("fleetlog")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate

    def call(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            code = run(list(words))
        finally:
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return call


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One running Fleetlog for all tests of the command line; each takes a pool of its own."""
    with Fleet(tmp_path_factory.mktemp("fleet"), pool={"window_s": 1, "lease_s": 3}) as running:
        yield running


@pytest.fixture
def pool(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pool that nobody has used; the command line asks this fleet about this pool."""
    name = f"p-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("FLEETLOG_GATEWAY", fleet.url)
    monkeypatch.setenv("FLEETLOG_POOL", name)
    monkeypatch.setenv("FLEETLOG_LOG_AT", fleet.settings.log.at)
    return name


def program(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    options = {"capture_output": True, "text": True, "timeout": 120} | options
    return subprocess.run([PROGRAM, *words], **options)
