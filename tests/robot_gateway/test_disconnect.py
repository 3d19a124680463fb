"""Clients that go away in the middle of a request."""

from __future__ import annotations

import contextlib
import logging
import socket

import httpx
import pytest

from tests.support.site import Site, until


def test_a_client_that_goes_away_in_its_body_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged as a fault, and the gateway goes on; the request was counted, so it did arrive."""
    head = (
        b"POST /v1/pools HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with Site(projector=False) as site, caplog.at_level(logging.ERROR, "fleetlog.gateway"):
        host, port = site.url.removeprefix("http://").split(":")
        with contextlib.closing(socket.create_connection((host, int(port)))) as gone:
            gone.sendall(head)
        counted = 'route="/v1/pools",status="0"'
        until(lambda: counted in httpx.get(f"{site.url}/metrics").text, "the request in the figures")
        assert site.client.get("/healthz").status_code == 200
    assert [record.getMessage() for record in caplog.records] == []
