"""Alarms of the product as it runs: `[alarm] command` is told by `fleetlog up`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.ports import free_port
from tests.system.product import Part, wait_until


def test_up_tells_its_command_that_the_disk_is_full(tmp_path: Path) -> None:
    """From the settings file to the command's standard input, in processes of their own; the end comes in order."""
    paper, config = tmp_path / "alarms", tmp_path / "fleetlog.toml"
    program = f"import sys; open({str(paper)!r}, 'a').write(sys.stdin.read())"
    command = json.dumps(f'{sys.executable} -c "{program}"')
    config.write_text(f"[disk]\nmin_free_bytes = {2**50}\n[alarm]\ncommand = {command}\n")
    listen = f"127.0.0.1:{free_port()}"
    up = Part("up", "up", "--config", str(config), "--data", str(tmp_path / "data"), "--listen", listen)
    up.start()
    try:
        wait_until(lambda: paper.exists() and paper.read_text().endswith("\n"))
    finally:
        up.stop()
    alarm = json.loads(paper.read_text().splitlines()[0])
    assert (alarm["alarm"], alarm["over"], alarm["gateway"].partition("-")[0]) == ("disk", False, "gateway")
    assert "no submissions are taken: make room" in alarm["text"]
