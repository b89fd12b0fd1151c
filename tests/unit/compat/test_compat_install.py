"""`install`: in processes of their own, as it changes aiokafka's modules and looks at all that were imported before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def output_of(code: str, *arguments: str) -> str:
    """Return what a program prints; its warnings are errors, but for those that it expects."""
    run = subprocess.run(
        [sys.executable, "-W", "error", *(arguments or ("-c", code))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_after_install_each_module_of_aiokafka_has_our_producer() -> None:
    told = output_of("""
import aiokprod.compat.aiokafka as drop_in
drop_in.install()
drop_in.install()
from aiokafka import AIOKafkaProducer
import aiokafka.producer, aiokafka.producer.producer
assert AIOKafkaProducer is aiokafka.producer.AIOKafkaProducer is aiokafka.producer.producer.AIOKafkaProducer
assert AIOKafkaProducer is drop_in.AIOKafkaProducer
drop_in.uninstall()
assert drop_in.AIOKafkaProducer.__mro__[3] is aiokafka.AIOKafkaProducer is aiokafka.producer.AIOKafkaProducer
print(aiokafka.AIOKafkaProducer.__module__)
""")
    assert told.split() == ["aiokafka.producer.producer"]


def test_a_module_that_has_taken_the_producer_before_is_named_in_a_warning(tmp_path: Path) -> None:
    tmp_path.joinpath("early.py").write_text("from aiokafka import AIOKafkaProducer\n")
    output_of(f"""
import sys, warnings
sys.path.insert(0, {str(tmp_path)!r})
import early
import aiokprod.compat.aiokafka as drop_in
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    drop_in.install()
(one,) = told
assert one.category is RuntimeWarning and "too late for early:" in str(one.message), one
assert one.filename == "<string>", one.filename
""")


def test_instrumentation_that_came_before_is_told() -> None:
    output_of("""
import functools, warnings
import aiokafka
aiokafka.AIOKafkaProducer.send = functools.wraps(aiokafka.AIOKafkaProducer.send)(lambda *given: None)
import aiokprod.compat.aiokafka as drop_in
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    drop_in.install()
(one,) = told
assert "instrumented" in str(one.message), one
""")


def test_aiokprod_alone_does_not_import_aiokafka() -> None:
    output_of("""
import sys
import aiokprod, aiokprod.compat, aiokprod.producer
assert not [name for name in sys.modules if name.split(".")[0] == "aiokafka"]
""")


def test_without_aiokafka_the_error_names_the_extra() -> None:
    output_of("""
import sys
sys.modules["aiokafka.errors"] = None
try:
    import aiokprod.compat.aiokafka
except ImportError as error:
    assert "aiokprod[aiokafka]" in str(error), error
else:
    raise AssertionError
""")


@pytest.mark.parametrize("as_module", [False, True])
def test_a_program_is_run_with_the_producer_installed(tmp_path: Path, as_module: bool) -> None:
    program = tmp_path / "service.py"
    program.write_text(
        "import sys\nfrom aiokafka import AIOKafkaProducer\n"
        "print(__name__, AIOKafkaProducer.__module__, sys.argv[1:], sys.argv[0].endswith('service.py'))\n"
    )
    named = ["-m", "service"] if as_module else [str(program)]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "aiokprod.compat.aiokafka", *named, "one", "-m", "two"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": f"{Path(__file__).parents[3]}:{tmp_path}"},
    )
    assert run.stdout.strip() == "__main__ aiokprod.compat.aiokafka.producer ['one', '-m', 'two'] True", run.stderr


def test_without_a_program_the_usage_is_told() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "aiokprod.compat.aiokafka"], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 1 and "PROGRAM.py" in run.stderr
