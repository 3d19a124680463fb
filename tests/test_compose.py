"""docker-compose.yml, the Dockerfile and the systemd units agree with their schema, the tests and the command line."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import untrue
from tests.support.kafka_home import kafka_version

PROJECT = Path(__file__).parents[1]
COMPOSE = PROJECT / "docker-compose.yml"
UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def against_the_schema(file: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the schema of the Compose specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_compose_file_follows_the_specification(tmp_path: Path) -> None:
    """Our file is valid; the same file with a misspelt key is not."""
    done = against_the_schema(COMPOSE)
    assert done.returncode == 0, done.stdout + done.stderr

    misspelt = tmp_path / "docker-compose.yml"
    misspelt.write_text(COMPOSE.read_text().replace("healthcheck:", "health_check:"))
    assert against_the_schema(misspelt).returncode == 1


@pytest.mark.parametrize("name", OURS)
def test_services_run_commands_that_exist(name: str) -> None:
    """Each command and health check of a service names a real command with real options."""
    service = SERVICES[name]
    check: list[str] = service.get("healthcheck", {}).get("test", [])

    assert untrue(service["command"]) == []
    if check[1:2] == ["fleetlog"]:
        assert untrue(check[2:]) == []


def test_services_wait_for_each_other_and_tell_their_health() -> None:
    """Everything starts after the topics exist, is restarted, and has a health check."""
    assert set(SERVICES) == {"kafka", "log-init", "processor", "projector", "gateway"}
    assert SERVICES["processor"]["deploy"]["replicas"] == 2
    for name in set(SERVICES) - {"log-init"}:
        assert SERVICES[name]["restart"] == "unless-stopped", name
        assert SERVICES[name]["healthcheck"]["test"], name
    for name in ("processor", "projector", "gateway"):
        assert SERVICES[name]["depends_on"]["log-init"] == {"condition": "service_completed_successfully"}


def test_nothing_is_open_to_other_machines() -> None:
    """Ports are published on loopback only; the gateway keeps its own default of loopback."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert "--listen" not in SERVICES["gateway"]["command"]


def test_the_gateway_reads_what_the_projector_writes() -> None:
    """Both mount the same volume at the folder that the image names for projections."""
    folder = "/var/lib/fleetlog/projections"

    assert SERVICES["projector"]["volumes"] == [f"projections:{folder}"]
    bulk = Path(folder).with_name("bulk")
    assert SERVICES["gateway"]["volumes"] == [f"projections:{folder}", f"bulk:{bulk}"]
    assert f"FLEETLOG_PROJECTOR_FOLDER={folder}" in (PROJECT / "Dockerfile").read_text()


def test_versions_are_those_of_the_tests() -> None:
    """The broker's image is the Kafka that the tests run, and ours has the project's version."""
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka_version()}"
    for name in OURS:
        assert SERVICES[name]["image"] == f"fleetlog:{PYPROJECT['project']['version']}"


def test_the_image_holds_every_package() -> None:
    """The Dockerfile copies all packages, and .dockerignore lets them in."""
    packages = PYPROJECT["tool"]["hatch"]["build"]["packages"]

    for package in packages:
        assert f"COPY {package} {package}\n" in (PROJECT / "Dockerfile").read_text()
        assert f"!{package}\n" in (PROJECT / ".dockerignore").read_text()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_run_commands_that_exist(unit: Path) -> None:
    """Each systemd unit starts a real command, as its own user, and is started again when it ends."""
    lines = unit.read_text().splitlines()
    started = [shlex.split(line.removeprefix("ExecStart=")) for line in lines if line.startswith("ExecStart=")]

    assert [words[0] for words in started] == ["/opt/fleetlog/bin/fleetlog"]
    assert untrue(started[0][1:]) == []
    assert {"User=fleetlog", "Restart=always", "ProtectSystem=strict"} <= set(lines)
