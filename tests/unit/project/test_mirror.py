"""The unit tests stand where the modules stand: docs/testing.md says how.

    python tests/unit/project/test_mirror.py aiokprod/pipeline/partition/parked_record.py

prints the tests of a module.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES, TESTS = ROOT / "aiokprod", ROOT / "tests" / "unit"
WITHOUT_A_MODULE = {"behaviour", "project"}
"""Folders whose tests are of several modules together, and of the repository: its pages, words, docstrings and build."""
MIRRORED = ("blocking", "cluster", "config", "consuming", "pipeline", "records", "transactions", "wire")
"""Packages whose every module has tests at its own path, or a line in `TESTED_THROUGH`. So have the modules beside them."""
GENERATED = SOURCES / "wire" / "messages"
TESTED_THROUGH = {
    "closing.py": "pipeline/behaviour/test_producer_closing.py",
    "cluster/cluster_listener.py": "cluster/test_client_trouble.py",
    "cluster/connection/control_request.py": "cluster/test_control.py",
    "cluster/connection/hang_up.py": "cluster/connection/test_connection_endings.py",
    "cluster/connection/streamed_reads.py": "cluster/dialing/test_handshake_tls.py",
    "cluster/connection/throttle.py": "cluster/connection/test_connection_time.py",
    "cluster/dialing/authentication.py": "cluster/dialing/test_handshake_sasl.py",
    "cluster/dialing/pending_dial.py": "cluster/test_pool_dials.py",
    "cluster/dialing/sasl/mechanism.py": "cluster/dialing/sasl/test_scram.py",
    "cluster/metadata/cache.py": "cluster/metadata/test_metadata_outcomes.py",
    "cluster/metadata/slices.py": "cluster/metadata/test_snapshot.py",
    "cluster/parts.py": "cluster/test_client_start.py",
    "consuming/source.py": "consuming/test_aiokafka_source.py",
    "config/foreign_names.py": "config/test_mapping.py",
    "config/option_texts.py": "config/test_properties_files.py",
    "config/options.py": "config/test_producer_config.py",
    "config/secret.py": "config/test_producer_config.py",
    "config/unknown.py": "config/test_mapping.py",
    "delivery_type.py": "pipeline/delivery/test_delivery.py",
    "hooks.py": "test_interceptor_chain.py",
    "life.py": "pipeline/behaviour/test_producer_life.py",
    "model.py": "pipeline/behaviour/test_health.py",
    "pipeline/backend.py": "pipeline/test_effects.py",
    "pipeline/broker_backend.py": "pipeline/behaviour/test_acks_and_leaders.py",
    "pipeline/columns/column_partitions.py": "records/test_vectorised.py",
    "pipeline/columns/vectorised_partitions.py": "records/test_vectorised.py",
    "pipeline/inspection.py": "pipeline/behaviour/test_health.py",
    "pipeline/partition/column_batch.py": "pipeline/columns/test_send_columns_faults.py",
    "pipeline/partition/context.py": "pipeline/broker/test_flusher.py",
    "pipeline/partition/explained_queue.py": "pipeline/test_explaining.py",
    "pipeline/partition/first_ack_guard.py": "pipeline/partition/test_ledger_rows.py",
    "pipeline/partition/leadership.py": "pipeline/partition/test_ledger_rows.py",
    "pipeline/partition/ledger_actions.py": "pipeline/partition/test_ledger_rows.py",
    "pipeline/partition/parked_record.py": "pipeline/sending/test_dispatcher.py",
    "pipeline/partition/partition_queue.py": "pipeline/broker/test_flusher.py",
    "pipeline/partition/ports.py": "pipeline/broker/test_flusher.py",
    "pipeline/partition/settings.py": "pipeline/sending/test_record_checks.py",
    "pipeline/pipeline.py": "pipeline/behaviour/test_producer_life.py",
    "pipeline/sending/parking.py": "pipeline/sending/test_sending_rooms.py",
    "pipeline/transactional.py": "transactions/behaviour/test_transactions_on_mock.py",
    "pipeline/wall_clock.py": "pipeline/behaviour/test_producer_timeouts.py",
    "randomness.py": "test_backoff.py",
    "records/column_rows.py": "records/test_vectorised.py",
    "thread_sends.py": "pipeline/behaviour/test_thread_sends.py",
    "transactions/early.py": "transactions/behaviour/test_transactions_begun_early.py",
    "transactions/errors_of_causes.py": "transactions/behaviour/test_transactions_on_mock.py",
    "transactions/failures.py": "transactions/behaviour/test_transactions_on_mock.py",
    "transactions/log_verdict.py": "transactions/behaviour/test_prepared_transactions.py",
    "transactions/machine_answers.py": "transactions/test_machine_table.py",
    "transactions/machine_course.py": "transactions/test_machine_table.py",
    "transactions/machine_steps.py": "transactions/test_machine_calls.py",
    "transactions/ports.py": "transactions/behaviour/test_transactions_on_mock.py",
    "transactions/transaction.py": "transactions/behaviour/test_transactions_on_mock.py",
    "transactions/transactor.py": "transactions/behaviour/test_transactions_on_mock.py",
    "unclosed.py": "pipeline/behaviour/test_producer_unclosed.py",
    "version.py": "project/test_public_docstrings.py",
    "wire/generator/definitions.py": "wire/generator/test_generator.py",
    "wire/generator/emit.py": "wire/generator/test_generator.py",
}
"""Modules that are tested together with others, each with the file that tests most of it."""


def modules_of(folder: Path) -> list[str]:
    """Return the names of the modules in a folder of the sources, longest first."""
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return sorted(names, key=len, reverse=True)


def is_named_for(stem: str, name: str) -> bool:
    return stem == name or stem.startswith(name + "_")


def subject_of(test: Path) -> Path | None:
    """Return the module, or the folder, of the sources that a test file is named for; None if there is none."""
    stem = test.stem.removeprefix("test_")
    folder = SOURCES / test.parent.relative_to(TESTS)
    if not folder.is_dir():
        return None
    for name in modules_of(folder):
        if is_named_for(stem, name) or is_named_for(stem, f"{folder.name}_{name}"):
            return folder / f"{name}.py"
    return folder if is_named_for(stem, folder.name) else None


def is_of_a_helper(test: Path) -> bool:
    """Return whether a test file is of a module that stands among the tests."""
    return test.with_name(test.name.removeprefix("test_")).exists()


def files_of_tests() -> list[Path]:
    found = sorted(TESTS.rglob("test_*.py"))
    return [path for path in found if not WITHOUT_A_MODULE & set(path.relative_to(TESTS).parts)]


def files_that_test(module: Path) -> list[str]:
    """Return the test files of a module, as paths below tests/unit."""
    own = [test.relative_to(TESTS).as_posix() for test in files_of_tests() if subject_of(test) == module]
    through = TESTED_THROUGH.get(module.relative_to(SOURCES).as_posix())
    return [*own, through] if through else own


def test_each_test_file_is_named_for_a_module_or_its_package() -> None:
    lost = [test for test in files_of_tests() if subject_of(test) is None and not is_of_a_helper(test)]
    assert not lost, (
        f"named for no module of the folder that they mirror: {[str(test.relative_to(ROOT)) for test in lost]}"
    )


def test_no_two_files_below_tests_share_a_name() -> None:
    """pytest imports them by their name alone: a second one fails, and so does each import of a helper with two files."""
    each_may_have = {"conftest.py", "__init__.py", "__main__.py"}
    counts = Counter(path.name for path in TESTS.parent.rglob("*.py") if path.name not in each_may_have)
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_module_has_tests() -> None:
    folders = [SOURCES, *(folder for name in MIRRORED for folder in (SOURCES / name, *(SOURCES / name).rglob("*/")))]
    modules = [folder / f"{name}.py" for folder in folders if folder != GENERATED for name in modules_of(folder)]
    untested = [module.relative_to(SOURCES).as_posix() for module in modules if not files_that_test(module)]
    assert not untested, f"without tests at their path and without a line in TESTED_THROUGH: {untested}"


@pytest.mark.parametrize("module", sorted(TESTED_THROUGH))
def test_a_module_tested_through_others_is_there_and_has_no_tests_of_its_own(module: str) -> None:
    assert (SOURCES / module).exists()
    assert (TESTS / TESTED_THROUGH[module]).exists()
    assert not [test for test in files_of_tests() if subject_of(test) == SOURCES / module], (
        "delete its line in TESTED_THROUGH"
    )


@pytest.mark.parametrize(
    ("test", "subject"),
    [
        ("pipeline/broker/test_flusher_bytes.py", "pipeline/broker/flusher.py"),
        ("pipeline/partition/test_partition_batch.py", "pipeline/partition/batch.py"),
        ("testing/virtual/test_virtual_endings.py", "testing/virtual"),
        ("pipeline/broker/test_bytes.py", None),
        ("columns/test_columns.py", None),
    ],
)
def test_a_file_name_says_what_it_tests(test: str, subject: str | None) -> None:
    assert subject_of(TESTS / test) == (subject and SOURCES / subject)


if __name__ == "__main__":
    asked = [Path(argument).resolve() for argument in sys.argv[1:]]
    if not asked or not all(path.is_file() and path.is_relative_to(SOURCES) for path in asked):
        sys.exit(__doc__)
    print("\n".join(test for path in asked for test in files_that_test(path)))
