"""How verbs end: one sentence and an exit code, whatever goes wrong; never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fleetlog import cli as entry
from fleetlog.asking import Asking, Refused, Unreachable
from fleetlog.cli import sentence
from fleetlog.verb import VERBS
from streams.port import LogLocked, LogUnavailable
from tests.fleetlog.conftest import PROGRAM, CommandLine, program
from tests.support.ending import with_us
from tests.support.ports import free_port


def sentence_of(err: str) -> str:
    """The one line that a failing verb says."""
    assert err.count("\n") == 1, err
    assert err.startswith("fleetlog: ")
    assert "Traceback" not in err
    return err.removeprefix("fleetlog: ").rstrip("\n")


# ---- wrong usage: 2 ----


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "no such command 'nope'; see `fleetlog --help`."),
        (["taks"], "see `fleetlog --help`."),
        (["pools", "show", "default"], "there is no verb `pools show`: say `fleetlog pool show`."),
        (["processor", "--data", "x"], "no such option: --data"),
        (["tasks", "--nope"], "no such option: --nope; see `fleetlog tasks --help`."),
        (["result"], "missing argument 'TASK'; see `fleetlog result --help`."),
        (["discard", "t1"], "missing option '--reason'; see `fleetlog discard --help`."),
        (["tasks", "--limit", "x"], "invalid value for '--limit'"),
        (["submit", "k", "--priority", "10"], "invalid value for '--priority'"),
        (["submit"], "what is to be done? Name the kind"),
        (["submit", "k", "--payload", '{"a": 1'], "--payload begins like JSON but is none"),
        (["submit", "k", "--payload", "@nowhere.json"], "nowhere.json cannot be read"),
        (["submit", "k", "--label", "line"], "--label 'line' is not NAME=VALUE."),
        (["submit", "k", "--command-id", "7"], "--command-id '7' is no UUID."),
        (["submit", "k", "--lease", "nan"], "--lease nan is no number to count with: write one like 1.5."),
        (["submit", "k", "--timeout", "inf"], "--timeout inf is no number to count with"),
        (["submit", "k", "--not-before", "99999999d"], "lies outside the years 1 to 9999"),
        (["submit", "k", "--lost-wait", "3"], "--lost-wait belongs to --on-lost wait."),
        (["submit", "--lines", "x", "--payload", "y"], "--lines has payloads and ids of its own"),
        (["cancel"], "which tasks? Give ids, - to read them, or --where"),
        (["cancel", "t1", "--where", "kind=x"], "give ids, --where or --token, not several of them."),
        (["change", "t1"], "what is to change?"),
        (["tasks", "--where", "state=DEAD pool=x"], "names pool x, and this looks in pool default: say --pool x."),
        (["cancel", "--where", "pool=x", "--pool", "y"], "names pool x, and this looks in pool y: say --pool x."),
        (["watch", "--where", "pool=x"], "say --pool x."),
        (["submit", "k", "--payload", "1e999"], "a number to be sent is none that JSON knows"),
        (["pause", "--target", "a", "--kind", "b"], "name one: tasks, --target or --kind"),
        (["pool", "set", "default"], "what is to be set?"),
        (["pool", "create", "x", "lease"], "'lease' is not NAME=VALUE"),
        (["tasks", "--gateway", "ftp://x"], "is no address of a gateway: write http://HOST:PORT."),
        (["tasks", "--columns", "id,bogus"], "--columns: there is no field bogus; there are id, kind, state, priority"),
        (["tasks", "--columns", "id,sate"], "--columns: there is no field sate; did you mean state?"),
        (["robots", "--columns", "offline"], "--columns: there is no field offline; did you mean online?"),
        (["events", "--columns", "wat"], "--columns: there is no field wat; did you mean what?"),
        (["stats", "--by", "robots", "--columns", "kind"], "--columns: there is no field kind; there are robot, slots"),
        (["tasks", "--token-file", "none"], "the token in none cannot be read"),
        (["audit", "at", "yesterday"], "is no instant"),
        (["robot", "--id", "r1", "--kind", "x"], "is not NAME='COMMAND'"),
        (["robot", "--id", "r 1", "--kind", "x=y"], "cannot be the id of a robot"),
        (["robot", "--id", "r1", "--kind", "x=y", "--capability", "mem>=8"], "'mem>=8' cannot be a capability"),
        (["processor"], "the embedded log belongs to one process"),
        (["up", "--data", "something"], "--data something is not a folder: name one that the log may use for itself."),
        (["up", "--set", "pool.window_s=abc"], "--set pool.window_s is 'abc': it must be a duration in seconds."),
        (["up", "--set", "gateway.sessions_max=abc"], "--set gateway.sessions_max is 'abc': write a whole number."),
        (["up", "--set", "gateway.x=1"], "there is no setting gateway.x"),
        (["log", "import", "-"], "an import reads its file twice"),
        (["demo", "--data", "."], "a demonstration needs a fresh folder"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)  # fmt: skip
def test_wrong_usage_is_one_sentence_and_2(cli: CommandLine, words: list[str], said: str) -> None:
    """What is wrong, and what to do; exit code 2."""
    Path("something").touch()
    done = cli(*words)

    assert said in sentence_of(done.err)
    assert (done.code, done.out) == (2, "")


# ---- nobody answers: 3 ----


def test_no_gateway_is_said_at_once(cli: CommandLine) -> None:
    """Nobody has ever answered there: no retry, exit code 3."""
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    done = cli("tasks", "--gateway", url)

    assert done.code == 3
    assert sentence_of(done.err).startswith(f"no gateway answers at {url} (connection refused): start one with")
    assert time.monotonic() - began < 20


def test_something_else_that_answers_is_named(cli: CommandLine) -> None:
    """A web server that is no Fleetlog."""
    with answering(lambda _: (200, {}, b"<html>")) as url:
        done = cli("tasks", "--gateway", url)

    assert done.code == 3
    assert "is no Fleetlog gateway" in sentence_of(done.err)


def test_a_gateway_in_the_settings_file_is_asked(cli: CommandLine) -> None:
    """Without --gateway a verb asks where the settings let the gateway listen."""
    port = free_port()
    Path("fleetlog.toml").write_text(f'[gateway]\nlisten = "0.0.0.0:{port}"\n')

    assert f"http://127.0.0.1:{port} " in sentence_of(cli("tasks").err)


# ---- asking again ----

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], Answer | None]) -> Iterator[str]:
    """A web server that answers so; None: it hangs up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Any request."""
            length = int(self.headers.get("Content-Length", 0))
            self.rfile.read(length)
            given = answer(self)
            if given is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, body = given
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def problem(reason: str, status: int, **more: Any) -> Answer:
    """A refusal as the gateway words it."""
    members = {"reason": reason, "status": status, "detail": f"it is {reason}", "retryable": status in (429, 503, 504)}
    return status, {}, json.dumps(members | more).encode()


def test_what_is_retryable_is_asked_again_under_the_same_id() -> None:
    """Refused for now, cut off, answered: three requests, one command id."""
    ids: list[str | None] = []

    def answer(request: BaseHTTPRequestHandler) -> Answer | None:
        ids.append(request.headers["Idempotency-Key"])
        return [problem("gateway_busy", 429, retry_after_s=0.05), None, (201, {}, b'{"id":"t1"}')][len(ids) - 1]

    with answering(answer) as url:
        assert Asking(url).post("/v1/pools/p/tasks", {"kind": "k"}) == {"id": "t1"}

    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert ids[0]


def test_who_waits_for_long_is_told_once_why() -> None:
    """At the second refusal, not at the first, which passes in a moment; then no more."""
    said: list[str] = []
    answers = iter([problem("not_ready", 503)] * 4 + [(201, {}, b'{"id":"t1"}')])
    with answering(lambda request: next(answers)) as url:
        assert Asking(url, waiting=said.append).post("/v1/pools/p/tasks", {"kind": "k"}) == {"id": "t1"}
    [text] = said
    assert "it is not_ready" in text
    assert "Asking again for up to" in text


def test_what_is_not_retryable_is_said_at_once() -> None:
    """With the reason word, the remedy, and nothing asked again."""
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return problem("wrong_state", 409, allowed=["redrive", "discard"])

    with answering(answer) as url, pytest.raises(Refused) as refused:
        Asking(url).post("/v1/pools/p/tasks/t/cancel")

    assert len(asked) == 1
    assert str(refused.value) == "it is wrong_state, which allows redrive, discard. [wrong_state]"
    assert refused.value.exit_code == 1


@pytest.mark.parametrize(
    ("reason", "text", "said"),
    [
        ("wrong_state", "it is DEAD, which allows redrive, discard", "it is DEAD, which allows redrive, discard."),
        ("id_conflict", "task t exists with other content", "task t exists with other content: choose a new id."),
        (
            "unauthenticated",
            "a token is needed",
            "a token is needed: name the file that holds your token with --token-file FILE.",
        ),
        ("not_frozen", "pool p is not frozen", "pool p is not frozen: there is nothing to unfreeze."),
    ],
)  # fmt: skip
def test_a_refusal_says_nothing_twice(reason: str, text: str, said: str) -> None:
    """The remedy is what the text does not say yet, in terms of the command line."""
    members = {"reason": reason, "detail": text, "allowed": ["redrive", "discard"] if reason == "wrong_state" else None}

    assert str(Refused(409, members)) == f"{said} [{reason}]"


def test_when_the_time_is_over_the_command_id_is_told() -> None:
    """No answer: exit code 3, and how to ask again safely."""
    with answering(lambda _: problem("no_answer", 504, command_id="abc")) as url, pytest.raises(Refused) as refused:
        Asking(url, timeout_s=0.5).post("/v1/pools/p/tasks", {})

    assert refused.value.exit_code == 3
    assert "--command-id abc" in str(refused.value)


def test_lists_are_read_page_by_page_up_to_the_limit() -> None:
    """A page may be short or empty before the last; no more than asked for."""
    pages = {"": (["a", "b"], "1"), "1": ([], "2"), "2": (["c", "d"], None)}

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        cursor = request.path.partition("cursor=")[2]
        items, following = pages[cursor]
        return 200, {}, json.dumps({"items": [{"id": one} for one in items], "next": following}).encode()

    with answering(answer) as url:
        asking = Asking(url)
        assert [item["id"] for item in asking.pages("/v1/tasks", None)] == ["a", "b", "c", "d"]
        assert [item["id"] for item in asking.pages("/v1/tasks", 3)] == ["a", "b", "c"]


def test_a_stream_gives_events_and_ends_with_its_connection() -> None:
    """Comments are silence, `dropped` is no event, data may have several lines."""
    body = b': hello\n\nid: p1\nevent: A.v1\ndata: {"a":\ndata: 1}\n\nevent: dropped\ndata: {}\n\n'

    with answering(lambda _: (200, {"Content-Type": "text/event-stream"}, body)) as url:
        told = [one for one in Asking(url).stream() if one is not None]

    assert [(one.type, one.position, one.data) for one in told] == [("A.v1", "p1", {"a": 1})]


def test_a_stream_that_cannot_begin_says_why() -> None:
    """Refused, or nobody there."""
    with answering(lambda _: problem("bad_filter", 400)) as url, pytest.raises(Refused, match="bad_filter"):
        next(Asking(url).stream(where="x"))
    with pytest.raises(Unreachable):
        next(Asking(f"http://127.0.0.1:{free_port()}").stream())


# ---- faults ----


def test_faults_of_the_log_are_their_own_sentences() -> None:
    """No answer is 3, anything else 1."""
    assert sentence(LogUnavailable("Kafka does not answer: start it.")) == ("Kafka does not answer: start it.", 3)
    assert sentence(LogLocked("The log is in use: stop that.")) == ("The log is in use: stop that.", 1)
    assert sentence(ModuleNotFoundError("no", name="confluent_kafka"))[0].endswith("pip install 'fleetlog[kafka]'.")


def test_a_fault_of_our_own_leaves_a_file_and_no_traceback(monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    """One sentence that names the file with everything that a report needs."""

    def broken(_: str | None) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(entry, "build", broken)
    done = cli("tasks")
    said = sentence_of(done.err)
    report = Path(said.partition("report it with ")[2].rstrip("."))

    assert done.code == 1
    assert said.startswith("a fault of Fleetlog (ZeroDivisionError: oh): report it with ")
    assert "Traceback" in report.read_text()
    report.unlink()


def test_a_pipe_that_closes_is_no_fault() -> None:
    """`fleetlog settings | head -1` ends quietly."""
    command = f"'{PROGRAM}' settings | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("log.at")


# ---- processes ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_up_serves_until_it_is_told_to_end(tmp_path: Path, number: int, code: int) -> None:
    """It says where it serves, and ends in good order: 0 after SIGTERM, 130 after Ctrl-C."""
    words = ["up", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--json", "--set", "disk.min_free_bytes=0"]
    up = subprocess.Popen(with_us([PROGRAM, *words]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout is not None
    told = json.loads(up.stdout.readline())

    assert told == {"ready": "up", "log": f"embedded:{tmp_path / 'd'}", "gateway": told["gateway"]}
    up.send_signal(number)
    _, err = up.communicate(timeout=60)
    assert up.returncode == code
    assert "Traceback" not in err


def test_a_second_up_is_refused(tmp_path: Path) -> None:
    """On the same folder, or at the same address: said with what to do."""
    words = ["up", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--json", "--set", "disk.min_free_bytes=0"]
    up = subprocess.Popen(with_us([PROGRAM, *words]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert up.stdout is not None
    told = json.loads(up.stdout.readline())

    assert Asking(told["gateway"]).post("/v1/pools/default/tasks", {"kind": "k", "id": "t1"})["state"] == "WAITING"
    locked = program("up", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0")
    assert locked.returncode == 1
    assert f"is in use by process {up.pid}: stop that first, or use another folder." in sentence_of(locked.stderr)
    taken = program("up", "--data", str(tmp_path / "e"), "--listen", told["gateway"].removeprefix("http://"))
    assert taken.returncode == 2
    assert "stop what listens there, or choose another port." in taken.stderr.splitlines()[-1]
    up.terminate()
    assert up.wait(60) == 0


def test_interrupted_is_130() -> None:
    """Ctrl-C while a verb waits."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        waiting = subprocess.Popen(with_us([PROGRAM, "tasks", "--gateway", url]), stderr=subprocess.PIPE, text=True)
        connection, _ = silent.accept()
        with connection:
            connection.recv(10)
            waiting.send_signal(signal.SIGINT)
            _, err = waiting.communicate(timeout=60)

    assert (waiting.returncode, err) == (130, "")


# ---- the program ----


def test_one_verb_is_built_alone() -> None:
    """A call builds the verb that it is about; help and unknown words see all of them."""
    from typer.main import get_command

    alone: Any = get_command(entry.build("tasks"))
    whole: Any = get_command(entry.build("--help"))

    assert set(getattr(alone, "commands", {"tasks": 1})) <= {"tasks"}
    assert {verb.words[0] for verb in VERBS} == set(whole.commands)


def test_each_help_says_what_every_word_of_it_means(cli: CommandLine) -> None:
    """No argument or option without an explanation, no name of a Python type, no bracket within a bracket."""
    from typer.main import get_command

    for verb in VERBS:
        command: Any = get_command(entry.build("--help"))
        for word in verb.words:
            command = command.commands[word]
        assert [parameter.name for parameter in command.params if not parameter.help] == [], verb.words
    for words in (["cancel"], ["pool", "set"], ["submit"], ["wait"], ["pool"], []):
        told = cli(*words, "--help").out
        assert not re.search(r"<\w|\[\[|list\[|\{", told), words
    assert "Usage: fleetlog pool show [OPTIONS] [POOL]" in cli("pool", "show", "--help").out
    assert "Usage: fleetlog cancel [OPTIONS] [TASK]..." in cli("cancel", "--help").out
    assert "Usage: fleetlog wait [OPTIONS] TASK..." in cli("wait", "--help").out
    assert "--data" not in cli("gateway", "--help").out


def test_help_is_there_at_once() -> None:
    """`fleetlog --help` loads neither server nor SDK nor event models: what makes a start slow stays away."""
    code = (
        "import sys; from fleetlog.cli import run; run(['--help']); run(['tasks', '--help']);"
        "slow = {'commands.events', 'fastapi', 'uvicorn', 'httpx', 'rocksdict', 'confluent_kafka', 'websockets'};"
        "sys.stderr.write(','.join(sorted(slow & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stderr) == (0, "")


def test_completion_knows_the_verbs() -> None:
    """bash, zsh and fish ask the program itself."""
    env = os.environ | {"_FLEETLOG_COMPLETE": "complete_bash", "COMP_WORDS": "fleetlog dr", "COMP_CWORD": "1"}
    done = subprocess.run([PROGRAM], env=env, capture_output=True, text=True, timeout=120)

    assert done.stdout.split() == ["drain"]


def test_ctrl_c_while_it_is_loaded_ends_it_without_a_word() -> None:
    """Python takes a moment to load everything; whoever changes their mind in it sees no traceback."""
    pressed_at_import = """
import builtins, os, signal
load = builtins.__import__
def press(name, *more, **named):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *more, **named)
builtins.__import__ = press
from fleetlog.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", pressed_at_import], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
