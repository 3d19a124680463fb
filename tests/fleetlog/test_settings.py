"""Settings: flags before variables before the file; unknown names and impossible combinations are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetlog.layers import SECTIONS, Given, SettingsProblem, read_layers
from fleetlog.settings import NAMES, Settings, load_settings, problems_of, settings_of, shown
from tests.fleetlog.conftest import CommandLine


def load(environ: dict[str, str] | None = None, flags: dict[str, str] | None = None, role: str = "reader") -> Settings:
    """Settings of these variables and flags, and of fleetlog.toml in the current folder."""
    given = {name: Given(value, f"--{name}") for name, value in (flags or {}).items()}
    return load_settings(given, environ=environ or {}, role=role)  # type: ignore[arg-type]


def refusal(environ: dict[str, str] | None = None, flags: dict[str, str] | None = None, role: str = "reader") -> str:
    """The sentence that refuses."""
    with pytest.raises(SettingsProblem) as problem:
        load(environ, flags, role)
    return str(problem.value)


def test_flags_come_before_variables_before_the_file() -> None:
    """The same setting in all three places: the flag counts, then the variable, then the file, then the default."""
    Path("fleetlog.toml").write_text('[gateway]\nlisten = "127.0.0.1:1"\nsessions_max = 7\n')

    assert load().gateway.listen == "127.0.0.1:1"
    assert load({"FLEETLOG_GATEWAY_LISTEN": "127.0.0.1:2"}).gateway.listen == "127.0.0.1:2"
    both = load({"FLEETLOG_GATEWAY_LISTEN": "127.0.0.1:2"}, {"gateway.listen": "127.0.0.1:3"})
    assert both.gateway.listen == "127.0.0.1:3"
    assert both.gateway.sessions_max == 7
    assert both.gateway.unanswered_max == 10_000


def test_variables_become_numbers_flags_and_lists() -> None:
    """A variable is text; what the setting is decides how it is read."""
    settings = load(
        {
            "FLEETLOG_LOG_SYNC": "false",
            "FLEETLOG_LOG_PARTITIONS": "4",
            "FLEETLOG_PROJECTOR_ENDED_DAYS": "0.5",
            "FLEETLOG_GATEWAY_ORIGINS": "https://a.example,https://b.example",
            "FLEETLOG_LOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "FLEETLOG_POOL_WINDOW_S": "1",
            "FLEETLOG_POOL_LEASE_S": "3.5",
        }
    )

    assert (settings.log.sync, settings.log.partitions, settings.projector.ended_days) == (False, 4, 0.5)
    assert settings.gateway.origins == ["https://a.example", "https://b.example"]
    assert settings.log.kafka == {"security.protocol": "SASL_SSL"}
    assert settings.pool_defaults() == {"window_ms": 1000, "lease_ms": 3500}


def test_names_of_librdkafka_may_be_quoted_or_nested() -> None:
    """`"linger.ms" = 5` and `[log.kafka.sasl] password = ...` are both librdkafka's names."""
    Path("fleetlog.toml").write_text('[log.kafka]\n"linger.ms" = 5\n[log.kafka.sasl]\npassword = "x"\n')

    assert load().log.kafka == {"linger.ms": "5", "sasl.password": "x"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"FLEETLOG_GATEWAY_LISTN": "x"}, "there is no setting gateway.listn; did you mean gateway.listen?"),
        (
            {"FLEETLOG_GATWAY_LISTEN": "x"},
            "FLEETLOG_GATWAY_LISTEN is no setting of Fleetlog (did you mean FLEETLOG_GATEWAY_",
        ),
        ({"FLEETLOG_LOG_PARTITIONS": "0"}, "FLEETLOG_LOG_PARTITIONS: log.partitions is '0': write 1 or more"),
        ({"FLEETLOG_LOG_SYNC": "perhaps"}, "log.sync is 'perhaps'"),
        ({"FLEETLOG_LOG_AT": "here"}, "log.at is 'here': write embedded:FOLDER or kafka:HOST:PORT"),
        ({"FLEETLOG_LOG_AT": "kafka:broker"}, "log.at names the broker 'broker': write HOST:PORT"),
        ({"FLEETLOG_LOG_REPLICATION": "3"}, "the embedded log has one copy"),
    ],
)
def test_what_is_unknown_or_wrong_is_named(environ: dict[str, str], said: str) -> None:
    """The sentence names where the value stands, and what to write instead."""
    assert said in refusal(environ)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[gatewy]\nlisten = 'x'\n", "there is no section gatewy; did you mean gateway?"),
        (
            "[gateway]\nlisten_on = 'x'\n",
            "fleetlog.toml: there is no setting gateway.listen_on; did you mean gateway.listen?",
        ),
        ("[gateway]\nlisten = 8780\n", "fleetlog.toml: gateway.listen is 8780: write a text in quotes"),
        ("gateway = 1\n", "there is no section gateway"),
        ("[gateway\n", "fleetlog.toml is not TOML"),
    ],
)
def test_a_wrong_file_is_refused(content: str, said: str) -> None:
    """Unknown sections and names, wrong kinds, and what is no TOML."""
    Path("fleetlog.toml").write_text(content)

    assert said in refusal()


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    """Only fleetlog.toml may be absent."""
    with pytest.raises(SettingsProblem, match=r"nowhere.toml cannot be read"):
        load_settings(config=tmp_path / "nowhere.toml", environ={})


def test_impossible_combinations_are_refused_at_start(tmp_path: Path) -> None:
    """Each with the sentence that tells what to change."""
    readable = tmp_path / "tokens.toml"
    readable.write_text("")
    readable.chmod(0o644)

    assert "the embedded log belongs to one process: say `fleetlog up`" in refusal(role="processor")
    assert "the embedded log belongs to one process" in refusal(role="gateway")
    assert "set gateway.tokens" in refusal({"FLEETLOG_GATEWAY_LISTEN": "0.0.0.0:8780"}, role="up")
    assert "can be read by others: run `chmod 600" in refusal({"FLEETLOG_GATEWAY_TOKENS": str(readable)}, role="up")
    assert "an owner may need 10 s to commit" in refusal({"FLEETLOG_GATEWAY_ANSWER_TIMEOUT_S": "5"}, role="up")
    assert "two payloads and their envelope" in refusal({"FLEETLOG_GATEWAY_PAYLOAD_MAX_BYTES": "800000"}, role="up")
    assert "[pool]: window_s must be at least 1" in refusal({"FLEETLOG_POOL_WINDOW_S": "0.5"}, role="up")
    said = refusal({"FLEETLOG_POOL_LEASE_S": "4"}, role="up")
    assert "FLEETLOG_POOL_LEASE_S: lease_s must be at least three windows" in said
    said = refusal({"FLEETLOG_POOL_LEASE_S": "soon"}, role="up")
    assert "FLEETLOG_POOL_LEASE_S: pool.lease_s is 'soon': it must be a duration in seconds." in said
    assert "there is no pool setting windw_s" in refusal({"FLEETLOG_POOL_WINDW_S": "4"}, role="up")
    assert load({"FLEETLOG_LOG_AT": "kafka:127.0.0.1:9092"}, role="processor").bootstrap == "127.0.0.1:9092"


def test_what_a_robot_gives_its_commands_is_no_setting() -> None:
    """A shell robot's command may call Fleetlog itself."""
    given = ("TASK", "ATTEMPT", "KIND", "IDEMPOTENCY_KEY", "CHECKPOINT", "POOL", "GATEWAY", "TOKEN_FILE", "CONFIG")

    assert load({f"FLEETLOG_{name}": "x" for name in given[:-1]}) == Settings()


def test_defaults_have_no_problems() -> None:
    """`fleetlog up` starts with nothing given."""
    assert problems_of(Settings(), "up") == []


def test_settings_are_printed_with_their_source(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting, its value, and the flag, variable or file that it came from; secrets are hidden."""
    Path("fleetlog.toml").write_text('[log.kafka]\n"sasl.password" = "s3cret"\n[disk]\nmin_free_bytes = 5\n')
    monkeypatch.setenv("FLEETLOG_LOGS_LEVEL", "debug")

    done = cli("settings", "--set", "gateway.sessions_max=9", "--json")
    rows = {row["name"]: row for row in map(json.loads, done.lines)}

    assert done.code == 0
    assert set(NAMES) <= set(rows)
    assert rows["gateway.sessions_max"] == {
        "name": "gateway.sessions_max",
        "value": 9,
        "source": "--set gateway.sessions_max",
    }
    assert rows["logs.level"]["source"] == "FLEETLOG_LOGS_LEVEL"
    assert rows["disk.min_free_bytes"]["source"] == "fleetlog.toml"
    assert rows["log.prefix"] == {"name": "log.prefix", "value": "fleetlog", "source": "default"}
    assert rows["log.kafka.sasl.password"]["value"] == "(hidden)"
    assert "s3cret" not in done.out


def test_two_logs_cannot_be_meant(cli: CommandLine) -> None:
    """--data and --kafka exclude each other."""
    done = cli("settings", "--data", "d", "--kafka", "127.0.0.1:9092")

    assert (done.code, done.err) == (2, "fleetlog: --data and --kafka name two logs: give one of them.\n")


def test_every_section_can_be_said() -> None:
    """What the model knows, the file, the environment and flags know, and nothing else."""
    assert set(SECTIONS) == set(Settings.model_fields)


def test_the_alarm_command_is_not_shown() -> None:
    """Addresses of web hooks are secrets; that it is set, and where, may be seen."""
    layers = read_layers({"alarm.command": Given("curl https://hooks.example/secret", "--set")}, file=None, environ={})
    rows = {row[0]: row[1:] for row in shown(settings_of(layers), layers)}
    assert rows["alarm.command"] == ("(hidden)", "--set")
