"""The layout holds: layers, purity, one home per library, sizes, the lock file, and nothing of any one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGES = ("commands", "streams", "projections", "robot_gateway", "fleetlog")
LINES_MAX = 450
# Closed lists that read best in one piece.
TABLES = {Path("commands/events.py"), Path("commands/inputs.py")}

# Where each outside library may be imported; everything else asks that place.
HOMES = {
    "cronsim": ("commands/instants.py",),
    "zoneinfo": ("commands/instants.py",),
    "tzdata": ("commands/instants.py",),
    "confluent_kafka": ("streams/kafka_log*",),
    "rocksdict": ("streams/embedded*", "streams/body_store.py", "projections/store.py"),
    "faust": ("streams/rollups*",),
    "kafka": ("projections/audit*", "fleetlog/audit*"),
    "duckdb": ("projections/*",),
    "pyarrow": ("projections/*",),
    "fastapi": ("robot_gateway/*",),
    "starlette": ("robot_gateway/*",),
    "uvicorn": ("robot_gateway/*",),
    "uvloop": ("robot_gateway/*", "fleetlog/*"),
    "websockets": ("robot_gateway/*",),
    "httpx": ("robot_gateway/*",),
    "prometheus_client": ("*/metrics*.py",),
    "typer": ("fleetlog/*",),
    "click": ("fleetlog/*",),
    "rich": ("fleetlog/*",),
}

# The same for libraries that only tests have.
HOMES_IN_TESTS = {"schemathesis": "tests/fuzz/described.py", "requests": "tests/fuzz/described.py"}

# Calls that a pure package must not make, by their last two names.
IMPURE_CALLS = {
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
    ("uuid", "uuid1"), ("uuid", "uuid4"), ("random", "random"),
}  # fmt: skip
IMPURE_NAMES = {"open", "print", "input", "exec", "eval", "__import__", "uuid1", "uuid4"}
IMPURE_MODULES = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}

OF_ONE_MACHINE = re.compile(
    r"/(?:work|root|home|Users)/\w"  # somebody's folders
    r"|--find-links|--(?:extra-)?index-url"
    r"|\b10(?:\.\d{1,3}){3}\b|\b192\.168(?:\.\d{1,3}){2}\b|\b172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}\b"
)
TEXT_FOR = {".py", ".toml", ".md", ".yml", ".yaml", ".lock", ".xml", ".service", ".c", ".sh", ".json", ".txt", ""}


def modules() -> list[Path]:
    """Every module of the product, relative to the project."""
    return sorted(path.relative_to(PROJECT) for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every absolute import, those inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name.partition(".")[0]) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def out_of_home(path: Path, source: str) -> list[str]:
    """Imports of outside libraries that this module may not make."""
    return [
        f"{path}:{line} imports {library}: only {' and '.join(HOMES[library])} may"
        for line, library in imports(source)
        if library in HOMES and not any(fnmatch(path.as_posix(), home) for home in HOMES[library])
    ]


def impurities(path: Path, source: str) -> list[str]:
    """What a module does that depends on more than its arguments."""
    found = [f"{path}:{line} imports {name}" for line, name in imports(source) if name in IMPURE_MODULES]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_NAMES:
            found.append(f"{path}:{node.lineno} calls {called.id}")
        if isinstance(called, ast.Attribute):
            owner = called.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if (name, called.attr) in IMPURE_CALLS:
                found.append(f"{path}:{node.lineno} calls {name}.{called.attr}")
    return found


def of_one_machine(path: Path, text: str) -> list[str]:
    """Lines that name folders, addresses or package sources of some machine."""
    return [
        f"{path}:{number} says {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in [OF_ONE_MACHINE.search(line)]
        if found
    ]


def tracked_files() -> list[Path]:
    """Files that git tracks, relative to the project; all files where this is no git checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [Path(name) for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()]
    hidden = {".venv", ".git", ".cache"}
    return [
        path.relative_to(PROJECT)
        for path in PROJECT.rglob("*")
        if path.is_file() and not hidden & set(path.relative_to(PROJECT).parts)
    ]


def locked(lock: Path) -> dict[str, str]:
    """Name and version of everything a lock file pins."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.read_text(), re.MULTILINE))


def test_imports_point_down_only() -> None:
    """The contracts of pyproject.toml hold: layers, purity, no decisions in projections, a light SDK."""
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint, "--no-cache"], cwd=PROJECT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_outside_library_has_one_home() -> None:
    """A library is imported only where HOMES says, so that it can be replaced in one place."""
    wrong = [line for path in modules() for line in out_of_home(path, (PROJECT / path).read_text())]

    assert not wrong, "\n".join(wrong)


def test_libraries_of_tests_have_one_home() -> None:
    """So has what is not installed with the product."""
    found = {
        (library, path.relative_to(PROJECT).as_posix())
        for path in (PROJECT / "tests").rglob("*.py")
        for _, library in imports(path.read_text())
        if library in HOMES_IN_TESTS
    }

    assert found == set(HOMES_IN_TESTS.items())


def test_commands_is_pure() -> None:
    """commands/ draws no time and no chance and touches nothing outside: the same input gives the same events."""
    wrong = [
        line
        for path in modules()
        if path.parts[0] == "commands"
        for line in impurities(path, (PROJECT / path).read_text())
    ]

    assert not wrong, "\n".join(wrong)


def test_modules_are_short_and_say_what_they_are() -> None:
    """No module is longer than 450 lines, and each begins with a docstring."""
    for path in modules():
        source = (PROJECT / path).read_text()
        assert path in TABLES or source.count("\n") <= LINES_MAX, (
            f"{path} has {source.count(chr(10))} lines: split it by subject"
        )
        assert ast.get_docstring(ast.parse(source)), f"{path} does not say what it is"


def test_packages_are_typed() -> None:
    """Every top-level package tells type checkers that it is typed."""
    assert [package for package in PACKAGES if not (PROJECT / package / "py.typed").exists()] == []


def test_nothing_belongs_to_one_machine() -> None:
    """No tracked file names folders, private addresses or package sources of a particular machine."""
    wrong = [
        line
        for path in tracked_files()
        if path.suffix in TEXT_FOR and path != Path(__file__).relative_to(PROJECT)
        for line in of_one_machine(path, (PROJECT / path).read_text(errors="replace"))
    ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("lock", ["requirements.lock", "deploy/image.lock"])
def test_locks_pin_everything_by_hash_and_name_no_index(lock: str) -> None:
    """Every line of a lock file is a pin, a hash or a comment, and each pin has a hash."""
    text = (PROJECT / lock).read_text()

    for line in text.splitlines():
        assert re.match(
            r"^(?:#|$|[a-z0-9][A-Za-z0-9._-]*==[^\s;]+( ;.*)? \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$)", line
        ), line
    assert "//" not in text
    for name in locked(PROJECT / lock):
        assert re.search(rf"^{re.escape(name)}==.*\\\n    --hash=sha256:", text, re.MULTILINE), name


def test_the_image_installs_what_was_tested() -> None:
    """The container image pins the same versions as the environment of the tests."""
    tested = locked(PROJECT / "requirements.lock").items()

    assert locked(PROJECT / "deploy" / "image.lock").items() <= tested


def test_a_robot_installs_neither_kafka_nor_rocksdb() -> None:
    """The base dependencies are those of a robot or a submitter."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[^a-z-]", name)[0] for name in project["dependencies"]}

    assert base == {"httpx", "pydantic", "rich", "typer", "websockets"}


def test_the_changelog_names_this_version() -> None:
    """The version in pyproject.toml has an entry in CHANGELOG.md."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]

    assert f"## {version}" in (PROJECT / "CHANGELOG.md").read_text()


def test_make_alone_lists_every_target() -> None:
    """Nothing can be made that `make` does not show."""
    phony = re.search(r"^\.PHONY: (.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    listed = subprocess.run(["make", "--no-print-directory"], cwd=PROJECT, capture_output=True, text=True).stdout

    assert re.findall(r"^make (\S+) +\S", listed, re.MULTILINE) == phony[1].split()


def test_the_rules_find_what_breaks_them() -> None:
    """Each rule of this file, broken once."""
    elsewhere = Path("projections/queries.py")

    assert out_of_home(elsewhere, "import confluent_kafka.admin") == [
        "projections/queries.py:1 imports confluent_kafka: only streams/kafka_log* may"
    ]
    assert out_of_home(Path("streams/kafka_log/owner.py"), "from confluent_kafka import Producer") == []
    assert impurities(Path("commands/x.py"), "import time\n") == ["commands/x.py:1 imports time"]
    assert impurities(Path("commands/x.py"), "datetime.now(UTC)") == ["commands/x.py:1 calls datetime.now"]
    assert impurities(Path("commands/x.py"), "dt.datetime.now()") == ["commands/x.py:1 calls datetime.now"]
    assert impurities(Path("commands/x.py"), "uuid.uuid5(space, name)") == []
    for line in ("see /home/ada/fleetlog", "host: 10.0.3.7", "--find-links wheels"):
        assert of_one_machine(elsewhere, line), line
    assert not of_one_machine(elsewhere, "version 10.0.3, at 127.0.0.1:8780, in $HOME/x")
