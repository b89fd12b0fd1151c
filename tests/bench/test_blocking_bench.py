"""bench/blocking.py: each client sends its records, and the table compares round by round."""

from __future__ import annotations

import blocking
import pytest

from aiokprod.testing import MockCluster


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python, on Python 3.11
@pytest.mark.parametrize("client", blocking.CLIENTS)
def test_each_client_sends_every_record(client: str) -> None:
    with MockCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        figures = blocking.turn(client, cluster.bootstrap_servers, "t", windows=2, window=100, alone=5)
        assert list(figures) == list(blocking.FIGURES) and all(figure > 0 for figure in figures.values())
        assert len(cluster.records("t")) == 3 * 100 + 5  # those of the warm-up too


def test_the_table_compares_round_by_round() -> None:
    ours = {"window_cpu_us": 2.0, "window_rate": 100.0, "alone_cpu_us": 2.0, "alone_rate": 30.0}
    other = {"window_cpu_us": 8.0, "window_rate": 50.0, "alone_cpu_us": 1.0, "alone_rate": 10.0}
    rows = blocking.table([{blocking.OURS: ours, "other": other}] * 2).splitlines()[2:]
    assert [row.split("|")[4].split()[0] for row in rows] == ["4.00", "2.00", "0.50", "3.00"]
