"""On which releases of Apache Kafka the tests here run: all on the newest, these on older ones too, which is slow.

`AIOKPROD_KAFKA_VERSION=2.8.2 pytest tests/real` runs everything on that release alone.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from aiokprod.testing.kafka_cluster.cluster import DEFAULT_VERSION
from aiokprod.testing.kafka_cluster.spec import version_tuple

VARIABLE: Final = "AIOKPROD_KAFKA_VERSION"
OLDER: Final = ("3.9.1", "2.8.2")
"""With KRaft and Produce 11; with ZooKeeper and Produce 9."""

ON_OLDER: Final = frozenset({
    # lost answers, frost, acks
    "test_an_answer_lost_after_the_append_is_asked_for_again_and_told_with_its_offset",
    "test_answers_lost_again_and_again_with_five_in_flight_make_no_copy",
    "test_what_times_out_while_all_brokers_are_frozen_is_told_exactly",
    "test_a_partition_gives_its_numbers_up_where_a_batch_past_its_deadline_never_came",
    "test_without_idempotence_a_copy_is_explained_by_a_second_attempt",
    "test_the_metadata_says_what_the_acknowledgement_told",
    # brokers that go and come back
    "test_all_records_arrive_once_and_in_order_while_brokers_fail",
    # topics that change, records of every shape in every codec
    "test_a_topic_that_is_deleted_and_made_again_while_producing_has_no_ghosts",
    "test_partitions_that_are_added_while_producing_are_used",
    "test_records_of_every_shape_are_read_back_equal",
    "test_the_brokers_clock_dates_records_where_the_topic_wants_it",
    # rights
    "test_a_record_for_a_topic_without_the_right_to_write_fails_at_once_and_arrives_after_the_grant",
    "test_a_topic_without_the_right_to_see_it_fails_at_once_and_works_after_the_grant",
})  # fmt: skip
"""Names of tests: what our requests in older versions are most likely to get wrong."""


NOT_WITH_ZOOKEEPER: Final = ("test_security_on_real_brokers.py", "test_kafka_security.py")
"""2.8 takes no unencrypted PEM key, and has no tool of ours that makes SCRAM users; PLAIN is in the tests of rights."""


SINCE: Final = {"test_telemetry_on_real_brokers.py": (3, 7)}  # KIP-714


def is_left_out(file: str) -> bool:
    """Return whether the release that the environment names cannot run these tests."""
    only = os.environ.get(VARIABLE)
    if only is None:
        return False
    version = version_tuple(only)
    return version < SINCE.get(file, version) or (version < (3, 0) and file in NOT_WITH_ZOOKEEPER)


def versions_for(test: str) -> list[Any]:
    """Return the parameters of `kafka_version` for this test."""
    if only := os.environ.get(VARIABLE):
        return [only]
    older = [pytest.param(version, marks=pytest.mark.slow) for version in OLDER] if test in ON_OLDER else []
    return [DEFAULT_VERSION, *older]
