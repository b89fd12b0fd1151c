"""`aiokprod ping`."""

from __future__ import annotations

from cli_runs import objects, ok, run

from aiokprod.testing import MockCluster


def test_each_broker_answers_and_is_timed() -> None:
    with MockCluster(3, racks=["a", None, "b"]) as cluster:
        first, head, *rows = ok(cluster, "ping", "-n", "2").splitlines()
        assert first == f"cluster {cluster.cluster_id}, controller 1"
        assert head.split()[:3] == ["BROKER", "ADDRESS", "RACK"]
        assert [row.split()[0] for row in rows] == ["1", "2", "3"]
        found = objects(ok(cluster, "ping", "-n", "2", "--interval", "0.001", "--json"))
        assert [(each["broker"], each["rack"], len(each["round_trip_ms"]), each["error"]) for each in found] == [
            (1, "a", 2, None), (2, None, 2, None), (3, "b", 2, None),
        ]  # fmt: skip
        assert all(0 <= each["connect_ms"] < 30_000 for each in found)


def test_a_broker_that_does_not_answer_makes_the_status_1() -> None:
    with MockCluster(2) as cluster:
        cluster.advertise(2, "127.0.0.1", 1)
        done = run(cluster, "ping", "-n", "1", "--timeout", "20", "-b", cluster.bootstrap_servers.split(",")[0])
        assert done.exit_code == 1
        assert "broker 2 did not answer" in done.stderr
        assert done.stdout.splitlines()[-1].split()[3:] == ["-", "-", "-", "-"]


def test_no_cluster_is_status_2() -> None:
    done = run(None, "ping", "-b", "127.0.0.1:1", "-X", "start.timeout.ms=50")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "127.0.0.1:1" in done.stderr


def test_the_name_of_a_cluster_does_not_steer_a_terminal() -> None:
    with MockCluster(1, cluster_id="a\x1b[31mb", racks=["\x1b[32m"]) as cluster:
        told = ok(cluster, "ping", "-n", "1")
        assert "cluster a\\x1b[31mb," in told and "\x1b" not in told
