"""`aiokprod perf`, and its plots."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random

import pytest
from cli_runs import objects, ok, run

from aiokprod.cli.perf import OURS, THEIRS, Load, check_file, measure_ours, options_of_librdkafka
from aiokprod.cli.perf_plots import bars, name_of_share, percentile, shares_of, svg
from aiokprod.config import ProducerConfig
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual


def test_both_clients_send_the_same_load_one_after_another() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        ours, theirs = objects(ok(cluster, "perf", "t", "-n", "1500", "--size", "20", "--json"))
        assert (ours["client"], theirs["client"]) == (OURS, THEIRS)
        for found in (ours, theirs):
            assert (found["acknowledged"], found["failed"]) == (1500, 0)
            assert list(found["latency_ms"]) == ["p50", "p75", "p90", "p95", "p99", "p99.9", "max"]
        assert [record.value for record in cluster.records("t")] == [bytes(20)] * 3000


def test_a_topic_is_made_for_it_and_deleted(tmp_path: Path) -> None:
    picture = tmp_path / "latency.svg"
    with MockCluster(1, auto_create_topics=False) as cluster:
        told = ok(cluster, "perf", "-n", "200", "--client", OURS, "--rate", "100000", "--svg", str(picture))
        assert "aiokprod: 200 records" in told and "   p50 " in told and "MiB per second" in told
        assert cluster.topics == {}
    assert "200 records of 100 bytes, 100000 per second" in picture.read_text()


@pytest.mark.parametrize("place", ["missing/latency.svg", "file/latency.svg"])
def test_a_picture_that_cannot_be_written_is_told_before_a_record_is_sent(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with MockCluster(1, auto_create_topics=False) as cluster:
        done = run(cluster, "perf", "-n", "1", "--client", OURS, "--svg", str(tmp_path / place))
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"aiokprod perf: {tmp_path / place}: ") and done.stderr.count("\n") == 1
        assert cluster.requests_seen("CreateTopics") == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]


def test_a_picture_that_may_not_be_written_over_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "latency.svg"
    check_file(picture)
    assert not picture.exists()
    picture.write_text("earlier")
    check_file(picture)
    assert picture.read_text() == "earlier"
    monkeypatch.setattr("os.access", lambda path, mode: False)  # which root may always do
    with pytest.raises(PermissionError, match=re.escape(str(picture))):
        check_file(picture)


def test_records_that_fail_make_the_status_1() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        cluster.fail_next("Produce", "POLICY_VIOLATION", times=None)
        done = run(cluster, "perf", "t", "-n", "10", "--client", OURS)
        assert done.exit_code == 1 and "10 failed; the first:" in done.stderr and "POLICY_VIOLATION" in done.stderr
        assert "Correct what the broker names" in done.stderr


def test_a_pause_of_the_cluster_counts_for_every_record_that_was_due_in_it() -> None:
    """A broker that answers nothing for a second, at 100 records per second: a hundred of them are late, not a single one."""

    async def scenario(network: VirtualNetwork, draw: Random) -> list[float]:
        async with MockCluster(1, network=network) as cluster:
            cluster.create_topic("t")
            cluster.delay_next("Produce", 1.0, times=1)
            config = ProducerConfig(
                bootstrap_servers=cluster.bootstrap_servers,
                dialer=network.dial,
                max_in_flight_requests_per_connection=1,
            )
            found = await measure_ours(config, Load("t", 300, b"v", 100.0))
        assert (found.acknowledged, found.failed) == (300, 0)
        return found.latencies_s

    latencies = run_virtual(scenario, seed=1)
    late = [each for each in latencies if each > 0.1]
    assert 85 <= len(late) <= 105
    assert max(late) > 0.95 and 0.4 < percentile(sorted(late), 0.5) < 0.65


def test_the_options_of_the_other_client_mean_the_same() -> None:
    config = ProducerConfig(
        bootstrap_servers="a:1,[::1]:2", linger_ms=7, acks=1, compression_type="gzip", security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="pw", ssl_cafile="/ca.pem", ssl_check_hostname=False,
    )  # fmt: skip
    made = options_of_librdkafka(config)
    assert made["bootstrap.servers"] == "a:1,[::1]:2"
    assert (made["linger.ms"], made["acks"], made["compression.type"], made["sasl.password"]) == (7, 1, "gzip", "pw")
    assert (made["ssl.ca.location"], made["ssl.endpoint.identification.algorithm"]) == ("/ca.pem", "none")
    made["ssl.ca.location"] = "/etc/ssl/certs/ca-certificates.crt"
    if Path(made["ssl.ca.location"]).exists():
        import confluent_kafka

        confluent_kafka.Producer(made)  # it knows them all


@pytest.mark.parametrize("place", [".", "dangling.svg"])
def test_a_picture_that_cannot_be_drawn_is_told_before_the_measurement(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dangling.svg").symlink_to("missing/latency.svg")
    with MockCluster(1) as cluster:
        done = run(cluster, "perf", "-n", "1", "--client", OURS, "--svg", place)
        assert (done.exit_code, done.stdout, cluster.topics) == (2, "", {})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_told_with_the_name_of_the_picture() -> None:
    with MockCluster(1) as cluster:
        done = run(cluster, "perf", "-n", "1", "--client", OURS, "--svg", "/dev/full")
    assert (done.exit_code, done.stderr) == (2, "aiokprod perf: /dev/full: No space left on device\n")


def test_a_picture_is_drawn_also_if_the_topic_cannot_be_deleted(tmp_path: Path) -> None:
    picture = tmp_path / "latency.svg"
    with MockCluster(1) as cluster:
        cluster.fail_next("DeleteTopics", "TOPIC_AUTHORIZATION_FAILED")
        done = run(cluster, "perf", "-n", "1", "--client", OURS, "--svg", str(picture))
    assert (done.exit_code, "is not deleted" in done.stderr, picture.exists()) == (2, True, True), done.output


def test_a_record_that_the_other_client_refuses_has_failed() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        done = run(cluster, "perf", "t", "-n", "2", "--client", THEIRS, "--size", "2000000")
    assert done.exit_code == 1 and "confluent-kafka: 2 failed; the first: " in done.stderr


def test_an_option_that_the_other_client_refuses_is_one_line() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        done = run(cluster, "perf", "t", "-n", "1", "--client", THEIRS, "-X", "linger.ms=1000000000")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert done.stderr.startswith("aiokprod perf: confluent-kafka: ") and "outside allowed range" in done.stderr
    assert "network" not in done.stderr


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokprod.cli.perf.find_spec", lambda name: None)
    done = run(None, "perf", "--client", THEIRS, "-b", "kafka:9092")
    assert done.exit_code == 2 and "pip install confluent-kafka" in done.stderr


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0), (0.0, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == value


def test_only_percentiles_that_so_many_values_can_tell_are_shown() -> None:
    assert [name_of_share(share) for share in shares_of(100)] == ["p50", "p75", "p90", "p95", "p99", "max"]
    assert [name_of_share(share) for share in shares_of(1)] == ["max"]
    assert name_of_share(0.9999) == "p99.99"


def test_bars_grow_with_the_latency() -> None:
    lines = bars([0.001] * 90 + [0.01] * 9 + [1.0])
    assert [line.count("#") for line in lines] == [14, 14, 14, 21, 21, 35]
    assert [bars([value])[0].count("#") for value in (0.0, 1e-5, 10.0, 1e6)] == [1, 1, 42, 42]
    assert lines[0].split()[:3] == ["p50", "1.000", "ms"]
    assert bars([]) == []


@pytest.mark.parametrize("values", [[0.001], [0.0, 0.0], [0.001 * n for n in range(1, 2000)], []])
def test_the_picture_is_svg_with_a_curve_per_client(values: list[float]) -> None:
    picture = svg({"one": values, "<two>": [0.002, 0.004]}, "a & b")
    root = ET.fromstring(picture)
    curves = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(curves) == (2 if values else 1)
    texts = [text.text for text in root.findall("{http://www.w3.org/2000/svg}text")]
    assert "a & b" in texts and "<two>" in texts
    for curve in curves:
        for point in curve.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 760 and 0 <= y <= 420
