"""The pytest plugin as its users have it: in a run of pytest of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

ARGUMENTS = ("-p", "aiokprod.testing.plugin", "-W", "error", "-q")


@pytest.fixture(autouse=True)
def only_our_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load only named plugins in the inner runs, so that they are the same with aiokprod installed and without."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_the_plugin_brings_in_nothing_of_ours_but_itself() -> None:
    """The plugin is loaded by every run of pytest where aiokprod is installed, whatever is tested there."""
    program = (
        "import sys, uuid, pytest\n"
        "before = set(sys.modules)\n"
        "import aiokprod.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"aiokprod", "aiokprod.testing", "aiokprod.testing.plugin"}


def test_the_environment_names_a_cluster_and_none_is_started(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKPROD_TEST_BOOTSTRAP_SERVERS", "kafka.test:9092")
    pytester.makepyfile("def test_it(kafka_bootstrap): assert kafka_bootstrap == 'kafka.test:9092'")
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=1)


def test_an_unknown_backend_is_refused_by_name(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKPROD_TEST_BACKEND", "podman")
    monkeypatch.delenv("AIOKPROD_TEST_BOOTSTRAP_SERVERS", raising=False)
    pytester.makepyfile("def test_it(kafka_cluster): pass")
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*AIOKPROD_TEST_BACKEND: processes, containers, auto*"])


def test_a_cluster_that_does_not_answer_is_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKPROD_TEST_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    pytester.makepyfile("def test_it(kafka_topic): pass")
    result = pytester.runpytest_subprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*KafkaClusterError: no broker of 127.0.0.1:1 answers*"])


def test_the_mock_cluster_is_new_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_first(mock_kafka): seen.append(mock_kafka)

        def test_second(mock_kafka): assert mock_kafka is not seen[0]
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_the_producer_in_memory_is_new_for_each_test_and_brings_in_no_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, sys

        seen = []

        def test_first(memory_kafka):
            async def scenario():
                async with memory_kafka:
                    await memory_kafka.send("orders", b"v")
            asyncio.run(scenario())
            seen.append(memory_kafka)
            assert len(memory_kafka.records) == 1

        def test_second(memory_kafka):
            assert memory_kafka is not seen[0]
            assert memory_kafka.records == []
            assert not any(name.startswith("aiokprod.testing.mock") for name in sys.modules)
        """
    )
    pytester.runpytest_subprocess(*ARGUMENTS).assert_outcomes(passed=2)


def test_the_fixtures_are_listed_with_what_they_give(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", *ARGUMENTS)
    for name in ("memory_kafka", "kafka_cluster", "kafka_bootstrap", "kafka_topic", "mock_kafka"):
        result.stdout.fnmatch_lines([f"{name}*"])


def test_a_name_the_package_does_not_have_is_an_attribute_error() -> None:
    from aiokprod import testing

    with pytest.raises(AttributeError, match="has no attribute 'Kluster'"):
        testing.Kluster  # type: ignore[attr-defined]
    assert set(testing.__all__) <= set(dir(testing))
    assert testing.FaultProxy.__name__ == "FaultProxy"
