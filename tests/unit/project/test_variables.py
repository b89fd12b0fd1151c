"""The tests, the benches and the gate set variables that a producer's configuration passes over.

A producer refuses a variable that begins with AIOKPROD_ and is no option. A variable of a test run that it refuses fails each
test that reads the environment, and only in the run that sets it.
"""

from __future__ import annotations

import re
from pathlib import Path

from gate import plugin_variables

from aiokprod import ProducerConfig
from aiokprod.config.environment import NOT_OPTION_STARTS

ROOT = Path(__file__).resolve().parents[3]
SET_BY_SHELL = re.compile(r"\b(AIOKPROD_[A-Z_]+)=")
SET_OR_READ = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\(|env = \{|env=\{|, )["'](AIOKPROD_[A-Z_]+)["']""")
OPTIONS = {f"AIOKPROD_{name.upper()}" for name in ProducerConfig.names()}


def found() -> set[str]:
    names = set(SET_BY_SHELL.findall((ROOT / ".ci" / "run").read_text(encoding="utf-8")))
    names |= {value for name, value in vars(plugin_variables).items() if name.isupper()}
    files = [ROOT / "noxfile.py", *(ROOT / "bench").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    for file in files:
        if "config" not in file.parts and "cli" not in file.parts:  # those write wrong variables on purpose
            names.update(SET_OR_READ.findall(file.read_text(encoding="utf-8")))
    return names


def test_a_producer_passes_over_what_a_test_run_sets() -> None:
    names = found()
    assert {"AIOKPROD_TEST_WHEEL", "AIOKPROD_TEST_SEEDS", "AIOKPROD_REQUIRE_DOCKER", "AIOKPROD_COMPILE"} <= names
    environ = {"AIOKPROD_BOOTSTRAP_SERVERS": "a:1"}
    for name in names - OPTIONS:
        assert ProducerConfig.from_env({**environ, name: "1"}) == ProducerConfig.from_env(environ), name


def test_no_option_looks_like_a_variable_of_a_test_run() -> None:
    assert not [name for name in OPTIONS if name.startswith(NOT_OPTION_STARTS)]
