"""A command takes the options of a program that writes in transactions, and does not fence that program."""

from __future__ import annotations

import pytest
from cli_runs import run

from aiokprod.testing import MockCluster


@pytest.mark.parametrize(
    "command", ["produce t", "verify t -n 3", "perf t -n 3 --client aiokprod", "doctor t --send", "demo -n 3"]
)
def test_a_transactional_id_is_not_used(command: str) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        done = run(cluster, *command.split(), "-b", servers, "-X", "transactional.id=app", input=b"v\n")
        assert done.exit_code == 0, done.output
        described = run(cluster, "transactions", "describe", "app")
    assert "no coordinator knows the transactional id 'app'" in described.stderr
    is_told = "transactional_id is not used: records are sent outside of transactions" in done.stderr
    assert is_told is not command.startswith("doctor")
