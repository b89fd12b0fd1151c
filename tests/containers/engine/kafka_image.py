"""An image of Apache Kafka from its own jars and this machine's Java: for where the image `apache/kafka` cannot be pulled.

It has the interface of `apache/kafka` as far as tests need it: `node/properties.awk` and `node/start` are that interface.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from this_machine import NotHere, has, install, is_root, says, tail, where_is

HERE = Path(__file__).resolve().parent
POM = HERE.parents[2] / "aiokprod" / "testing" / "kafka_cluster" / "pom.xml"
NODE_FILES = ("start", "properties.awk", "log4j2.properties")
NAME = "aiokprod-test/kafka"
RECIPE_LABEL = "aiokprod.recipe"
OLDEST = (3, 3)
"""Older ones need ZooKeeper beside them."""
MODULES = "java.se,jdk.crypto.ec,jdk.management,jdk.naming.dns,jdk.security.auth,jdk.security.jgss,jdk.unsupported"
LOADED_LATER = ("libgcc_s.so.1", "libstdc++.so.6", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""Libraries that no file of Java names: the native parts of jars need the first two, the resolution of names the others."""
LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")
PLACES = {
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
FOLDERS = {"tmp": 0o1777, "var/lib/kafka/data": 0o755, "proc": 0o755, "sys": 0o755, "dev": 0o755}
SETTINGS = ("ENV PATH=/opt/java/bin:/bin", "EXPOSE 9092", "WORKDIR /", 'CMD ["/opt/kafka/node/start"]')


def default_version(pom: str) -> str:
    """Return the version of Kafka that a pom names."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", pom)
    if found is None:
        raise ValueError(f"{POM} has no property kafka.version")
    return found.group(1)


def check_version(version: str) -> None:
    """Refuse a version that no image can be made of.

    Raises:
        ValueError: it is no version, or one without KRaft.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.\d+", version)
    if numbers is None:
        raise ValueError(f"{version!r} is no version of Apache Kafka: write it as 4.3.1")
    if tuple(map(int, numbers.groups())) < OLDEST:
        raise ValueError(f"Kafka {version} needs ZooKeeper: the oldest of which an image is made is 3.3.0")


def libraries_in(listing: str) -> set[str]:
    """Return the files of the libraries in what `ldd` prints; those that are missing are left out."""
    return set(LIBRARY.findall(listing))


def recipe() -> str:
    """Return a digest of all that decides what is in an image, but for the versions of Java and of Kafka."""
    digest = hashlib.sha256()
    for path in (Path(__file__), POM, *(HERE / "node" / name for name in NODE_FILES)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def made(version: str | None) -> str:
    """Return the tag of the image of this version, which is made if there is none, or one by another recipe.

    Raises:
        NotHere: a program is missing that this machine cannot get.
        ValueError: there is no image of this version.
        RuntimeError: Maven, jlink or the engine failed.
    """
    version = version or default_version(POM.read_text(encoding="utf-8"))
    check_version(version)
    tag = f"{NAME}:{version}"
    has_label = f'{{{{index .Config.Labels "{RECIPE_LABEL}"}}}}'
    if (says(["docker", "image", "inspect", "--format", has_label, tag]) or "").strip() != recipe():
        _check_programs()
        with tempfile.TemporaryDirectory(prefix="aiokprod-kafka-image-") as folder:
            _make(tag, version, Path(folder))
    return tag


def _check_programs() -> None:
    for program, package in {"jlink": "a Java JDK", "mvn": "Maven", "ldd": "ldd"}.items():
        if not has(program):
            raise NotHere(f"an image of Kafka needs {package} ({program} in PATH)")
    if not has("busybox"):
        if not (is_root() and has("apt-get")):
            raise NotHere("an image of Kafka needs busybox (Debian: apt install busybox-static)")
        install(["busybox-static"])


def _make(tag: str, version: str, folder: Path) -> None:
    jars, java = folder / "libs", folder / "java"
    scope = ("-DincludeScope=runtime", f"-DoutputDirectory={jars}", f"-Dkafka.version={version}")
    _run("mvn", "-q", "-B", "-C", "-f", str(POM), "dependency:copy-dependencies", *scope)
    slim = ("--strip-debug", "--no-header-files", "--no-man-pages")
    _run("jlink", *slim, "--add-modules", MODULES, "--output", str(java))
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        _add_system(tar, java)
        tar.add(jars, "opt/kafka/libs", filter=_as_root)
        tar.add(java, "opt/java", filter=_as_root)
        for name in NODE_FILES:
            tar.add(HERE / "node" / name, f"opt/kafka/node/{name}", filter=_as_root)
    changes = [f"--change={line}" for line in (*SETTINGS, f"LABEL {RECIPE_LABEL}={recipe()}")]
    _run("docker", "import", *changes, str(archive), tag)


def _add_system(tar: tarfile.TarFile, java: Path) -> None:
    """Add the rest of the file system: folders, busybox under all its names, and the shared libraries of it and of Java."""
    for name, mode in FOLDERS.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        tar.addfile(entry)
    for name, text in PLACES.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    busybox = os.path.realpath(where_is("busybox") or "busybox")
    tar.add(busybox, "bin/busybox", filter=_as_root)
    for name in sorted(set(_run(busybox, "--list").split()) - {"busybox"}):
        entry = tarfile.TarInfo(f"bin/{name}")
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, "busybox", 0o777
        tar.addfile(entry)
    for library in sorted(_libraries([Path(busybox), java / "bin" / "java", *java.rglob("*.so")], java)):
        tar.add(os.path.realpath(library), library.lstrip("/"), filter=_as_root)


def _libraries(files: Iterable[Path], java: Path) -> set[str]:
    """Return the shared libraries that these files need, and those that are loaded later; not those of Java itself."""
    found: set[str] = set()
    for file in files:
        found |= libraries_in(says(["ldd", str(file)]) or "")  # of a static program ldd says nothing, and fails
    found = {library for library in found if not library.startswith(str(java))}
    beside = {Path(library).parent for library in found} | {Path("/usr", *Path(each).parts[1:-1]) for each in found}
    for name in LOADED_LATER:
        for folder in sorted(beside):
            if (folder / name).exists():
                found.add(str(folder / name))
                break
    return found


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def _run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}:\n{tail(done.stdout)}")
    return done.stdout
