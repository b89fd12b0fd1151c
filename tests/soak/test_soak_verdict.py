"""The judge on histories made by hand: each wrong thing alone, and next to it what looks like it and is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from book import Book
from evidence import Complaint, Done, Evidence, Life, Verdict
from figures import figures_of, throttled_ms
from footprint import in_use_bytes
from recovery import recoveries_of
from report import write_report
from values import DAMAGED, identity_of, value_of
from verdict import complaints_of, cpu_while_all_down, growth_bytes_per_h, most_metadata_per_s

from aiokprod.testing.checker import LogRecord

CLEAN = {"hasty": False, "undelivered": 0, "buffer_used_bytes": 0, "leaks": []}


def book_of(*lines: str, life: str = "five-0", report: dict[str, Any] | None = None, ended: bool = True) -> Book:
    """Return a life with one producer, open from 0 to 900; its delivery timeout is 10 s."""
    whole = [f'S 0.0 {life}/0 {{"delivery_timeout_ms": 10000}}', *lines]
    if ended:
        whole += [f"C 900.0 {life}/0 {json.dumps(CLEAN | (report or {}))}", "E 900.1"]
    return Book.of(life, (line.encode() for line in whole))


def evidence_of(
    book: Book, *stored: tuple[int, int, int], topic: str = "t", injections: list[Done] | None = None, **life: Any
) -> Evidence:
    """Return the evidence. `stored`: partition, offset, number of the record."""
    log = [LogRecord(topic, partition, offset, b"five-0:%d" % number) for partition, offset, number in stored]
    facts: dict[str, Any] = {"name": "five-0", "client": "five", "log": ""} | life
    return Evidence(
        began=0.0,
        ended=1.0,
        lives=[Life(book=book, **facts)],
        injections=injections or [],
        log=log,
        volatile=frozenset({"cycle"}),
    )


def checks_of(evidence: Evidence) -> list[str]:
    return [each.check for each in complaints_of(evidence)]


def sent(number: int, told: str | None = None, *, at: float = 1.0, partition: str = "0", topic: str = "t") -> list[str]:
    """Return the lines of a record, `told` being a letter and facts."""
    lines = [f"i {number} {at} {topic} {partition} - 100"]
    if told is not None:
        letter, _, facts = told.partition(" ")
        lines.append(f"{letter} {number} {at + 0.5} {facts}".rstrip())
    return lines


def test_a_history_in_which_all_is_well_is_good() -> None:
    book = book_of(
        *sent(0, "o 0 0"), *sent(1, "n UnknownTopicError"), *sent(2, "p DeliveryTimeoutError"), *sent(3, "d")
    )
    evidence = evidence_of(book, (0, 0, 0), (0, 1, 2))
    assert checks_of(evidence) == []
    assert figures_of(evidence)["possibly in the log, as told"] == 1
    assert figures_of(evidence)["possibly in the log: handle cancelled"] == 1


@pytest.mark.parametrize(
    ("lines", "stored", "check"),
    [
        (sent(0, "o 0 0"), [], "lost"),
        (sent(0, "o 0 5"), [(0, 6, 0)], "wrong offset"),
        (sent(0, "o 0 0"), [(0, 0, 0), (0, 1, 0)], "duplicate"),
        (sent(0, "p Lost"), [(0, 0, 0), (0, 1, 0)], "duplicate"),
        (sent(0, "n Lost"), [(0, 0, 0)], "wrong persistence"),
        (sent(0, "o 0 0"), [(0, 0, 0), (0, 1, 7)], "ghost"),
        (sent(0, "o 0 1") + sent(1, "o 0 0"), [(0, 0, 1), (0, 1, 0)], "reordered"),
        (sent(0), [], "unresolved"),
        ([*sent(0, "o 0 0"), "o 0 2.0 0 0"], [(0, 0, 0)], "settled twice"),
        (["i 0 1.0 t 0 - 100", "o 0 12.5 0 0"], [(0, 0, 0)], "late"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_wrong_thing_about_a_record_is_told(
    lines: list[str], stored: list[tuple[int, int, int]], check: str
) -> None:
    assert checks_of(evidence_of(book_of(*lines), *stored)) == [check]


def test_a_killed_producer_need_not_have_told_but_may_not_have_lied() -> None:
    book = book_of(*sent(0), *sent(1, "o 0 1"), ended=False)
    assert checks_of(evidence_of(book, (0, 1, 1), killed_at=3.0, status=None)) == []
    book = book_of(*sent(0), *sent(1, "o 0 1"), ended=False)
    assert checks_of(evidence_of(book, (0, 0, 0), killed_at=3.0, status=None)) == ["lost"]


def test_a_stopped_producer_may_be_as_late_as_it_was_stopped() -> None:
    lines = ["i 0 1.0 t 0 - 100", "p 0 16.0 DeliveryTimeoutError"]
    assert checks_of(evidence_of(book_of(*lines), away=[(2.0, 8.0)])) == []
    assert checks_of(evidence_of(book_of(*lines), away=[(2.0, 4.0), (20.0, 30.0)])) == ["late"]


def test_what_was_delivered_to_a_topic_that_was_deleted_may_be_gone_but_not_twice_there() -> None:
    lines = sent(0, "o 0 0", topic="cycle")
    assert checks_of(evidence_of(book_of(*lines), topic="cycle")) == []
    twice = evidence_of(book_of(*lines), (0, 0, 0), (0, 1, 0), topic="cycle")
    assert checks_of(twice) == ["duplicate"]


def test_a_key_has_one_partition_unless_its_topic_grows() -> None:
    def lines(topic: str) -> Iterator[str]:
        for number in (0, 1):
            yield f"i {number} 1.0 {topic} - 33 100"
            yield f"o {number} 1.5 {number} 0"

    assert checks_of(evidence_of(book_of(*lines("t")), (0, 0, 0), (1, 0, 1))) == ["key moved"]
    growing = "soak-growing"
    assert checks_of(evidence_of(book_of(*lines(growing)), (0, 0, 0), (1, 0, 1), topic=growing)) == []


def test_a_damaged_record_is_told() -> None:
    evidence = evidence_of(book_of())
    evidence.log.append(LogRecord("t", 0, 0, (DAMAGED, 0)))
    assert checks_of(evidence) == [DAMAGED]
    value = value_of("five-0", 17, 300, "t", b"key-1")
    assert identity_of(value, "t", b"key-1") == b"five-0:17"
    assert identity_of(value[:-1], "t", b"key-1") is None
    assert identity_of(value.replace(b"five-0:17", b"five-0:16"), "t", b"key-1") is None
    assert identity_of(value, "u", b"key-1") is None
    assert identity_of(value, "t", b"key-2") is None
    assert identity_of(value, "t", None) is None
    assert identity_of(None) is None


@pytest.mark.parametrize(
    ("report", "check"),
    [
        ({"buffer_used_bytes": 10}, "memory"),
        ({"leaks": ["leaked tasks: 1 tasks were left: flusher-3"]}, "leak"),
        ({"undelivered": 3}, "end"),
        ({"undelivered": 3, "hasty": True}, None),
        ({"leaks": ["leaked threads: 1 threads were left: AnyIO worker thread 7"]}, None),
    ],
)
def test_what_a_closed_producer_leaves_behind_is_told(report: dict[str, Any], check: str | None) -> None:
    assert checks_of(evidence_of(book_of(report=report))) == ([] if check is None else [check])


def test_a_life_that_does_not_end_in_order_is_told() -> None:
    assert checks_of(evidence_of(book_of(), status=1)) == ["end"]
    assert checks_of(evidence_of(book_of(ended=False), status=None)) == ["end", "end"]


def test_noise_is_told() -> None:
    log = "five-0: retry\nTask exception was never retrieved\n"
    assert checks_of(evidence_of(book_of(), log=log)) == ["noise"]


def test_a_password_in_a_log_is_told() -> None:
    assert checks_of(evidence_of(book_of(), log="login with 'canary of the soak'\n")) == ["noise"]


def test_too_few_logins_and_records_that_are_not_committed_are_told() -> None:
    evidence = evidence_of(book_of())
    evidence.ended, evidence.session_s = 50.0, 5.0
    evidence.authentications = 4
    assert checks_of(evidence) == ["bug of the soak"]
    evidence.authentications = 5
    assert checks_of(evidence) == []
    evidence.uncommitted = 1
    assert checks_of(evidence) == ["uncommitted"]


def test_a_quota_is_met_where_its_client_is_throttled_meanwhile() -> None:
    book = book_of(*samples("throttle_seconds", 0, 0, 0, 0.5, 2, 2, 2, 7))
    injection = Done(kind="quota", text="", began=2.0, settled=4.0, client="five")
    assert throttled_ms(evidence_of(book), injection) == 2000
    assert throttled_ms(evidence_of(book), Done(kind="quota", text="", began=2.0, settled=4.0, client="one")) == 0


def test_a_turn_of_the_loop_is_long_by_what_we_computed_in_it() -> None:
    assert checks_of(evidence_of(book_of("l 5.0 2.0 0.3"))) == ["stall"]
    assert checks_of(evidence_of(book_of("l 5.0 2.0 0.03"))) == [], "others had the processors"
    assert checks_of(evidence_of(book_of("l 5.0 2.0 0.3"), away=[(3.0, 4.9)])) == [], "we blocked it"


def samples(name: str, *values: float) -> list[str]:
    return [f'm {second} {{"{name}": {value}}}' for second, value in enumerate(values)]


def test_storms_of_metadata_and_of_dials_are_told() -> None:
    assert checks_of(evidence_of(book_of(*samples("metadata_refreshes", *range(0, 60, 3))))) == ["storm"]
    assert checks_of(evidence_of(book_of(*samples("metadata_refreshes", *range(20))))) == []
    busy = [0, 5, 8, 11, 14, 16, 18]  # for ten seconds it would be a storm

    def opened(at: float) -> str:
        return f'S {at} five-0/{at} {{"delivery_timeout_ms": 10000}}'

    again = [f'm {7 + second} {{"metadata_refreshes": {value}}}' for second, value in enumerate(busy)]
    closed = f"C 6.5 five-0/0 {json.dumps(CLEAN)}"
    book = book_of(*samples("metadata_refreshes", *busy), closed, opened(6.6), *again)
    assert [check for check in checks_of(evidence_of(book)) if check != "end"] == [], "two producers, each by itself"
    assert "storm" in checks_of(evidence_of(book_of(*samples("metadata_refreshes", *busy, *range(20, 30, 2)))))
    assert 2 < most_metadata_per_s({}) < 3 < most_metadata_per_s({"retry_backoff_ms": 10}) < 5
    hasty = 'S 7.0 five-0/7 {"delivery_timeout_ms": 10000, "retry_backoff_ms": 10}'
    for per_s, told in ((3, []), (6, ["storm"])):
        quick = [f'm {7 + second} {{"metadata_refreshes": {per_s * second}}}' for second in range(20)]
        found = checks_of(evidence_of(book_of(closed, hasty, *quick, ended=False)))
        assert [check for check in found if check != "end"] == told, "the backoff of its own options"
    topics = [line for number in range(12) for line in sent(number, "n UnknownTopicError", topic=f"t-{number}")]
    many = book_of(*topics, *samples("metadata_refreshes", 0, 14, 16, *range(18, 30)))
    assert checks_of(evidence_of(many)) == [], "one request for each new topic is no storm"
    evidence = evidence_of(book_of())
    evidence.dials = [(float(second), {1: 4 * second, 2: 6 * second}) for second in range(20)]
    assert [str(each)[:20] for each in complaints_of(evidence)] == ["storm: broker 2 was "]


def test_memory_that_grows_for_hours_is_told() -> None:
    def life(slope: float, pile: float = 0.0) -> Evidence:
        """Return a life with a pile of memory for four minutes of five, higher each time."""
        piles = [0 if second % 300 == 0 else pile * second for second in range(0, 7200, 60)]
        values = [5e7 + slope * 60 * number + more for number, more in enumerate(piles)]
        return evidence_of(book_of(*(f'm {60 * n} {{"in_use": {value}}}' for n, value in enumerate(values))))

    assert checks_of(life(1000.0)) == ["memory"]
    assert checks_of(life(100.0)) == []
    assert growth_bytes_per_h(life(100.0).lives[0]) == pytest.approx(360_000)
    assert checks_of(life(100.0, pile=5e3)) == [], "what waits in an outage is no leak"
    assert growth_bytes_per_h(life(100.0).lives[0], "rss") is None


def test_what_is_in_use_is_told() -> None:
    before = in_use_bytes()
    held = [bytes(20_000_000), [object() for _ in range(100_000)]]
    assert in_use_bytes() > before + 6_000_000
    held.clear()
    assert in_use_bytes() < before + 2_000_000


def test_a_minute_without_acknowledgements_is_told_unless_a_majority_was_away() -> None:
    lines = [line for number in range(100) for line in sent(number, f"o 0 {number}", at=number / 100)]
    stored = [(0, number, number) for number in range(100)]

    def lived(ended: float, injections: list[Done]) -> list[str]:
        evidence = evidence_of(book_of(*lines), *stored, injections=injections)
        evidence.ended = ended
        return checks_of(evidence)

    assert lived(60.0, []) == []
    assert lived(130.0, []) == ["dead"] * 4
    assert lived(130.0, [Done(kind="freeze", text="", began=3.0, settled=130.0)]) == ["dead"] * 4
    assert lived(130.0, [Done(kind="freeze two", text="", began=3.0, settled=130.0)]) == []


def test_a_patient_producer_that_does_not_know_of_many_records_is_told() -> None:
    def unsure(timeout_ms: int, lines: list[str]) -> list[str]:
        book = book_of(*lines)
        book.sessions[0].settings["delivery_timeout_ms"] = timeout_ms
        return checks_of(evidence_of(book))

    lost = [line for number in range(11) for line in sent(number, "p ConnectionLostError")]
    detached = [line for number in range(11) for line in sent(number, "d")]
    assert unsure(120_000, lost) == ["unsure"]
    assert unsure(120_000, lost[:-2]) == [], "ten are few"
    assert unsure(120_000, detached) == []
    assert unsure(10_000, lost) == []


def test_the_processor_time_without_any_broker_is_measured() -> None:
    lines = [f'm {second} {{"cpu_s": {0.05 * second}}}' for second in range(20)]
    injections = [
        Done(kind="freeze all", text="", began=1.0, healed=15.0),
        Done(kind="freeze", text="", began=1.0, healed=15.0),
    ]
    assert cpu_while_all_down(evidence_of(book_of(*lines), injections=injections)) == [pytest.approx(0.05)]
    assert checks_of(evidence_of(book_of(*lines), injections=injections)) == []
    busy = [f'm {second} {{"cpu_s": {0.11 * second}}}' for second in range(20)]
    assert "busy" in checks_of(evidence_of(book_of(*busy), injections=injections))


def test_a_bug_of_the_soak_itself_makes_it_bad() -> None:
    injection = Done(kind="kill", text="kill", began=0.0, failure="KeyError", is_bug=True)
    assert checks_of(evidence_of(book_of(), injections=[injection])) == ["bug of the soak"]


def test_recovery_is_the_time_from_the_end_of_a_fault_to_the_usual_rate() -> None:
    times = [second + part / 10 for second in (*range(10), *range(15, 30)) for part in range(10)]
    lines = [line for number, at in enumerate(times) for line in sent(number, f"o 0 {number}", at=at - 0.5)]
    kill = Done(kind="kill", text="", began=10.0, healed=12.0, settled=13.0)
    within = Done(kind="kill client", text="", began=10.5, healed=10.6, settled=10.6)
    evidence = evidence_of(book_of(*lines), injections=[kill, within])
    evidence.ended = 30.0
    assert recoveries_of(evidence) == [(kill, 3.0)]


@pytest.mark.parametrize(("well_at", "checks"), [(20, []), (26, ["slow"])])
def test_a_cluster_that_is_whole_and_a_producer_that_is_not_well_ten_seconds_later_is_told(
    well_at: int, checks: list[str]
) -> None:
    times = [second + part / 10 for second in (*range(10), *range(well_at, 50)) for part in range(10)]
    lines = [line for number, at in enumerate(times) for line in sent(number, f"o 0 {number}", at=at - 0.5)]
    kill = Done(kind="kill", text="", began=10.0, healed=12.0, settled=15.0)
    evidence = evidence_of(book_of(*lines), *((0, number, number) for number in range(len(times))), injections=[kill])
    evidence.ended = 50.0
    assert checks_of(evidence) == checks


def test_a_torn_last_line_of_a_killed_life_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "five-0.book"
    path.write_bytes(b'S 0.0 five-0/0 {"delivery_timeout_ms": 10000}\ni 0 1.0 t 0 - 9\ni 1 1.0 t')
    book = Book.read(path)
    assert (book.life, len(book.sends), book.ended_at) == ("five-0", 1, None)
    with pytest.raises(ValueError, match="record 0 is missing"):
        book_of("i 1 1.0 t 0 - 9")
    with pytest.raises(ValueError, match="no kind of ours"):
        book_of("x 1")


def test_the_report_tells_verdict_figures_and_faults_and_its_picture_is_well_formed(tmp_path: Path) -> None:
    injection = Done(kind="kill", text="kill -9 [1], <down> 2 s", began=0.1, healed=0.4, settled=0.6)
    evidence = evidence_of(book_of(*sent(0, "o 0 0", at=0.1)), injections=[injection])
    verdict = Verdict(complaints_of(evidence), figures_of(evidence))
    path = write_report(tmp_path / "report", evidence, verdict, "Soak, seed 7", "nox -s soak -- --seed 7")
    text = path.read_text()
    assert "Verdict: **BAD**" in text and "- lost: 1" in text and "kill -9 [1], <down> 2 s" in text
    found = json.loads((path.parent / "report.json").read_text())
    assert (found["good"], found["figures"]["records sent"], len(found["faults"])) == (False, 1, 1)
    picture = ElementTree.parse(path.parent / "timeline.svg").getroot()
    assert [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")] == [injection.text]
    assert str(Complaint("lost", "record 1")) == "lost: record 1"
