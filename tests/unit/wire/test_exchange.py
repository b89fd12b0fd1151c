"""The exchange: order, clocks and poison, without a socket or a clock."""

from __future__ import annotations

import struct
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokprod.errors import ProtocolError
from aiokprod.wire.exchange import LAST_CORRELATION_ID, Entry, Exchange, Settled

TIMEOUT_S = 30.0


def new_exchange() -> Exchange:
    return Exchange(max_frame_bytes=1000, max_mute_s=TIMEOUT_S)


def ask(exchange: Exchange, token: object, now: float = 0.0, timeout_s: float = TIMEOUT_S) -> int:
    correlation_id = exchange.take_correlation_id()
    exchange.push(Entry(token, 0, 9, correlation_id, timeout_s, False), now)
    return correlation_id


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def told(settled: list[Settled]) -> list[tuple[object, bytes]]:
    return [(each.entry.token, bytes(each.body)) for each in settled]


# ---------------------------------------------------------------------- order


def test_answers_settle_requests_in_order() -> None:
    exchange = new_exchange()
    ids = [ask(exchange, token) for token in "abc"]
    settled = exchange.feed(b"".join(answer(i, b"%d" % i) for i in ids), 1.0)
    assert told(settled) == [("a", b"0"), ("b", b"1"), ("c", b"2")]
    assert exchange.requests == 0
    assert exchange.failure is None


def test_one_byte_segments_and_a_thousand_answers_in_one() -> None:  # faults: N11
    exchange = new_exchange()
    ids = [ask(exchange, token) for token in range(1000)]
    stream = b"".join(answer(i, b"body") for i in ids)
    drip = [told(exchange.feed(stream[i : i + 1], 0.0)) for i in range(len(stream) // 2)]
    rest = told(exchange.feed(stream[len(stream) // 2 :], 0.0))
    assert [token for each in [*drip, rest] for token, _ in each] == list(range(1000))


@pytest.mark.parametrize("wrong", [1, 2, -1, 77, 2**31 - 1])
def test_a_wrong_correlation_id_poisons(wrong: int) -> None:  # faults: H8
    exchange = new_exchange()
    for token in "abc":
        ask(exchange, token)
    assert exchange.feed(answer(wrong), 0.0) == []
    assert isinstance(exchange.failure, ProtocolError)
    assert exchange.feed(answer(0), 0.0) == []
    assert [entry.token for entry in exchange.abandon()] == ["a", "b", "c"]


def test_a_repeated_answer_poisons_and_settles_no_other_request() -> None:  # faults: H8
    exchange = new_exchange()
    ask(exchange, "a")
    ask(exchange, "b")
    assert told(exchange.feed(answer(0) + answer(0), 0.0)) == [("a", b"")]
    assert exchange.failure is not None
    assert [entry.token for entry in exchange.abandon()] == ["b"]


def test_an_unsolicited_frame_poisons() -> None:  # faults: H8
    exchange = new_exchange()
    assert exchange.feed(answer(0), 0.0) == []
    assert exchange.failure is not None


@pytest.mark.parametrize("length", [2**31 - 1, 1001, -1, 0, 3])
def test_an_impossible_length_poisons_before_its_body_comes(length: int) -> None:  # faults: H1, H2
    exchange = new_exchange()
    ask(exchange, "a")
    ask(exchange, "b")
    assert told(exchange.feed(answer(0, b"good"), 0.0)) == [("a", b"good")]
    assert exchange.feed(struct.pack(">i", length), 0.0) == []
    assert exchange.failure is not None
    assert [entry.token for entry in exchange.abandon()] == ["b"]


def test_a_flood_after_poison_is_not_kept() -> None:  # faults: H1
    exchange = new_exchange()
    ask(exchange, "a")
    exchange.feed(struct.pack(">i", 2**31 - 1), 0.0)
    for _ in range(100):
        exchange.feed(bytes(65536), 0.0)
    assert exchange.buffered_bytes <= 4


def test_the_frame_limit_can_be_lifted() -> None:  # faults: H21
    exchange = new_exchange()
    ask(exchange, "a")
    exchange.lift_frame_limit(5000)
    assert told(exchange.feed(answer(0, bytes(4000)), 0.0)) == [("a", bytes(4000))]


def test_an_answer_is_no_longer_than_its_own_request_allows() -> None:  # faults: H25
    exchange = new_exchange()
    for token, most in (("a", 100), ("b", 200), ("c", 100)):
        exchange.push(Entry(token, 0, 9, exchange.take_correlation_id(), TIMEOUT_S, False, most), 0.0)
    settled = exchange.feed(answer(0, bytes(96)) + answer(1, bytes(196)) + answer(2, bytes(97))[:8], 0.0)
    assert [(each.entry.token, len(each.body)) for each in settled] == [("a", 96), ("b", 196)]
    assert "a frame of 101 bytes; between 4 and 100" in str(exchange.failure)
    assert exchange.failure is not None
    assert exchange.failure.__traceback__ is None  # its frames hold what came
    assert [entry.token for entry in exchange.abandon()] == ["c"]


def test_correlation_ids_wrap_at_the_end_of_int32() -> None:
    exchange = Exchange(max_frame_bytes=1000, max_mute_s=TIMEOUT_S, first_correlation_id=LAST_CORRELATION_ID)
    assert [ask(exchange, token) for token in "ab"] == [LAST_CORRELATION_ID, 0]
    assert told(exchange.feed(answer(LAST_CORRELATION_ID) + answer(0), 0.0)) == [("a", b""), ("b", b"")]


# ---------------------------------------------------------------------- markers


def test_a_marker_returns_with_the_answer_before_it() -> None:
    exchange = new_exchange()
    ask(exchange, "a")
    assert exchange.push_marker("m1")
    assert exchange.push_marker("m2")
    ask(exchange, "b")
    assert exchange.push_marker("m3")
    assert exchange.requests == 2
    assert [token for token, _ in told(exchange.feed(answer(0), 0.0))] == ["a", "m1", "m2"]
    assert [token for token, _ in told(exchange.feed(answer(1), 0.0))] == ["b", "m3"]


def test_a_marker_with_nothing_before_it_returns_at_once() -> None:
    assert not new_exchange().push_marker("m")


def test_markers_are_abandoned_in_their_place() -> None:
    exchange = new_exchange()
    ask(exchange, "a")
    exchange.push_marker("m")
    ask(exchange, "b")
    assert [(entry.token, entry.is_marker) for entry in exchange.abandon()] == [("a", False), ("m", True), ("b", False)]
    assert exchange.requests == 0
    assert exchange.deadline() is None


# ---------------------------------------------------------------------- the clock


def test_only_the_oldest_request_has_a_clock() -> None:
    exchange = new_exchange()
    assert exchange.deadline() is None
    ask(exchange, "a", now=0.0)
    ask(exchange, "b", now=1.0)
    assert exchange.deadline() == 30.0
    exchange.feed(answer(0), 29.0)
    assert exchange.deadline() == 59.0
    exchange.feed(answer(1), 40.0)
    assert exchange.deadline() is None


def test_each_request_has_its_own_timeout() -> None:
    exchange = new_exchange()
    ask(exchange, "a", now=0.0, timeout_s=30.0)
    ask(exchange, "b", now=0.0, timeout_s=2.0)
    exchange.feed(answer(0), 10.0)
    assert exchange.deadline() == 12.0


def test_a_part_of_an_answer_does_not_move_the_clock() -> None:  # faults: N6
    exchange = new_exchange()
    ask(exchange, "a", now=0.0)
    for second, byte in enumerate(answer(0, bytes(20))[:-1]):
        exchange.feed(bytes([byte]), float(second))
    assert exchange.deadline() == 30.0


def test_a_throttle_stops_the_clock() -> None:
    exchange = new_exchange()
    ask(exchange, "a", now=0.0)
    assert exchange.mute(5.0, 10.0) == 15.0
    assert exchange.deadline() == 35.0  # 10 s counted before it, 20 s left after it


def test_a_request_that_comes_during_a_throttle_starts_its_clock_at_the_end() -> None:
    exchange = new_exchange()
    exchange.mute(5.0, 10.0)
    ask(exchange, "a", now=11.0)
    assert exchange.deadline() == 45.0


def test_a_longer_throttle_extends_and_a_shorter_one_changes_nothing() -> None:
    exchange = new_exchange()
    ask(exchange, "a", now=0.0)
    exchange.mute(5.0, 10.0)
    assert exchange.mute(10.0, 12.0) == 22.0
    assert exchange.mute(1.0, 13.0) == 22.0
    assert exchange.deadline() == 42.0


@pytest.mark.parametrize(("asked", "obeyed"), [(2147483.647, TIMEOUT_S), (-1.0, 0.0), (0.0, 0.0), (1e300, TIMEOUT_S)])
def test_a_throttle_is_kept_within_bounds(asked: float, obeyed: float) -> None:  # faults: H18
    exchange = new_exchange()
    ask(exchange, "a", now=0.0)
    exchange.mute(asked, 1.0)
    assert exchange.deadline() == TIMEOUT_S + obeyed


def test_grace_is_given_once_to_each_head() -> None:  # faults: N20
    exchange = new_exchange()
    assert not exchange.extend_grace(5.0, 0.0)
    ask(exchange, "a", now=0.0)
    ask(exchange, "b", now=0.0)
    assert exchange.extend_grace(5.0, 60.0)
    assert exchange.deadline() == 65.0
    assert not exchange.extend_grace(5.0, 66.0)
    assert exchange.deadline() == 65.0
    exchange.feed(answer(0), 66.0)
    assert exchange.deadline() == 96.0
    assert exchange.extend_grace(5.0, 97.0)


def test_it_shows_its_state() -> None:
    exchange = new_exchange()
    ask(exchange, "a")
    exchange.push_marker("m")
    assert repr(exchange) == "<Exchange open requests=1 places=2>"
    assert "marker 'm'" in repr(exchange.abandon()[1])
    exchange.feed(answer(0), 0.0)
    assert "poisoned" in repr(exchange)


# ---------------------------------------------------------------------- every order of events


@given(st.lists(st.binary(max_size=40), max_size=20), st.data())
def test_any_chunking_gives_the_same_answers(bodies: list[bytes], data: st.DataObject) -> None:  # faults: N11
    exchange = new_exchange()
    ids = [ask(exchange, token) for token in range(len(bodies))]
    stream = b"".join(answer(i, body) for i, body in zip(ids, bodies, strict=True))
    found: list[tuple[object, bytes]] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += told(exchange.feed(stream[:size], 0.0))
        stream = stream[size:]
    assert found == list(enumerate(bodies))


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_raise_or_settle_more_than_was_asked(chunks: list[bytes]) -> None:  # faults: H23
    exchange = new_exchange()
    for token in range(3):
        ask(exchange, token)
    found = [entry for chunk in chunks for entry in told(exchange.feed(chunk, 0.0))]
    assert [token for token, _ in found] == list(range(len(found)))
    assert len(found) <= 3


class ExchangeMachine(RuleBasedStateMachine):
    """A random order of asking, chasing, muting, answering and waiting, against a model that is a plain list."""

    @initialize()
    def start(self) -> None:
        self.now = 100.0
        self.exchange = new_exchange()
        self.owed: deque[tuple[int, float]] = deque()  # (correlation id, timeout), or (-1, 0) for a marker
        self.counted = 0.0  # seconds of the head's clock
        self.muted_until = 0.0
        self.stream = b""

    def head_is_new(self) -> None:
        self.counted = 0.0

    @rule(seconds=st.sampled_from([0.25, 1.0, 8.0]))
    def wait(self, seconds: float) -> None:
        running = max(0.0, self.now + seconds - max(self.now, self.muted_until))
        self.now += seconds
        if self.owed:
            self.counted += running

    @rule(timeout_s=st.sampled_from([2.0, 30.0]))
    def request(self, timeout_s: float) -> None:
        if not self.owed:
            self.head_is_new()
        correlation_id = ask(self.exchange, "request", self.now, timeout_s)
        self.owed.append((correlation_id, timeout_s))

    @rule()
    def chase(self) -> None:
        assert self.exchange.push_marker("marker") == bool(self.owed)
        if self.owed:
            self.owed.append((-1, 0.0))

    @rule(seconds=st.sampled_from([-1.0, 0.0, 1.0, 4.0, 1000.0]))
    def mute(self, seconds: float) -> None:
        self.exchange.mute(seconds, self.now)
        self.muted_until = max(self.muted_until, self.now + min(max(seconds, 0.0), TIMEOUT_S))

    @precondition(lambda self: self.owed)
    @rule(half=st.booleans())
    def answer(self, half: bool) -> None:
        if not self.stream:
            self.stream = answer(self.owed[0][0], b"body")
        size = len(self.stream) // 2 if half else len(self.stream)
        settled = self.exchange.feed(self.stream[:size], self.now)
        self.stream = self.stream[size:]
        if self.stream:
            assert settled == []
            return
        expected = [self.owed.popleft()[0]]
        while self.owed and self.owed[0][0] < 0:
            expected.append(self.owed.popleft()[0])
        assert [each.entry.correlation_id for each in settled] == expected
        self.head_is_new()

    @invariant()
    def agrees(self) -> None:
        assert self.exchange.failure is None
        assert self.exchange.requests == sum(1 for correlation_id, _ in self.owed if correlation_id >= 0)
        deadline = self.exchange.deadline()
        if not self.owed:
            assert deadline is None
            return
        left = self.owed[0][1] - self.counted
        assert deadline == pytest.approx(max(self.now, self.muted_until) + left)


ExchangeMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestExchangeMachine = ExchangeMachine.TestCase
