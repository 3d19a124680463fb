"""`fleetlog demo` from beginning to end: play, export, judge, report, and serve on where that was asked for."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from fleetlog.archive import new_archive, write_archive
from fleetlog.demo import report
from fleetlog.demo.children import listen_address
from fleetlog.demo.diary import DemoFault, Diary, Interrupted
from fleetlog.demo.files import IN_PARTS, SourceFile, standard_library
from fleetlog.demo.play import Play
from fleetlog.demo.referee import Verdict, judge
from fleetlog.demo.show import live, print_remark
from fleetlog.layers import Given
from fleetlog.output import Output
from fleetlog.problems import DONE, INTERRUPTED, Problem, wrong_usage
from fleetlog.settings import settings_of
from fleetlog.verb import program

EXPORT: Final = "events.jsonl"


def run_demo(out: Output, data: Path | None, *, serve: bool, files_max: int | None, listen: str | None) -> int:
    """The exit code: 1 where anything is wrong. Raises Problem."""
    files = standard_library(files_max)
    if len(files) <= IN_PARTS:
        raise Problem("the standard library of this Python has no .py files to work on: use another Python.")
    with _folder(data) as folder:
        drawn = out.terminal and not out.as_json and not out.quiet
        diary = Diary((lambda _: None) if drawn or out.quiet else print_remark)
        play = Play(files, folder, listen_address(listen), diary)
        with _interruptible(diary):
            try:
                with live(out, play, diary) if drawn else nullcontext():
                    play.run()
                    verdict = _judged(play, diary, files, folder)
                seconds = time.monotonic() - diary.began
                wrong = verdict.wrong()
                if not out.as_json and not out.quiet:
                    kept = folder / EXPORT if serve or data is not None else None
                    _show(out, verdict, seconds, report.next_steps(program(), play.url, files[0].task, kept, serve))
                if out.as_json:
                    out.json(report.summary(verdict, seconds))
                if wrong:
                    raise Problem("the demonstration went wrong: " + " ".join(wrong))
                if serve:
                    _serve_on(out, diary)
                return DONE
            except Interrupted:
                return INTERRUPTED
            except DemoFault as fault:
                raise Problem(f"the demonstration came to no end: {fault}.") from None
            finally:
                play.close()


def _judged(play: Play, diary: Diary, files: list[SourceFile], folder: Path) -> Verdict:
    """Exports the log and lets the referee read it."""
    events = _export(folder / "data", folder / EXPORT)
    diary.remark(f"{events:,} events exported; the referee reads them and the files")
    if play.killed is None:
        raise DemoFault("no robot was killed")
    return judge(folder / EXPORT, [file.path for file in files], play.killed)


def _export(data: Path, export: Path) -> int:
    """All events of the log, read beside the process that writes it."""
    from fleetlog.composition import open_reader
    from projections.audit import read_events

    log = open_reader(settings_of({"log.at": Given(f"embedded:{data}", "the demonstration")}))
    try:
        with new_archive(export) as file:
            return write_archive(read_events(log), file)
    finally:
        log.close()


def _show(out: Output, verdict: Verdict, seconds: float, steps: list[str]) -> None:
    report.show(out, verdict, seconds)
    if verdict.wrong():
        return
    out.text("Every result equals what hashlib says, every task was completed exactly once, and the log verifies.")
    out.text("\n".join(("", "See for yourself:", *(f"  {step}" for step in steps))))


def _serve_on(out: Output, diary: Diary) -> None:
    out.note("\nFleetlog and its robots go on serving; Ctrl-C ends them.")
    while True:
        diary.check()
        time.sleep(0.2)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    """A fresh folder; one that nobody asked for is removed afterwards."""
    if data is None:
        made = Path(tempfile.mkdtemp(prefix="fleetlog-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    if data.exists() and any(data.iterdir()):
        raise wrong_usage(f"{data} is not empty, and a demonstration needs a fresh folder: give another one.")
    data.mkdir(parents=True, exist_ok=True)
    yield data.resolve()


@contextmanager
def _interruptible(diary: Diary) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the play in good order; a second one ends it at once."""

    def handle(number: int, frame: Any) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        diary.end(Interrupted())

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
