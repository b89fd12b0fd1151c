"""The build backend: setuptools, and mypyc for the record path if AIOKPROD_COMPILE=1.

The source is the same; without the variable the wheel is pure Python. Compiled modules lie beside their sources, so
AIOKPROD_PURE=1 can still choose the sources at import (aiokprod/forms.py).

Every wheel, also that of an editable install, gets the top-level module by which Spark finds aiokprod: a copy of
`aiokprod/spark/discovered.py`.

Two builds of the same sources with the same tools are the same to the byte, whichever the folder, the time and the umask. The
time of all files is SOURCE_DATE_EPOCH; without it, the time of the last commit, which a source distribution carries.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path

import setuptools
from setuptools import build_meta
from setuptools.command.sdist import sdist

# Modules that every record passes. Not here: modules that check users' arguments (they report wrong types themselves), and
# code that runs rarely.
COMPILED = (
    "aiokprod/cluster/connection/answer_clock.py",
    "aiokprod/cluster/connection/answer_limits.py",
    "aiokprod/cluster/connection/connection.py",
    "aiokprod/cluster/connection/streamed_reads.py",
    "aiokprod/cluster/connection/throttle.py",
    "aiokprod/liveness.py",
    "aiokprod/metrics.py",
    "aiokprod/record_metadata.py",
    "aiokprod/pipeline/**/*.py",
    "aiokprod/records/*.py",
    "aiokprod/wire/exchange.py",
    "aiokprod/wire/frames.py",
    "aiokprod/wire/produce.py",
    "aiokprod/wire/reader.py",
    "aiokprod/wire/versions.py",
    "aiokprod/wire/writer.py",
    "aiokprod/testing/memory/*.py",  # stands in for compiled parts of the pipeline
)
INTERPRETED = (
    "aiokprod/pipeline/columns/column_encoder.py",  # numpy and pyarrow are not installed when wheels are built
    "aiokprod/pipeline/columns/vectorised_partitions.py",
    "aiokprod/pipeline/sending/record_checks.py",
    "aiokprod/pipeline/sending/serializing.py",
    "aiokprod/records/compression.py",
    "aiokprod/records/crc.py",
    "aiokprod/records/vectorised.py",  # numpy and pyarrow, as above
    "aiokprod/testing/memory/cluster.py",
    "aiokprod/testing/memory/log.py",
    "aiokprod/testing/memory/producer.py",
    "aiokprod/testing/memory/script.py",
    "aiokprod/testing/memory/transactions.py",
)
# Releases with the runtime that `corrected` knows. Try a newer one first, as tests/unit/project/test_build.py describes.
MYPYC = ["mypy>=2.4,<2.5"]
BESIDE = ("docs", "tests", "bench", "noxfile.py")
"""What a source distribution has beside the package: packagers build the pages and run the tests from it."""
CACHE = re.compile(r"__pycache__$|\.(?!build$)")
SPARK_MODULE = "pyspark_aiokprod.py"
SOURCE_DATE = Path(".build", "source_date")
"""The time of the sources, in a source distribution, which has no commits."""
EARLIEST = 315_532_800
"""The first second of 1980: a zip file knows no earlier one."""


def is_asked_for() -> bool:
    return os.environ.get("AIOKPROD_COMPILE", "") not in ("", "0")


def check_compiler() -> None:
    """Check for what mypyc needs beside Python packages, before it has worked for half a minute.

    Raises:
        SystemExit: there is no C compiler, or Python's headers are missing. pip shows the text, without a traceback.
    """
    if sys.platform == "win32":  # setuptools looks for the compiler of Visual Studio, and says so if there is none
        return
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    missing = []
    if shutil.which(_program(command)) is None:
        missing.append(f"a C compiler ({command!r})")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("the headers of Python (Python.h)")
    if missing:
        raise SystemExit(
            f"AIOKPROD_COMPILE=1 needs {' and '.join(missing)}: install them (Debian: gcc python3-dev; Fedora: gcc"
            " python3-devel; Alpine: gcc musl-dev python3-dev), or build without AIOKPROD_COMPILE, which gives the pure form"
        )


def _program(command: str) -> str:
    """Return the program of a command line; empty if it has none, as a CC of spaces or with a quote that is not closed."""
    try:
        return next(iter(shlex.split(command)), "")
    except ValueError:
        return ""


def sources() -> list[str]:
    """Return the modules to compile, in a stable order. An `__init__.py` is never compiled.

    Raises:
        RuntimeError: an entry of `COMPILED` or `INTERPRETED` matches no file: the file was moved or renamed.
    """
    found: list[Path] = []
    for pattern in COMPILED:
        matches = sorted(Path().glob(pattern))
        if not matches:
            raise RuntimeError(
                f"COMPILED in .build/backend.py has {pattern!r}, which matches no file: name the new path"
            )
        found += [path for path in matches if path.name != "__init__.py"]
    unknown = set(INTERPRETED) - {path.as_posix() for path in found}
    if unknown:
        raise RuntimeError(
            f"INTERPRETED in .build/backend.py has {', '.join(sorted(unknown))}, which no pattern of COMPILED matches: name the"
            " new path (or else that module would be compiled), or take the entry out"
        )
    return [str(path) for path in found if path.as_posix() not in INTERPRETED]


THREE_ARGUMENTS = "PyObject_CallFunctionObjArgs(_m, type, value, traceback, NULL)"
ONE_ARGUMENT = "PyObject_CallOneArg(_m, value)"


def corrected(runtime: str) -> str:
    """Return mypyc's `misc_ops.c` with its one wrong call corrected.

    Raises:
        RuntimeError: the call does not occur exactly once, so this is an unknown release of mypyc.
    """
    if runtime.count(THREE_ARGUMENTS) != 1:
        raise RuntimeError(
            f"the call that mypyc's misc_ops.c has {runtime.count(THREE_ARGUMENTS)} times must occur once ({THREE_ARGUMENTS}):"
            f" build with {MYPYC[0]}, or without AIOKPROD_COMPILE, which builds the pure form"
        )
    return runtime.replace(THREE_ARGUMENTS, ONE_ARGUMENT)


def use_one_argument_throw(extensions: list[setuptools.Extension]) -> None:
    """Compile with a corrected copy of mypyc's runtime, in which `throw` takes one argument.

    mypyc (2.4, mypyc issue 1214) passes an exception that is thrown into a compiled coroutine on to the awaited object as
    three arguments, which warns since Python 3.12: where warnings are errors, a cancelled wait would end with a
    DeprecationWarning.
    """
    from mypyc.build import include_dir

    runtime = corrected(Path(include_dir(), "misc_ops.c").read_text(encoding="utf-8"))
    folder = Path("build", "runtime")
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, "misc_ops.c").write_text(runtime, encoding="utf-8")
    for extension in extensions:
        extension.include_dirs.insert(0, str(folder))


def forget_folders(extensions: list[setuptools.Extension]) -> None:
    """Keep the folders of this build and of its environment, whose names are random, out of what the compiler writes."""
    from mypyc.build import include_dir

    if sys.platform != "win32":
        for extension in extensions:
            maps = [f"-ffile-prefix-map={include_dir()}=mypyc", f"-ffile-prefix-map={Path.cwd()}=."]
            extension.extra_compile_args = [*extension.extra_compile_args, *maps]  # mypyc gives all of them one list


def hide_symbols(extensions: list[setuptools.Extension]) -> None:
    """Let a compiler inline the functions of the record path: none of them can be replaced from outside the library.

    Measured with gcc 12 on x86_64: 3 % fewer instructions for a `send`. Windows hides them anyway.
    """
    if sys.platform != "win32":
        for extension in extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]


def source_date() -> int:
    """Return the time of the sources, in seconds since 1970; the earliest that a wheel can have, if none is known."""
    if named := os.environ.get("SOURCE_DATE_EPOCH"):
        if not named.isdecimal():
            raise SystemExit(
                f"SOURCE_DATE_EPOCH is {named!r}: give the seconds since 1970, as a whole number, or unset it"
            )
        return max(int(named), EARLIEST)
    if SOURCE_DATE.exists():
        return int(SOURCE_DATE.read_text(encoding="ascii"))
    if Path(".git").exists():  # a file in a worktree; and not a repository around an unpacked source distribution
        command = ["git", "log", "-1", "--format=%ct"]
        try:
            return max(int(subprocess.run(command, capture_output=True, check=True).stdout), EARLIEST)  # noqa: S603
        except (OSError, subprocess.CalledProcessError, ValueError):  # no git, another owner, no commit
            pass
    return EARLIEST


def use_source_date() -> None:
    """Let setuptools, the compiler (__DATE__) and all else that knows SOURCE_DATE_EPOCH use the time of the sources."""
    os.environ["SOURCE_DATE_EPOCH"] = str(source_date())


def finish_wheel(wheel: Path) -> None:
    """Add the module that Spark looks for, and write the wheel again in one order, with one time and plain modes.

    The module is not one of setuptools' py_modules: those must lie at the top of the repository, and an editable install would
    resolve the name without a file, while Spark looks for files.
    """
    content = Path("aiokprod", "spark", "discovered.py").read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as old:
        files = {item.filename: old.read(item) for item in old.infolist() if not item.is_dir()}
    files[SPARK_MODULE] = content
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    (tops,) = (name for name in files if name.endswith(".dist-info/top_level.txt"))
    files[tops] += SPARK_MODULE.removesuffix(".py").encode() + b"\n"
    tops_digest = base64.urlsafe_b64encode(hashlib.sha256(files[tops]).digest()).rstrip(b"=").decode()
    lines = [line for line in files[record].decode().splitlines() if not line.startswith(f"{tops},")]
    lines += [f"{SPARK_MODULE},sha256={digest},{len(content)}", f"{tops},sha256={tops_digest},{len(files[tops])}"]
    files[record] = "".join(f"{line}\n" for line in sorted(lines)).encode()
    when = time.gmtime(source_date())[:6]
    rewritten = wheel.with_suffix(".rewritten")
    with zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as new:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name == record, name)):
            item = zipfile.ZipInfo(name, when)
            item.compress_type = zipfile.ZIP_DEFLATED
            item.create_system = 3  # Unix, on Windows too: it says how the mode is to be read
            item.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            new.writestr(item, files[name])
    rewritten.replace(wheel)


def finish_sdist(archive: Path) -> None:
    """Write the archive again in one order, with one time, plain modes and no owner."""
    when = source_date()
    rewritten = archive.with_suffix(".rewritten")
    with (
        tarfile.open(archive) as old,
        rewritten.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=when) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for item in sorted(old.getmembers(), key=lambda item: item.name):
            plain = tarfile.TarInfo(item.name)
            plain.type, plain.size, plain.mtime = item.type, item.size, when
            plain.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(item) if item.isfile() else None)
    rewritten.replace(archive)


def beside_the_package() -> list[str]:
    """Return the files of the pages, the tests and the benchmarks: the tracked ones, or without git all but caches."""
    if Path(".git").exists():
        command = ["git", "ls-files", "-z", "--", *BESIDE]
        try:
            listed = subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603
            return sorted(name for name in os.fsdecode(listed).split("\0") if name and Path(name).is_file())
        except (OSError, subprocess.CalledProcessError):  # no git, another owner
            pass
    found = [path for name in BESIDE for path in (Path(name), *Path(name).rglob("*")) if path.is_file()]
    return sorted(path.as_posix() for path in found if not any(CACHE.match(part) for part in path.parts))


def readme_of_an_index() -> str:
    """Return the README for a package index, where its links to files of the repository would be dead: they are plain text."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = text.replace("The pages can be read here, too:", "The pages are in `docs` of the source distribution:")
    return re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]+\)", r"\1", text)


class SdistWithBackend(sdist):
    """A source distribution with this file, so that it can be built, the time of its sources, its pages and its tests."""

    def make_distribution(self) -> None:
        self.filelist.append(".build/backend.py")
        self.filelist.extend(beside_the_package())
        super().make_distribution()

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        Path(base_dir, SOURCE_DATE).write_text(f"{source_date()}\n", encoding="ascii", newline="\n")


class Backend(build_meta._BuildMetaBackend):
    """setuptools' backend, with extension modules and without setup.py."""

    builds = False

    def run_setup(self, setup_script: str = "setup.py") -> None:
        extensions = []
        if self.builds and is_asked_for():
            from mypyc.build import mypycify

            # Dependencies are not installed where wheels are built, so their types are unknown there. Errors are reported
            # for the compiled modules only; `nox -s types` checks all types.
            options = [
                "--ignore-missing-imports",
                "--no-warn-unused-ignores",
                "--allow-subclassing-any",
                "--follow-imports=silent",
            ]
            extensions = mypycify([*options, *sources()], group_name="aiokprod", opt_level="3", debug_level="0")
            use_one_argument_throw(extensions)
            hide_symbols(extensions)
            forget_folders(extensions)
        setuptools.setup(
            ext_modules=extensions,
            cmdclass={"sdist": SdistWithBackend},
            long_description=readme_of_an_index(),
            long_description_content_type="text/markdown",
        )

    def get_requires_for_build_wheel(self, config_settings=None):
        if is_asked_for():
            check_compiler()
        return [*super().get_requires_for_build_wheel(config_settings), *(MYPYC if is_asked_for() else [])]

    def get_requires_for_build_editable(self, config_settings=None):
        if is_asked_for():
            check_compiler()
        return [*super().get_requires_for_build_editable(config_settings), *(MYPYC if is_asked_for() else [])]

    def build_wheel(self, wheel_directory, *arguments, **options):
        self.builds = True
        use_source_date()
        name = super().build_wheel(wheel_directory, *arguments, **options)
        finish_wheel(Path(wheel_directory, name))
        return name

    def build_editable(self, wheel_directory, *arguments, **options):
        self.builds = True
        use_source_date()
        name = super().build_editable(wheel_directory, *arguments, **options)
        finish_wheel(Path(wheel_directory, name))
        return name

    def build_sdist(self, sdist_directory, *arguments, **options):
        use_source_date()
        name = super().build_sdist(sdist_directory, *arguments, **options)
        finish_sdist(Path(sdist_directory, name))
        return name


_backend = Backend()
get_requires_for_build_wheel = _backend.get_requires_for_build_wheel
get_requires_for_build_editable = _backend.get_requires_for_build_editable
get_requires_for_build_sdist = _backend.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = _backend.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = _backend.prepare_metadata_for_build_editable
build_wheel = _backend.build_wheel
build_editable = _backend.build_editable
build_sdist = _backend.build_sdist
