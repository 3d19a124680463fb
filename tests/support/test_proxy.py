"""The proxies of the tests: each trouble they make is seen by a real client, and restore() ends it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.broker import Broker
from tests.support.ports import LOOPBACK
from tests.support.proxy import Api, KafkaProxy, Proxy
from tests.support.test_broker import new_topic

CEILING_S = 60.0


@contextlib.contextmanager
def echo_server() -> Iterator[tuple[str, list[bytes]]]:
    """A server that sends back what it gets, and what it got so far."""
    got: list[bytes] = []

    def serve_one(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while data := peer.recv(65536):
                got.append(data)
                peer.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve_one, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"{LOOPBACK}:{server.getsockname()[1]}", got
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def echo() -> Iterator[tuple[Proxy, list[bytes]]]:
    """A proxy before an echo server, and what the server got."""
    with echo_server() as (address, got), Proxy(address) as proxy:
        yield proxy, got


def connect(proxy: Proxy) -> socket.socket:
    """A client's connection through the proxy."""
    host, port = proxy.address.split(":")
    return socket.create_connection((host, int(port)), timeout=CEILING_S)


def hears_nothing(client: socket.socket) -> bool:
    """Nothing is there to be read, and the connection is open."""
    client.settimeout(0.2)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(CEILING_S)
    return False


def ended(client: socket.socket) -> bool:
    """The connection was broken."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways(echo: tuple[Proxy, list[bytes]]) -> None:
    """Without trouble the proxy is an ordinary link, for large pieces too."""
    proxy, _ = echo
    sent = bytes(range(256)) * 4096
    with connect(proxy) as client:
        threading.Thread(target=client.sendall, args=(sent,)).start()
        heard = b""
        while len(heard) < len(sent):
            heard += client.recv(65536)

    assert heard == sent


def test_cut_breaks_and_refuses_until_restored(echo: tuple[Proxy, list[bytes]]) -> None:
    """Open connections end, new ones end at once, and after restore() new ones work."""
    proxy, _ = echo
    with connect(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        assert proxy.connections == 1

        proxy.cut()
        assert ended(client)
    with connect(proxy) as refused:
        assert ended(refused)

    proxy.restore()
    with connect(proxy) as client:
        client.sendall(b"y")
        assert client.recv(1) == b"y"


def test_held_bytes_arrive_after_restore(echo: tuple[Proxy, list[bytes]]) -> None:
    """A partition that heals loses nothing, and the connection lives on."""
    proxy, got = echo
    with connect(proxy) as client:
        proxy.hold("answers")
        client.sendall(b"held")
        while not got:
            time.sleep(0.01)
        assert hears_nothing(client)

        proxy.restore()
        assert client.recv(4) == b"held"


def test_lost_answers_break_the_link_on_restore(echo: tuple[Proxy, list[bytes]]) -> None:
    """The server did it, the client was never told; a stream with a hole cannot go on."""
    proxy, got = echo
    with connect(proxy) as client:
        proxy.lose("answers")
        client.sendall(b"done but not told")
        while not got:
            time.sleep(0.01)
        assert hears_nothing(client)

        proxy.restore()
        assert ended(client)
    assert b"".join(got) == b"done but not told"


def test_delay_makes_both_ways_slow(echo: tuple[Proxy, list[bytes]]) -> None:
    """An answer takes at least the delay of both ways."""
    proxy, _ = echo
    with connect(proxy) as client:
        proxy.delay(0.05)
        started = time.monotonic()
        client.sendall(b"x")
        assert client.recv(1) == b"x"

        assert time.monotonic() - started >= 0.1


def test_clients_of_the_proxied_listener_are_told_the_proxy_only(broker: Broker, proxy: KafkaProxy) -> None:
    """Who enters by the proxy cannot get round it: the broker advertises the proxy to it."""
    through = AdminClient({"bootstrap.servers": proxy.address, "log_level": 0}).list_topics(timeout=60)
    direct = AdminClient({"bootstrap.servers": broker.address, "log_level": 0}).list_topics(timeout=60)

    assert [f"{b.host}:{b.port}" for b in through.brokers.values()] == [proxy.address]
    assert [f"{b.host}:{b.port}" for b in direct.brokers.values()] == [broker.address]


def test_a_cut_link_to_the_broker_heals(broker: Broker, proxy: KafkaProxy) -> None:
    """A client cut off from the broker gets no answer, others do, and after restore() it goes on."""
    client = AdminClient({"bootstrap.servers": proxy.address, "log_level": 0})
    client.list_topics(timeout=60)

    proxy.cut()
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    assert AdminClient({"bootstrap.servers": broker.address, "log_level": 0}).list_topics(timeout=60).brokers

    proxy.restore()
    assert client.list_topics(timeout=60).brokers


@pytest.fixture
def transaction(broker: Broker, proxy: KafkaProxy) -> Iterator[Producer]:
    """A transactional producer behind the proxy with one record in an open transaction."""
    producer = Producer(
        {"bootstrap.servers": proxy.address, "transactional.id": f"x-{uuid.uuid4().hex}", "log_level": 0}
    )
    topic = new_topic(broker.address)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"record")
    assert producer.flush(60) == 0
    yield producer
    producer.purge()


def test_a_lost_answer_to_commit_leaves_its_outcome_unknown(proxy: KafkaProxy, transaction: Producer) -> None:
    """The broker commits, the client is not told; when the link is back, the same call again says so."""
    proxy.lose_answers(Api.END_TXN)
    with pytest.raises(KafkaException) as unanswered:
        transaction.commit_transaction(1)
    error: KafkaError = unanswered.value.args[0]
    assert error.code() == KafkaError._TIMED_OUT
    assert error.retriable()
    assert proxy.requests_seen(Api.END_TXN) >= 1

    proxy.restore()
    transaction.commit_transaction(60)


@pytest.mark.parametrize(
    ("code", "fatal"),
    [(KafkaError.INVALID_TXN_STATE, True), (KafkaError.REQUEST_TIMED_OUT, False)],
)
def test_the_broker_can_be_made_to_answer_an_error(
    proxy: KafkaProxy, transaction: Producer, code: int, fatal: bool
) -> None:
    """An answer to commit that carries another error reaches the client as that error."""
    proxy.answer_with(Api.END_TXN, code)
    with pytest.raises(KafkaException) as answered:
        transaction.commit_transaction(60)
    error: KafkaError = answered.value.args[0]

    assert error.code() == code
    assert error.fatal() is fatal
    assert error.txn_requires_abort() is not fatal


def test_only_answers_with_a_fixed_place_for_the_error_can_be_altered() -> None:
    """Answers whose error lies deeper are refused instead of being garbled."""
    with KafkaProxy("127.0.0.1:1") as proxy, pytest.raises(ValueError, match="PRODUCE"):
        proxy.answer_with(Api.PRODUCE, 7)
