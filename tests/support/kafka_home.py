"""Where the genuine Kafka comes from: its jars by Maven, a Java to run them, or Docker instead of both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
POM = PROJECT / "tests" / "kafka" / "pom.xml"
OLDEST_JAVA = 17
DEBIAN_PACKAGES = ("default-jre-headless", "maven")
WHAT_TO_INSTALL = (
    f"The tests run a genuine Apache Kafka: install a Java runtime {OLDEST_JAVA} or newer and Maven "
    f"(Debian: apt-get install {' '.join(DEBIAN_PACKAGES)}), or start Docker."
)


class CannotRunKafka(Exception):
    """Kafka cannot be had on this machine; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class LocalJava:
    """Kafka's classes run by the Java of this machine."""

    java: str
    jars: Path

    def command(self, *words: str, **_: object) -> list[str]:
        """The command that runs `java WORDS` with Kafka's classes."""
        return [self.java, "-cp", f"{self.jars}/*", *words]


@dataclass(frozen=True, slots=True)
class InDocker:
    """The same classes from the official image, on the network of this machine."""

    docker: str
    image: str

    def command(self, *words: str, folder: Path, name: str) -> list[str]:
        """The command that runs `java WORDS` with Kafka's classes in a container that sees `folder` only."""
        return [
            self.docker, "run", "--rm", "--network", "host", "--name", name,
            "--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{folder}:{folder}",
            "--entrypoint", "java", self.image, "-cp", "/opt/kafka/libs/*", *words,
        ]  # fmt: skip


Runtime = LocalJava | InDocker


def kafka_version() -> str:
    """The version of Kafka that the tests run; tests/kafka/pom.xml decides it."""
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    for dependency in xml.parse(POM).getroot().iterfind(".//m:dependency", names):
        if dependency.findtext("m:artifactId", namespaces=names) == "kafka_2.13":
            return dependency.findtext("m:version", default="", namespaces=names)
    raise CannotRunKafka(f"{POM.relative_to(PROJECT)} no longer names kafka_2.13: put the dependency back.")


def kafka_home() -> Path:
    """The folder whose `libs/` holds the jars: FLEETLOG_KAFKA_HOME (an unpacked Kafka will do) or the cache."""
    named = os.environ.get("FLEETLOG_KAFKA_HOME")
    return Path(named) if named else PROJECT / ".cache" / "kafka" / kafka_version()


def find_java() -> str | None:
    """A Java that is new enough, from JAVA_HOME or the path."""
    java_home = os.environ.get("JAVA_HOME")
    named = shutil.which(str(Path(java_home) / "bin" / "java")) if java_home else None
    for java in filter(None, (named, shutil.which("java"))):
        told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
        version = re.search(r'version "(\d+)', told)
        if version and int(version[1]) >= OLDEST_JAVA:
            return java
    return None


def find_docker() -> str | None:
    """The Docker client, if an engine answers it."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "version"], capture_output=True).returncode != 0:
        return None
    return docker


def runtime() -> Runtime:
    """How Kafka runs here: Java and Maven, else those installed, else Docker, else CannotRunKafka.

    Jars already in the cache need no Maven.
    """
    jars = kafka_home() / "libs"
    if not _ready(jars):
        if (not find_java() or not shutil.which("mvn")) and may_install():
            install()
        if not find_java() or not shutil.which("mvn"):
            return _docker_or_sentence()
        fetch_jars(jars)
    java = find_java()
    if java is None and may_install():
        install()
        java = find_java()
    return LocalJava(java, jars) if java else _docker_or_sentence()


def may_install() -> bool:
    """Packages are installed only by root with apt-get; everybody else is told what to install."""
    return os.getuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    """Install Java and Maven with apt-get; what it says is shown only when it fails."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES]):
        done = subprocess.run(["apt-get", "--quiet", *step], env=quiet, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotRunKafka(f"{WHAT_TO_INSTALL} (apt-get {step[0]} failed: {_last_line(done.stderr)})")


def fetch_jars(jars: Path) -> None:
    """Copy Kafka's jars from Maven's repository into `jars`, whole or not at all, whoever else does so too."""
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix="fetching-") as scratch:
        fetched = Path(scratch) / "libs"
        done = subprocess.run(
            [
                "mvn", "--batch-mode", "--quiet", "--file", str(POM), "dependency:copy-dependencies",
                "-DincludeScope=runtime", f"-DoutputDirectory={fetched}",
            ],
            capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode != 0:
            why = _last_line(done.stdout + done.stderr)
            raise CannotRunKafka(f"Maven could not fetch Kafka: look at its settings and network ({why}).")
        try:
            fetched.rename(jars)
        except OSError:
            if not _ready(jars):
                raise


def _ready(jars: Path) -> bool:
    return any(jars.glob("kafka_2.13-*.jar"))


def _docker_or_sentence() -> InDocker:
    docker = find_docker()
    if docker is None:
        raise CannotRunKafka(WHAT_TO_INSTALL)
    return InDocker(docker, f"apache/kafka:{kafka_version()}")


def _last_line(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith("[ERROR]")] or text.splitlines() or [""]
    return errors[0 if errors[0].startswith("[ERROR]") else -1].strip()


def main() -> int:
    """Gets Kafka ready to run before many test processes ask for it at once."""
    try:
        runtime()
    except CannotRunKafka as fault:
        print(fault)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
