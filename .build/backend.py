"""The build: setuptools, and mypyc for the record path when AIOKPROD_COMPILE=1 asks for it.

The same source either way: without the variable the wheel is pure Python. Compiled modules lie beside their sources, so
AIOKPROD_PURE=1 can still choose the sources when it is imported (aiokprod/compiled.py).

Every wheel, also that of an editable install, gets the top-level module by which Spark finds us: a copy of
`aiokprod/spark/discovered.py`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from pathlib import Path

import setuptools
from setuptools import build_meta
from setuptools.command.sdist import sdist

# Everything a record passes. Not here: what meets what users give (it names wrong types itself), and what is rare.
COMPILED = (
    "aiokprod/metrics.py",
    "aiokprod/record_metadata.py",
    "aiokprod/pipeline/*.py",
    "aiokprod/records/*.py",
    "aiokprod/wire/produce.py",
    "aiokprod/wire/reader.py",
    "aiokprod/wire/writer.py",
    "aiokprod/testing/memory/*.py",  # its parts stand where those of the pipeline stand
)
INTERPRETED = {
    "__init__.py",
    "crc.py",
    "compression.py",
    "intake.py",
    "serializing.py",
    "producer.py",
    "cluster.py",
    "script.py",
    "log.py",
    "vectorised.py",  # numpy and pyarrow are not there when wheels are built
    "vectorised_partitions.py",
    "column_encoder.py",
}
# The releases whose runtime `corrected` knows: a newer one is tried out first (tests/unit/test_build.py says how).
MYPYC = ["mypy>=2.4,<2.5"]
SPARK_MODULE = "pyspark_aiokprod.py"


def is_asked_for() -> bool:
    return os.environ.get("AIOKPROD_COMPILE", "") not in ("", "0")


def sources() -> list[str]:
    """The modules that are compiled, in a stable order."""
    found = (path for pattern in COMPILED for path in sorted(Path().glob(pattern)))
    return [str(path) for path in found if path.name not in INTERPRETED]


THREE_ARGUMENTS = "PyObject_CallFunctionObjArgs(_m, type, value, traceback, NULL)"
ONE_ARGUMENT = "PyObject_CallOneArg(_m, value)"


def corrected(runtime: str) -> str:
    """mypyc's `misc_ops.c` with the one call that is wrong.

    Raises:
        RuntimeError: it is not there exactly once: this mypyc is another one, and what would be compiled is not known.
    """
    if runtime.count(THREE_ARGUMENTS) != 1:
        raise RuntimeError(
            f"mypyc's misc_ops.c has {runtime.count(THREE_ARGUMENTS)} times '{THREE_ARGUMENTS}', where it must be once:"
            f" build with {MYPYC[0]}, or without AIOKPROD_COMPILE, which gives the pure form"
        )
    return runtime.replace(THREE_ARGUMENTS, ONE_ARGUMENT)


def use_throw_of_today(extensions: list[setuptools.Extension]) -> None:
    """What is thrown into a compiled coroutine goes on to what it awaits as one exception.

    mypyc (2.4, mypyc issue 1214) passes it on as three arguments, which warns since Python 3.12: where warnings are
    errors, a cancelled wait would end with a DeprecationWarning. A copy of that part of its runtime is compiled, without.
    """
    from mypyc.build import include_dir

    runtime = corrected(Path(include_dir(), "misc_ops.c").read_text(encoding="utf-8"))
    folder = Path("build", "runtime")
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, "misc_ops.c").write_text(runtime, encoding="utf-8")
    for extension in extensions:
        extension.include_dirs.insert(0, str(folder))


def add_spark_module(wheel: Path) -> None:
    """Put the module Spark looks for into the wheel, and into its list of files.

    Not as setuptools' py_modules: it would have to lie at the top of the repository, and an editable install would answer
    for its name without a file, while Spark looks at files.
    """
    content = Path("aiokprod", "spark", "discovered.py").read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    rewritten = wheel.with_suffix(".rewritten")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            text = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                text = f"{SPARK_MODULE},sha256={digest},{len(content)}\n".encode() + text
            elif item.filename.endswith(".dist-info/top_level.txt"):
                text += SPARK_MODULE.removesuffix(".py").encode() + b"\n"
            new.writestr(item, text)
        new.writestr(zipfile.ZipInfo(SPARK_MODULE, old.infolist()[0].date_time), content)
    rewritten.replace(wheel)


class SdistWithBackend(sdist):
    """A source distribution can be built from: it has this file."""

    def make_distribution(self) -> None:
        self.filelist.append(".build/backend.py")
        super().make_distribution()


class Backend(build_meta._BuildMetaBackend):
    """setuptools' own, with extension modules and no setup.py."""

    builds = False

    def run_setup(self, setup_script: str = "setup.py") -> None:
        extensions = []
        if self.builds and is_asked_for():
            from mypyc.build import mypycify

            # Dependencies are not installed where wheels are built: what they are used for has no types there. Errors are
            # told for the compiled modules only; that all types are right is checked elsewhere (nox -s types).
            options = [
                "--ignore-missing-imports",
                "--no-warn-unused-ignores",
                "--allow-subclassing-any",
                "--follow-imports=silent",
            ]
            extensions = mypycify([*options, *sources()], group_name="aiokprod", opt_level="3", debug_level="0")
            use_throw_of_today(extensions)
        setuptools.setup(ext_modules=extensions, cmdclass={"sdist": SdistWithBackend})

    def get_requires_for_build_wheel(self, config_settings=None):
        return [*super().get_requires_for_build_wheel(config_settings), *(MYPYC if is_asked_for() else [])]

    def get_requires_for_build_editable(self, config_settings=None):
        return [*super().get_requires_for_build_editable(config_settings), *(MYPYC if is_asked_for() else [])]

    def build_wheel(self, wheel_directory, *arguments, **options):
        self.builds = True
        name = super().build_wheel(wheel_directory, *arguments, **options)
        add_spark_module(Path(wheel_directory, name))
        return name

    def build_editable(self, wheel_directory, *arguments, **options):
        self.builds = True
        name = super().build_editable(wheel_directory, *arguments, **options)
        add_spark_module(Path(wheel_directory, name))
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
