"""Published distributions: the source distribution, the wheel of sources, the compiled wheel; each made from the one before.

Slow: a source distribution and four wheels are made, as pip makes them, with the build requirements fetched again. The
compiled one takes minutes: AIOKPROD_TEST_WHEEL names one that was made by the same commands of the same sources.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

import pytest
from build import ProjectBuilder
from build.env import DefaultIsolatedEnv

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info", f"*{EXTENSION_SUFFIXES[0]}")
TELLS = "import aiokprod, aiokprod.pipeline.partition.batch as b; print(aiokprod.compiled, b.__file__, aiokprod.__version__)"


def without_ours(**variables: str) -> dict[str, str]:
    """Return a user's environment: none of our variables, and only the installed packages on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIOKPROD_", "PYTHON"))}
    return kept | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(command, cwd=cwd, env=without_ours(**variables), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what is in it."""

    path: Path
    files: dict[str, bytes]

    @classmethod
    def made_from(cls, source: Path, folder: Path, **variables: str) -> Wheel:
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder, **variables)
        (path,) = folder.glob("*.whl")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Wheel:
        with zipfile.ZipFile(path) as archive:
            return cls(path, {name: archive.read(name) for name in archive.namelist()})

    def about(self, name: str) -> bytes:
        """Return a file of the `.dist-info` folder."""
        (found,) = (text for path, text in self.files.items() if path.endswith(f".dist-info/{name}"))
        return found

    @property
    def date(self) -> int:
        """The time of its files, which is the same for all, in seconds since 1970."""
        with zipfile.ZipFile(self.path) as archive:
            (date,) = {item.date_time for item in archive.infolist()}
        return calendar.timegm(date)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @property
    def package(self) -> dict[str, bytes]:
        """Return the files that it installs, but for the compiled modules."""
        return {name: text for name, text in self.files.items() if name.startswith("aiokprod/") and not is_binary(name)}

    @property
    def binaries(self) -> set[str]:
        return {name for name in self.files if is_binary(name)}

    def install(self, folder: Path) -> None:
        """Install it alone: its requirements are those of the tests' environment."""
        folder.mkdir()
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, self.path, cwd=folder)


def is_binary(name: str) -> bool:
    return name.endswith((".so", ".pyd"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution of this tree, unpacked; the tree itself is only read."""
    folder = tmp_path_factory.mktemp("source")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_OURS)
    shutil.copytree(ROOT / ".build", tree / ".build", ignore=NOT_OURS)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, tree, cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        # Our own archive, made just before. The argument `filter` came with Python 3.11.4.
        opened.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def pure(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel.made_from(source, tmp_path_factory.mktemp("pure"))


@pytest.fixture(scope="module")
def compiled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    made = os.environ.get("AIOKPROD_TEST_WHEEL")
    if made:
        return Wheel.read(Path(made))
    return Wheel.made_from(source, tmp_path_factory.mktemp("compiled"), AIOKPROD_COMPILE="1")


def test_the_source_distribution_has_what_it_is_built_with_and_every_module(source: Path) -> None:
    assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= {path.name for path in source.iterdir()}
    assert (source / ".build" / "backend.py").read_bytes() == (ROOT / ".build" / "backend.py").read_bytes()

    def package(root: Path) -> set[str]:
        files = (path for path in (root / "aiokprod").rglob("*") if path.is_file() and not is_binary(path.name))
        return {path.relative_to(root).as_posix() for path in files if "__pycache__" not in path.parts}

    assert package(source) == package(ROOT)
    for name in ("docs/tutorial.md", "tests/unit/project/test_build.py", "bench/run.py", "noxfile.py"):
        assert (source / name).read_bytes() == (ROOT / name).read_bytes()


def test_a_source_install_is_pure_unless_it_is_asked_for(pure: Wheel, source: Path, tmp_path: Path) -> None:
    assert pure.path.name.endswith("-py3-none-any.whl")
    assert pure.binaries == set()
    said_no = Wheel.made_from(source, tmp_path, AIOKPROD_COMPILE="0")
    assert (said_no.path.name, said_no.files) == (pure.path.name, pure.files)


def test_the_compiled_wheel_is_the_pure_one_and_its_hot_modules_compiled(pure: Wheel, compiled: Wheel) -> None:
    assert f"cp{sys.version_info.major}{sys.version_info.minor}" in compiled.path.name
    assert compiled.package == pure.package
    sources = {
        f"{PurePosixPath(name).with_name(PurePosixPath(name).name.split('.')[0])}.py" for name in compiled.binaries
    }
    assert {"aiokprod/pipeline/partition/batch.py", "aiokprod/records/batch.py", "aiokprod/wire/produce.py"} <= sources
    (shared,) = sources - set(pure.package)  # mypyc puts the code of all of them into one library
    assert shared == "aiokprod__mypyc.py"


def test_both_wheels_say_the_same_of_themselves(pure: Wheel, compiled: Wheel) -> None:
    assert pure.about("METADATA") == compiled.about("METADATA")
    assert pure.about("entry_points.txt") == compiled.about("entry_points.txt")
    is_pure = [message_from_bytes(wheel.about("WHEEL"))["Root-Is-Purelib"] for wheel in (pure, compiled)]
    assert is_pure == ["true", "false"]


def test_every_wheel_carries_its_licence_and_its_types(pure: Wheel, compiled: Wheel) -> None:
    for wheel in (pure, compiled):
        assert wheel.about("licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert "aiokprod/py.typed" in wheel.files
        assert b"License-Expression: Apache-2.0" in wheel.about("METADATA")
        tops = {name.partition("/")[0] for name in wheel.files if not is_binary(name)}
        ours = {"aiokprod", "pyspark_aiokprod.py"}  # the second one is what Spark looks for
        assert {top for top in tops if not top.endswith(".dist-info")} == ours, "no tests, no tools"


def test_a_source_distribution_of_a_source_distribution_makes_the_same_wheel(
    pure: Wheel, source: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, source, cwd=tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    again = Wheel.made_from(archive, tmp_path)
    assert (again.path.name, again.files) == (pure.path.name, pure.files)


def test_what_is_installed_tells_its_form_and_can_be_told_to_be_pure(
    pure: Wheel, compiled: Wheel, tmp_path: Path
) -> None:
    def told(wheel: Wheel, **variables: str) -> list[str]:
        folder = tmp_path / wheel.path.stem
        if not folder.exists():
            wheel.install(folder)
        said = run(sys.executable, "-c", TELLS, cwd=folder, PYTHONPATH=str(folder), **variables).split()
        assert Path(said[1]).is_relative_to(folder)
        assert said[2] == message_from_bytes(wheel.about("METADATA"))["Version"]
        return [said[0], Path(said[1]).suffix]

    assert told(pure) == ["False", ".py"]
    assert told(compiled) == ["True", Path(EXTENSION_SUFFIXES[0]).suffix]
    assert told(compiled, AIOKPROD_PURE="1") == ["False", ".py"]


def test_every_wheel_has_the_module_by_which_spark_finds_us(pure: Wheel, compiled: Wheel, tmp_path: Path) -> None:
    for wheel in (pure, compiled):
        assert wheel.files["pyspark_aiokprod.py"] == wheel.files["aiokprod/spark/discovered.py"]
        assert "pyspark_aiokprod.py,sha256=" in wheel.about("RECORD").decode()
        assert wheel.about("top_level.txt").split() == [b"aiokprod", b"pyspark_aiokprod"]


def test_an_editable_install_has_it_as_a_file(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    shutil.copytree(ROOT, tmp_path / "source", ignore=NOT_OURS)
    shutil.copytree(ROOT / ".build", tmp_path / "source" / ".build")
    target = ("install", "-q", "--no-deps", "--target", environment, "-e", tmp_path / "source")
    run(sys.executable, "-m", "pip", *target, cwd=tmp_path)
    assert (environment / "pyspark_aiokprod.py").is_file()


def test_an_editable_install_is_a_path_that_type_checkers_and_editors_follow(source: Path, tmp_path: Path) -> None:
    with DefaultIsolatedEnv() as environment:
        builder = ProjectBuilder.from_isolated_env(environment, source)
        environment.install(builder.build_system_requires)
        environment.install(builder.get_requires_for_build("editable"))
        wheel = Path(builder.build("editable", tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    (pth,) = (name for name in files if name.endswith(".pth"))
    assert files[pth].decode().strip() == str(source)  # a path; an import hook would be a line of code
    assert set(files) == {pth, "pyspark_aiokprod.py"}


def test_every_wheel_records_the_digest_of_each_of_its_files(pure: Wheel, compiled: Wheel) -> None:
    for wheel in (pure, compiled):
        recorded = dict(line.rsplit(",", 2)[:2] for line in wheel.about("RECORD").decode().splitlines())
        digests = {
            name: f"sha256={base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b'=').decode()}"
            for name, text in wheel.files.items()
        }
        record = next(name for name in wheel.files if name.endswith(".dist-info/RECORD"))
        assert recorded == digests | {record: ""}


# ---------------------------------------------------------------- the same to the byte

MODES_OF_A_WHEEL = {0o100644, 0o100755}


def distributions_of(folder: Path, umask: int, **variables: str) -> dict[str, bytes]:
    """Build the source distribution and the pure wheel of a copy of this tree, whose files are older than the tree's."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_OURS)
    shutil.copytree(ROOT / ".build", tree / ".build", ignore=NOT_OURS)
    for path in tree.rglob("*"):
        os.utime(path, (1_000_000_000 + umask, 1_000_000_000 + umask))
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "made", tree)
    environment = without_ours(**variables)
    done = subprocess.run(
        command, cwd=folder, env=environment, umask=umask, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return {path.name: path.read_bytes() for path in (folder / "made").iterdir()}


def test_two_builds_are_the_same_to_the_byte_in_any_folder_at_any_time(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "in another" / "folder"
    first.mkdir()
    second.mkdir(parents=True)
    made = distributions_of(first, 0o022, PYTHONHASHSEED="1")
    assert sorted(Path(name).suffix for name in made) == [".gz", ".whl"]
    assert made == distributions_of(second, 0o077, PYTHONHASHSEED="2")


def test_all_files_have_the_date_that_is_asked_for_and_a_source_distribution_carries_it(tmp_path: Path) -> None:
    date = 1_700_000_000
    distributions_of(tmp_path, 0o027, SOURCE_DATE_EPOCH=str(date))
    (archive,) = (tmp_path / "made").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        assert {member.mtime for member in members} == {date}
        assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
        assert {member.mode for member in members} == {0o644, 0o755}
    (path,) = (tmp_path / "made").glob("*.whl")
    wheel = Wheel.read(path)
    assert wheel.date == date
    with zipfile.ZipFile(path) as opened_wheel:
        assert {item.external_attr >> 16 for item in opened_wheel.infolist()} <= MODES_OF_A_WHEEL
    again = tmp_path / "again"
    again.mkdir()
    assert Wheel.made_from(archive, again).digest == wheel.digest, "and no variable is set"


def test_a_compiled_wheel_is_the_same_to_the_byte(compiled: Wheel, source: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(source, tmp_path / "else where")
    made = tmp_path / "made"
    made.mkdir()
    again = Wheel.made_from(
        elsewhere, made, AIOKPROD_COMPILE="1", SOURCE_DATE_EPOCH=str(compiled.date), PYTHONHASHSEED="3"
    )
    assert {name for name in again.files if again.files[name] != compiled.files.get(name)} == set()
    assert again.digest == compiled.digest
