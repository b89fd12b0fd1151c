"""Apache Kafka's jars on this machine: fetched by Maven once per version, kept in a cache directory for all runs.

Invariants: a version's directory appears whole or not at all (fetched beside it, renamed in one step); one fetch at a
time per version, in all processes (file lock); nothing is fetched if the directory exists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError

FETCH_TIMEOUT_S = 600.0
CACHE_VARIABLE = "AIOKPROD_KAFKA_CACHE"


def cache_directory() -> Path:
    """Return the directory of the jars: `AIOKPROD_KAFKA_CACHE`, or `aiokprod/kafka` in the user's cache directory."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aiokprod" / "kafka"


def find_java() -> str:
    """Return the `java` to run: from `JAVA_HOME`, else from `PATH`.

    Raises:
        KafkaClusterError: there is none.
    """
    if home := os.environ.get("JAVA_HOME"):
        candidate = Path(home) / "bin" / "java"
        if candidate.exists():
            return str(candidate)
    if found := shutil.which("java"):
        return found
    raise KafkaClusterError(
        "no java found (JAVA_HOME, PATH): install a Java runtime, 17 or newer (Debian: apt install"
        ' openjdk-17-jre-headless), or use KafkaCluster(backend="containers")'
    )


def kafka_classpath(version: str) -> str:
    """Return the Java class path of this Kafka version; fetches the jars if they are missing (about 20 s, 54 MB).

    Raises:
        KafkaClusterError: Maven is missing or failed.
    """
    pom = resources.files("aiokprod.testing.kafka_cluster").joinpath("pom.xml").read_bytes()
    return str(maven_jars(version, pom, f"Kafka {version}", {"kafka.version": version}) / "*")


def maven_jars(name: str, pom: bytes, what: str, properties: Mapping[str, str]) -> Path:
    """Return the directory with the jars that a pom names; fetches them if they are missing.

    Args:
        name: the name of the directory in the cache; another pom or other properties need another name.
        what: it is, for errors.
        properties: the properties of the pom.

    Raises:
        KafkaClusterError: Maven is missing or failed.
    """
    home = cache_directory() / name
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with _locked(home.with_suffix(home.suffix + ".lock")):
            if not home.is_dir():  # another run may have fetched it while we waited
                _fetch(home, pom, what, properties)
    return home


def can_run_processes(version: str) -> bool:
    """Return whether there is a Java, and the jars of this version or a Maven to fetch them."""
    try:
        find_java()
    except KafkaClusterError:
        return False
    return sys.platform != "win32" and ((cache_directory() / version).is_dir() or shutil.which("mvn") is not None)


def _fetch(home: Path, pom: bytes, what: str, properties: Mapping[str, str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaClusterError(
            f"no mvn found in PATH, and the jars of {what} are not in {home.parent}: install Maven"
            f' (Debian: apt install maven), or use KafkaCluster(backend="containers")'
        )
    with tempfile.TemporaryDirectory(prefix=f"{home.name}.", dir=home.parent) as scratch:
        written = Path(scratch) / "pom.xml"
        written.write_bytes(pom)
        jars = Path(scratch) / "jars"
        # -C: a jar whose checksum is not the repository's is an error, and not a warning.
        command = [
            maven,
            "-q",
            "-B",
            "-C",
            "-f",
            str(written),
            *(f"-D{key}={value}" for key, value in properties.items()),
        ]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as slow:
            raise KafkaClusterError(f"mvn did not fetch {what} in {FETCH_TIMEOUT_S:.0f} s") from slow
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace")
            raise KafkaClusterError(f"mvn could not fetch {what}:\n{output[-2000:]}")
        jars.rename(home)


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Hold an exclusive lock on this file; waits until other processes have released it."""
    with path.open("ab") as lock:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the file, also when this process dies
        yield
