"""Impossible settings are refused at start with a sentence that says what to change."""

from pathlib import Path

import pytest

from robot_gateway.settings import GatewaySettings, pool_problem, settings_problems
from streams.port import RECORD_BYTES_MAX


def problems(**settings: object) -> list[str]:
    return settings_problems(GatewaySettings.model_validate(settings), RECORD_BYTES_MAX)


def test_the_defaults_are_possible() -> None:
    """Nothing needs to be set."""
    assert problems() == []


@pytest.mark.parametrize("listen", ["0.0.0.0:8780", "[::]:8780", "gateway.example:80", "192.0.2.5:1"])
def test_beyond_loopback_needs_tokens(listen: str) -> None:
    """Without tokens everybody who reaches the gateway may do everything."""
    (problem,) = problems(listen=listen)

    assert "set gateway.tokens" in problem


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:1", "[::1]:8780", "localhost:8780"])
def test_loopback_needs_none(listen: str) -> None:
    """Every loopback address is fine."""
    assert problems(listen=listen) == []


def test_tokens_beyond_loopback_need_tls(tmp_path: Path) -> None:
    """A token must not travel in the clear; a proxy that speaks TLS may be vouched for."""
    tokens = tmp_path / "tokens.toml"
    tokens.touch(mode=0o600)

    (problem,) = problems(listen="0.0.0.0:8780", tokens=tokens)

    assert "gateway.tls_cert" in problem
    assert problems(listen="0.0.0.0:8780", tokens=tokens, behind_tls_proxy=True) == []


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Readable by others, or missing: refused, with the command that mends it."""
    tokens = tmp_path / "tokens.toml"
    assert "fleetlog token new" in problems(tokens=tokens)[0]

    tokens.touch(mode=0o640)
    assert f"chmod 600 {tokens}" in problems(tokens=tokens)[0]


@pytest.mark.parametrize("listen", ["8780", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":8780"])
def test_an_address_is_host_and_port(listen: str) -> None:
    """Anything else is refused with an example."""
    assert "HOST:PORT" in problems(listen=listen)[0]


def test_half_of_tls_is_none(tmp_path: Path) -> None:
    """Certificate and key belong together, and are files."""
    cert = tmp_path / "cert.pem"
    assert "belong together" in problems(tls_cert=cert)[0]
    assert "is not a file" in problems(tls_cert=cert, tls_key=cert)[0]


def test_an_answer_may_take_as_long_as_a_commit() -> None:
    """Giving up before the owner may have committed would say no_answer about what happened."""
    assert "answer_timeout_s" in problems(answer_timeout_s=10)[0]


def test_two_payloads_fit_into_a_record() -> None:
    """An assignment carries a payload and a checkpoint."""
    (problem,) = problems(payload_max_bytes=600_000)

    assert "set it to 491520 or less" in problem
    assert problems(payload_max_bytes=491_520) == []


def test_windows_are_longer_than_gathering() -> None:
    """Four gatherings in a window, two in the time to accept."""
    settings = GatewaySettings(heartbeat_gather_ms=250)
    assert pool_problem(settings, 1000, 500) is None
    assert "window_s must be at least 1" in (pool_problem(settings, 999, None) or "")
    assert "accept_s must be at least 0.5" in (pool_problem(settings, None, 499) or "")
