"""Log: make, check, look at, export, fill and back up the log; its format, and the clock it goes by."""

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fleetlog.choosing import NeededReason
from fleetlog.output import duration
from fleetlog.problems import Problem, wrong_usage
from fleetlog.telling import kind_of, subject, tell
from fleetlog.verb import LOG, Call, Uses, verb
from fleetlog.when import rfc3339

if TYPE_CHECKING:
    from streams.port import LogReader, Record

VALUE_SHOWN: Final = 160
BACKUP_NAME: Final = "{log}-{at:%Y%m%dT%H%M%SZ}.jsonl.gz"


class TopicName(StrEnum):
    """The streams of a log."""

    events = "events"
    commands = "commands"
    reports = "reports"
    outcomes = "outcomes"


@verb(
    "log init",
    LOG,
    Uses.LOG | Uses.PROCESS,
    ("fleetlog log init --data hall-b", "fleetlog log init --kafka 127.0.0.1:9092"),
)
def log_init(
    call: Call,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Fixed from then on; default: 12.")
    ] = None,
) -> None:
    """Make a log: the folder of an embedded one, or the topics on Kafka. On Kafka again it changes nothing."""
    from fleetlog.layers import Given
    from fleetlog.log_work import make_log

    more = {} if partitions is None else {"log.partitions": Given(str(partitions), "--partitions")}
    settings = call.settings(more=more)
    log_id = make_log(settings)
    call.out.say(
        {"log_id": log_id, "log": settings.log.at, "partitions": settings.log.partitions},
        f"log {log_id} at {settings.log.at} with {settings.log.partitions} partitions",
    )


@verb("log check", LOG, Uses.LOG, ("fleetlog log check", "fleetlog log check --kafka 127.0.0.1:9092"))
def log_check(call: Call) -> None:
    """Hold the log against what Fleetlog needs; every difference in a sentence with what to do."""
    from fleetlog.log_work import check

    settings = call.settings()
    found = check(settings)
    if call.out.as_json:
        call.out.json(
            {"log": settings.log.at, "log_id": found.log_id, "format": found.format, "partitions": found.partitions,
             "ends": found.ends, "problems": found.problems}
        )  # fmt: skip
    elif not found.problems and not call.out.quiet:
        call.out.text(
            f"log {found.log_id} at {settings.log.at} is as it should be: "
            f"format {found.format}, {found.partitions} partitions"
        )
    if found.problems:
        raise Problem(" ".join(found.problems))


# ---- look at ----


@verb(
    "log tail", LOG, Uses.LOG | Uses.ANY_POOL, ("fleetlog log tail", "fleetlog log tail --topic commands -n 3 --json")
)
def log_tail(
    call: Call,
    topic: Annotated[TopicName, typer.Option("--topic", help="Which stream of the log.")] = TopicName.events,
    count: Annotated[
        int, typer.Option("-n", "--lines", min=0, metavar="N", help="So many of the newest records.")
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Show the newest records of the log itself, of all pools or of one."""
    from fleetlog import log_work
    from streams.port import Topic

    log = call.reader()
    partitions = log_work.partitions_of(log, call.pool_given)
    stream = Topic(topic.value)
    _show_records(call, log_work.newest(log, stream, partitions, count, call.pool_given))
    if follow:
        _show_records(call, log_work.follow(log, stream, partitions, call.pool_given))


def _show_records(call: Call, records: Iterable["Record"]) -> None:
    for record in records:
        value = _value(record.value)
        if call.out.as_json:
            call.out.json(
                {"topic": record.topic.value, "partition": record.partition, "offset": record.offset,
                 "pool": record.key, "appended_at": rfc3339(record.appended_at), "value": value}
            )  # fmt: skip
        else:
            place = f"{record.partition}:{record.offset}"
            call.out.text("\t".join((rfc3339(record.appended_at), place, record.key, *_words(record, value))))


def _value(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")


def _words(record: "Record", value: Any) -> tuple[str, str]:
    if record.topic == "events" and isinstance(value, dict):
        return kind_of(value), f"{subject(value)}: {tell(value)}"
    kind = value.get("type") or value.get("what") or "outcome" if isinstance(value, dict) else "?"
    return str(kind), record.value.decode("utf-8", "replace")[:VALUE_SHOWN]


@verb(
    "log export",
    LOG,
    Uses.LOG | Uses.ANY_POOL,
    ("fleetlog log export events.jsonl", "fleetlog log export --pool default events.jsonl.gz"),
)
def log_export(
    call: Call,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A name that ends in .gz is compressed; - is standard output.")
    ] = Path("-"),
) -> None:
    """Write events as they are stored, one JSON object a line, with their hashes: the file verifies by itself."""
    from fleetlog.archive import new_archive, write_archive

    log = call.reader()
    records = _events(log, call.pool_given)
    if str(file) == "-":
        write_archive(records, sys.stdout.buffer)
        return
    with new_archive(file) as target, call.out.progress("export", _events_end(log)) as told:
        count = write_archive(records, target, told)
    call.out.say({"file": str(file), "events": count}, f"{count} events in {file}")


def _events(log: "LogReader", pool: str | None) -> Iterator["Record"]:
    from fleetlog.log_work import partitions_of
    from projections.audit import read_events

    for record in read_events(log, partitions_of(log, pool)):
        if pool is None or record.key == pool:
            yield record


def _events_end(log: "LogReader") -> int:
    """About how many events there are, for a progress bar."""
    from streams.port import Topic

    return sum(log.end(Topic.EVENTS, partition) for partition in range(log.partitions))


# ---- fill ----


@verb(
    "log import",
    LOG,
    Uses.LOG,
    ("fleetlog log import events.jsonl --data restored", "fleetlog log import events.jsonl.gz --data restored-too"),
)
def log_import(
    call: Call, file: Annotated[Path, typer.Argument(metavar="FILE", help="What `log export` or `log backup` wrote.")]
) -> None:
    """Fill an empty log from a file of exported events, with the same hashes.

    The file is verified first. Where it was interrupted, the same import goes on.
    """
    from fleetlog import log_work
    from fleetlog.archive import read_archive
    from projections.audit import verify

    if str(file) == "-":
        raise wrong_usage("an import reads its file twice, to verify it first: write it to a file.")
    report = verify(read_archive(file))
    if not report.verified:
        raise Problem(f"{file} does not verify ({report.problems[0].text}): use another copy.")
    target = log_work.open_target(call.settings())
    call.parts.callback(target.close)
    with call.out.progress("import", report.events) as told:
        filled = log_work.fill(target, read_archive(file), told)
    _say_filled(call, filled.written, filled.passed_over, target.log_id)


@verb(
    "log copy",
    LOG,
    Uses.LOG,
    ("fleetlog log copy embedded:copied", "fleetlog log copy kafka:127.0.0.1:9092"),
)
def log_copy(
    call: Call,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="embedded:FOLDER or kafka:HOST:PORT,...")],
) -> None:
    """Copy all events into another log, with the same hashes; called again, it copies what came since.

    The source may be in use; the target must not be.
    """
    from fleetlog import log_work

    source = call.reader()
    other = log_work.open_target(log_work.at_place(call.settings(), target))
    call.parts.callback(other.close)
    with call.out.progress("copy", _events_end(source)) as told:
        filled = log_work.fill(other, _events(source, None), told)
    _say_filled(call, filled.written, filled.passed_over, other.log_id)


def _say_filled(call: Call, written: int, passed_over: int, log_id: str) -> None:
    there = f", {passed_over} were there already" if passed_over else ""
    call.out.say({"log_id": log_id, "written": written, "passed_over": passed_over}, f"{written} events written{there}")


@verb("log backup", LOG, Uses.LOG, ("fleetlog log backup backups", "fleetlog log backup backups --keep 7"))
def log_backup(
    call: Call,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to: a new folder, or that of an earlier backup.")
    ],
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, metavar="N", help="Remove older backups of this log, but N.")
    ] = None,
) -> None:
    """Write all events into a new file, while everything runs, and verify what was written.

    `fleetlog log import` makes a log of it again; tables and snapshots are built anew from the events.
    """
    from fleetlog.archive import new_archive, read_archive, write_archive
    from projections.audit import verify

    log = call.reader()
    folder.mkdir(parents=True, exist_ok=True)
    name = BACKUP_NAME.format(log=log.log_id[:8], at=datetime.now(UTC))
    file = folder / name
    with new_archive(file) as target, call.out.progress("backup", _events_end(log)) as told:
        count = write_archive(_events(log, None), target, told)
    report = verify(read_archive(file))
    if not report.verified or report.events != count:
        said = report.problems[0].text if report.problems else f"{report.events} of {count} events"
        raise Problem(f"{file} does not verify ({said}): see `fleetlog audit verify`, keep older backups.")
    removed = _remove_older(folder, log.log_id[:8], keep)
    call.out.say(
        {"file": str(file), "events": count, "bytes": file.stat().st_size, "removed": removed},
        f"{count} events in {file}, verified" + (f"; removed {len(removed)} older" if removed else ""),
    )


def _remove_older(folder: Path, log: str, keep: int | None) -> list[str]:
    if keep is None:
        return []
    older = sorted(folder.glob(f"{log}-*.jsonl.gz"))[:-keep]
    for file in older:
        file.unlink()
    return [str(file) for file in older]


# ---- the format ----


@verb(
    "log raise-format",
    LOG,
    Uses.GATEWAY,
    ("fleetlog log raise-format", "fleetlog log raise-format --to 1 --yes --json"),
)
def log_raise_format(
    call: Call,
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="Default: the newest that the gateway knows.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let new kinds of records be written, once every process is new enough. It cannot be taken back.

    Until then any release can be rolled back; afterwards software that does not know the format stops with a sentence.
    `--to` with the present number raises pools that were left behind.
    """
    path, asked = "/v1/log/raise-format", {} if to is None else {"to_format": to}
    found = call.gateway.post(path, asked | {"dry_run": True})
    before, after = found["from_format"], found["to_format"]
    if before == after and to is None:
        call.out.say(found, f"log {found['log_id']} has format {before}, the newest that its gateway knows")
        return
    if not yes and not _agreed(f"Raise log {found['log_id']} from format {before} to {after}, for good?"):
        raise Problem("nothing was done.")
    done = call.gateway.post(path, asked | {"to_format": after})
    call.out.say(done, f"log {done['log_id']} and its pools are written in format {after}")


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise wrong_usage("nobody can answer here: say --yes to raise the format.")
    return typer.confirm(question, err=True)


# ---- the clock ----


@verb("clock show", LOG, Uses.LOG, ("fleetlog clock show", "fleetlog clock show --json"))
def clock_show(call: Call) -> None:
    """Show how the log's time stands to the clock of the machine that keeps it, by the newest event of each pool.

    A pool whose time differs by more than `processor.clock_step_s` goes on at the right rate and does not follow the
    clock until `fleetlog clock accept`.
    """
    from fleetlog import log_work
    from streams.port import Topic

    log = call.reader()
    step_s = call.settings().processor.clock_step_s
    rows = []
    for partition in range(log.partitions):
        for record in log_work.newest(log, Topic.EVENTS, [partition], 1):
            event = json.loads(record.value)
            ahead_s = (event["occurred_at"] - record.appended_at) / 1000
            rows.append(
                {"partition": partition, "pool": record.key, "at": rfc3339(event["occurred_at"]),
                 "appended_at": rfc3339(record.appended_at), "ahead_s": ahead_s, "trusted": abs(ahead_s) <= step_s}
            )  # fmt: skip
    if call.out.terminal and not call.out.as_json:
        for row in rows:
            way = "ahead of" if row["ahead_s"] > 0 else "behind"
            trust = "trusted" if row["trusted"] else "not trusted: see `fleetlog clock accept --help`"
            call.out.text(f"partition {row['partition']}: {duration(abs(row['ahead_s']))} {way} the clock, {trust}")
        return
    call.out.rows(rows, ("partition", "pool", "at", "ahead_s", "trusted"))


@verb(
    "clock accept",
    LOG,
    Uses.GATEWAY,
    (
        "fleetlog clock accept --reason 'time service was off'",
        "fleetlog clock accept --reason 'moved to UTC' --json",
    ),
)
def clock_accept(call: Call, reason: NeededReason) -> None:
    """Follow a step of the wall clock that is too large to be followed by itself.

    Leases and deadlines do not end by the step: windows count anew after it.
    """
    answer = call.gateway.post("/v1/clock/accept", {"reason": reason})
    partitions = [str(one["partition"]) for one in answer["partitions"]]
    call.out.say(answer, f"the clock is followed again in partitions {', '.join(partitions)}")
