"""bench/outages.py: what counts as a line about an outage, and its section of the page."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import outages
import pytest
from outages import CLIENTS, OUTAGES, Seen, judged, section

PAGE = Path(__file__).parents[2] / "docs" / "outages.md"
BY_NAME = {outage.name: outage for outage in OUTAGES}
LOGGER = {client: names[0] for client, names in outages.LOGGERS.items()}
SAID = {
    "No brokers": "<BrokerConnection node_id=1> Connect attempt returned error 111. Disconnecting.",
    "One broker": "127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused",
    "A frozen broker": "orders-0 has had no outcome for 10 s",
    "A slow broker": "2 request(s) timed out: disconnect",
    "Not enough replicas": "Got error produce response: NotEnoughReplicasError",
    "A storage error": "was answered KAFKA_STORAGE_ERROR",
    "No leader": "[Error 6] NotLeaderForPartitionError",
    "A topic that is deleted": "Topic orders not found in cluster metadata",
    "An unknown topic": "the call raised UnknownTopicOrPartitionError: ",
    "No right": "[Error 29] TopicAuthorizationFailedError",
    "A quota": "Broker 1 throttled the producer for 2.0 s",
    "Messages that are too large": "MESSAGE_TOO_LARGE",
    "A bad password": "SASL authentication error",
}


def line(at: float, text: str, level: int = logging.WARNING, logger: str = "kafka.client") -> dict[str, object]:
    return {"kind": "line", "at": at, "level": level, "logger": logger, "text": text}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.name)
def test_the_words_of_any_client_count(outage: outages.Outage, client: str) -> None:
    seen = judged(client, outage, [line(103.4, SAID[outage.name], logger=LOGGER[client])], 100.0, 120.0)
    assert (seen.first_s, seen.lines, seen.first) == (pytest.approx(3.4), 1, SAID[outage.name])
    assert seen.cell() == "3 s, 1 line"


def test_lines_of_calm_of_others_and_below_warning_do_not_count() -> None:
    events = [
        line(99.0, "throttled for once"),
        line(101.0, "throttled", logging.INFO),
        line(102.0, "throttled", logger="another"),
        line(103.0, "something else"),
        line(120.5, "throttled"),
    ]
    seen = judged("kafka-python", BY_NAME["A quota"], events, 100.0, 120.0)
    assert (seen.lines, seen.others, seen.after) == (0, ["something else"], ["throttled"])
    assert seen.cell() == "nothing in 20 s"


def test_what_a_client_says_in_calm_as_well_is_no_sign() -> None:
    events = [line(at, f"Sending the password of connection {at:.0f} in the clear") for at in (98.0, 101.0)]
    seen = judged("kafka-python", BY_NAME["A bad password"], events, 100.0, 120.0)
    assert (seen.lines, seen.others) == (0, [])


def test_a_call_that_raises_counts_for_each_client() -> None:
    events = [line(101.0, "the call raised MessageSizeTooLargeError", logger="service")]
    assert [
        judged(client, BY_NAME["Messages that are too large"], events, 100.0, 120.0).lines for client in CLIENTS
    ] == [1] * 4


@pytest.mark.parametrize(("at", "text", "is_said"), [
    (121.0, "INFO <BrokerConnection host=127.0.0.1:9092 [IPv4 ('127.0.0.1', 9092)]>: Connection complete.", True),
    (121.0, "WARNING cluster [shop]: broker 1 can be used again, after 20 s", True),
    (121.0, "WARNING Closing connection: refused", False),
    (121.0, "INFO no known broker can be reached; asking the bootstrap servers again", False),
    (121.0, "ERROR <KafkaConnection node_id=1 (connected)>: Connection lost", False),
    (126.0, "INFO broker 1 can be used again", False),
])  # fmt: skip
def test_the_end_is_said_within_five_seconds(at: float, text: str, is_said: bool) -> None:
    seen = judged("kafka-python", BY_NAME["No brokers"], [line(at, text, logging.INFO)], 100.0, 120.0)
    assert seen.end_said == is_said


def test_health_is_that_of_15_s_after_the_beginning() -> None:
    states = [("READY", 99.0, ""), ("DEGRADED", 114.5, "no leader"), ("FAILED", 115.5, "")]
    events = [{"kind": "health", "at": at, "state": state, "reason": reason} for state, at, reason in states]
    assert judged("aiokprod", BY_NAME["No leader"], events, 100.0, 120.0).health == "DEGRADED: no leader"


def test_the_section_has_a_row_for_each_outage() -> None:
    seen = {client: Seen(first_s=0.4, lines=3, end_said=True, health="DEGRADED: why") for client in CLIENTS}
    text = section({"No brokers": seen, "A quota": seen | {"aiokafka": Seen()}}, {"aiokafka": "0.14.0"})
    assert "| No brokers | 0 s, 3 lines, and the end | 0 s, 3 lines, and the end |" in text
    assert "| A quota | 0 s, 3 lines, and the end | nothing in 20 s |" in text
    assert "not READY in 2 of 2.\nVersions: aiokafka 0.14.0.\n" in text


def test_the_section_is_put_at_the_end_of_the_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## One\n", encoding="utf-8")
    monkeypatch.setattr(outages, "PAGE", page)
    for _ in range(2):
        outages.write(section({}, {}))
    text = page.read_text(encoding="utf-8")
    assert text == "# Page\n\n## One\n\n" + section({}, {})


def test_the_page_explains_each_outage_and_has_its_row() -> None:
    head, mark, bench = PAGE.read_text(encoding="utf-8").partition(outages.MARK)
    assert mark
    sections = re.findall(r"^## (.*)$", head, flags=re.MULTILINE)
    assert [name for name in sections if name in BY_NAME] == list(BY_NAME)
    assert [row for row in re.findall(r"^\| (.*?) \| \S", bench, flags=re.MULTILINE) if row in BY_NAME] == list(BY_NAME)
