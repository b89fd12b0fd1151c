"""`TopicLines`: topics that are not there have a line at the second answer, and one when they appear; another id has one."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from aiokprod.cluster.topic_lines import TOLD_TOPICS, UNKNOWN, TopicLines
from aiokprod.logs import StateLog

OLD, NEW = bytes(range(16)), bytes(range(16, 32))


class Cluster:
    """A client of a cluster whose answers the test makes."""

    def __init__(self) -> None:
        self.log = StateLog("cluster", client_id="shop")
        self.lines = TopicLines(self.log, "60 s (max_block_ms)", may_create=True)
        self.snapshot = ClusterSnapshot()

    def answer(self, now: float, *topics: TopicSnapshot) -> None:
        new = ClusterSnapshot(topics=MappingProxyType({topic.name: topic for topic in topics}))
        self.lines.changed(self.snapshot, new, now)
        self.snapshot = new
        self.lines.answered(new, now)


def there(name: str, topic_id: bytes = OLD, incarnation: int = 0) -> TopicSnapshot:
    partitions = (PartitionSnapshot(0, 1, 0),)
    return TopicSnapshot(name=name, topic_id=topic_id, partitions=partitions, incarnation=incarnation)


def gone(name: str, code: int = UNKNOWN) -> TopicSnapshot:
    return TopicSnapshot(name=name, topic_id=OLD, error_code=code)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().removeprefix("cluster [shop]: ") for record in caplog.records]


def test_a_topic_that_appears_after_its_line_has_another(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.answer(1.0, gone("a"), gone("b"))
    assert not caplog.records
    cluster.answer(2.0, gone("a"), gone("b"))
    assert len(caplog.records) == 1 and "does not know topics 'a', 'b'" in caplog.text
    cluster.answer(3.0, gone("a"), gone("b", code=5))  # it is being created
    cluster.answer(4.5, gone("a"), there("b"))
    cluster.answer(5.0, there("a"), there("b"))
    cluster.answer(6.0, there("a"), there("b"))
    assert texts(caplog)[1:] == ["topic 'b' is there now, after 2.5 s", "topic 'a' is there now, after 3.0 s"]
    assert cluster.log.last_error is not None and "does not know" in cluster.log.last_error


def test_topics_that_appear_together_share_a_line(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"t{number}" for number in range(10)]
    for at in (1.0, 2.0):
        cluster.answer(at, *map(gone, names))
    cluster.answer(7.0, *map(there, names))
    assert texts(caplog)[1:] == ["topics 't0', 't1', 't2' and 7 more are there now, after up to 5.0 s"]


def test_a_topic_without_a_line_has_no_end(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.answer(1.0, gone("created"))
    cluster.answer(2.0, there("created"))
    assert not caplog.records
    for at in (1.0, 2.0):
        cluster.answer(at, gone("given-up"), gone("refused"))
    caplog.clear()
    cluster.answer(3.0, gone("refused", code=29))
    cluster.answer(4.0, there("given-up"), there("refused"))
    assert not caplog.records


def test_a_line_that_the_pace_holds_back_has_no_end(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for at in (1.0, 2.0):
        cluster.answer(at, gone("a"))
    cluster.answer(3.0, there("a"))
    caplog.clear()
    for at in (4.0, 5.0):
        cluster.answer(at, gone("a"))
    cluster.answer(6.0, there("a"))
    assert not caplog.records


def test_another_id_of_a_topic_is_told_with_both(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.answer(1.0, there("a"))
    cluster.answer(2.0, there("a", NEW))
    assert texts(caplog) == [
        "topic 'a' was deleted and made again: its id was AAECAwQFBgcICQoLDA0ODw, and is EBESExQVFhcYGRobHB0eHw."
        " Records that were acknowledged before are gone with the former one"
    ]
    assert vars(caplog.records[0])["kafka_topic"] == "a"
    cluster.answer(3.0, there("a", NEW))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("before", "after", "is_told"), [(0, 0, False), (0, 1, True)])
def test_without_ids_what_epochs_show_is_told(
    before: int, after: int, is_told: bool, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    none = bytes(16)
    cluster.answer(1.0, there("a", none, before))
    cluster.answer(2.0, there("a", OLD if not is_told else none, after))
    assert ["brokers tell no ids" in text for text in texts(caplog)] == [True] * is_told


def test_many_topics_that_are_made_again_share_a_line(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"t{number}" for number in range(50)]
    cluster.answer(1.0, *map(there, names))
    cluster.answer(2.0, *(there(name, NEW) for name in names))
    assert len(caplog.records) == TOLD_TOPICS + 1
    assert texts(caplog)[-1] == "47 more topics were deleted and made again"
