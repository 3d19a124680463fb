"""Opening a WebSocket: what is refused is refused over HTTP, with problem details."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from commands.messages import PROTOCOL
from robot_gateway.submit import SUBMIT_PROTOCOL
from robot_gateway.tokens import new_token, write_tokens
from tests.support.site import Site

SESSION = "/v1/pools/hall-a/robots/r1/session"


def refused(site: Site, path: str, *, protocol: str | None = PROTOCOL, **headers: str) -> dict[str, Any]:
    """The problem that a handshake is refused with."""
    protocols = [Subprotocol(protocol)] if protocol else None
    url = site.url.replace("http", "ws", 1) + path
    with pytest.raises(InvalidStatus) as raised, connect(url, subprotocols=protocols, additional_headers=headers):
        pass
    response = raised.value.response
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.headers["X-Request-Id"]
    assert response.body is not None
    problem: dict[str, Any] = json.loads(response.body)
    assert problem["status"] == response.status_code
    assert problem["request_id"] == response.headers["X-Request-Id"]
    return problem | {"headers": response.headers}


def upgrade(site: Site, **headers: str) -> tuple[int, dict[str, Any]]:
    """A handshake with exactly these headers beside those that make it an upgrade."""
    connection = http.client.HTTPConnection(site.url.removeprefix("http://"), timeout=60)
    basic = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": PROTOCOL}
    connection.request("GET", SESSION, headers=basic | {"Sec-WebSocket-Version": "13"} | headers)
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    connection.close()
    return answer.status, problem


@pytest.fixture(scope="module")
def site() -> Any:
    """A gateway without tokens."""
    with Site(scripted=True, projector=False) as running:
        yield running


@pytest.mark.parametrize("protocol", [None, "fleetlog.robot.v9", SUBMIT_PROTOCOL])
def test_a_robot_must_offer_its_protocol(site: Site, protocol: str | None) -> None:
    """Another version, or none: 400 protocol_version."""
    problem = refused(site, SESSION, protocol=protocol)

    assert (problem["status"], problem["reason"]) == (400, "protocol_version")
    assert PROTOCOL in problem["detail"]


def test_names_are_checked_before_anything_else(site: Site) -> None:
    """A pool or robot that cannot exist never gets a session."""
    assert refused(site, "/v1/pools/_x/robots/r1/session")["field"] == "/pool"
    assert refused(site, "/v1/pools/a/robots/r%201/session")["field"] == "/robot"
    assert refused(site, f"/v1/pools/a/robots/{'r' * 129}/session")["field"] == "/robot"


def test_there_are_two_websockets_and_no_third(site: Site) -> None:
    """Other paths are not there."""
    problem = refused(site, "/v1/pools/hall-a/robots/r1")
    assert (problem["status"], problem["reason"]) == (404, "no_such_route")


def test_pages_of_others_may_not_connect(site: Site) -> None:
    """A browser says where a page comes from."""
    problem = refused(site, SESSION, Origin="http://evil.example")
    assert (problem["status"], problem["reason"]) == (403, "forbidden")


def test_a_name_that_points_here_is_not_ours(site: Site) -> None:
    """DNS rebinding: the Host header gives it away."""
    status, problem = upgrade(site, Host="evil.example", **{"Sec-WebSocket-Key": "x" * 22 + "=="})
    assert (status, problem["reason"]) == (403, "forbidden")


def test_a_session_needs_an_upgrade(site: Site) -> None:
    """A plain GET says what it should be."""
    answer = site.client.get(SESSION)
    assert (answer.status_code, answer.json()["reason"]) == (400, "protocol_version")


def test_an_upgrade_that_is_none_is_refused(site: Site) -> None:
    """A key that is missing is a wrong version of the WebSocket protocol."""
    status, problem = upgrade(site)
    assert (status, problem["reason"]) == (400, "protocol_version")


def test_a_full_gateway_says_when_to_come_back() -> None:
    """503 with Retry-After; a session that ends makes room."""
    with Site(scripted=True, projector=False, sessions_max=1) as site, site.robot("r1"):
        problem = refused(site, "/v1/pools/hall-a/robots/r2/session")
        assert (problem["status"], problem["reason"]) == (503, "not_ready")
        assert problem["headers"]["Retry-After"] == "5"
        polled = site.polling_robot("r3").poll(['{"type":"hello"}'])
        assert (polled.status_code, polled.json()["reason"]) == (503, "not_ready")


def test_tokens_are_for_roles_robots_and_pools(tmp_path: Path) -> None:
    """Unauthenticated, forbidden, or for a pool that does not exist."""
    path = tmp_path / "tokens.toml"
    robot, robot_entry = new_token("robots", "robot", pools=["hall-a", "yard"], robots=["r*"])
    viewer, viewer_entry = new_token("viewers", "viewer")
    submitter, submitter_entry = new_token("submitters", "submitter")
    operator, operator_entry = new_token("operators", "operator")
    write_tokens(path, [robot_entry, viewer_entry, submitter_entry, operator_entry])
    with Site(tokens=path) as site:
        with_robot = {"Authorization": f"Bearer {robot}"}
        answer = site.client.post("/v1/pools", json={"pool": "hall-a"}, headers={"Authorization": f"Bearer {operator}"})
        assert answer.status_code == 201

        assert refused(site, SESSION)["status"] == 401
        assert refused(site, SESSION, Authorization="Bearer nonsense")["status"] == 401
        assert refused(site, SESSION, Authorization=f"Basic {robot}")["status"] == 401
        assert refused(site, SESSION, Authorization=f"Bearer {viewer}")["status"] == 403
        assert refused(site, SESSION, Authorization=f"Bearer {operator}")["status"] == 403
        assert refused(site, "/v1/pools/hall-a/robots/x1/session", **with_robot)["status"] == 403
        assert refused(site, "/v1/pools/hall-b/robots/r1/session", **with_robot)["status"] == 403
        problem = refused(site, "/v1/pools/yard/robots/r1/session", **with_robot)
        assert (problem["status"], problem["reason"]) == (404, "no_such_pool")
        submit = {"protocol": SUBMIT_PROTOCOL, "Authorization": f"Bearer {robot}"}
        assert refused(site, "/v1/submit", **submit)["status"] == 403
        with site.robot(token=robot) as accepted:
            assert accepted.hello()["type"] == "welcome"
        assert submitter


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({f"X-{number}": "y" for number in range(300)}, 413, "too_large"),
        ({"X-Long": "y" * 9000}, 413, "too_large"),
        ({"X-Longer": "y" * 60_000}, 413, "too_large"),
        ({"Content-Length": "5"}, 400, "protocol_version"),
        ({"Transfer-Encoding": "chunked"}, 400, "protocol_version"),
    ],
)
def test_a_handshake_that_cannot_be_read(site: Site, headers: dict[str, str], status: int, reason: str) -> None:
    """Too many or too long headers, or a body: a problem as well, and not the library's own text or nothing at all."""
    answered, problem = upgrade(site, **{"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **headers})

    assert (answered, problem["reason"]) == (status, reason)
