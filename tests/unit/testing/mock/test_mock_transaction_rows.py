"""The measured rows about transactions, fencing and end of epochs, request by request. broker: 1, 9, 10, 11"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from mock_transactions import TransactionalClient, transactional

Scenario = Callable[[TransactionalClient], Awaitable[None]]


def on(version: int, scenario: Scenario, **options: object) -> None:
    async def run() -> None:
        async with transactional(version, **options) as client:
            await client.start()
            await scenario(client)

    asyncio.run(run())


def code_of(answer: tuple[int, tuple[int, int]]) -> int:
    return answer[0]


# ---------------------------------------------------------------------- 9: which pairs may write


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_fenced_are_told_so_in_the_code_of_their_version(version: int) -> None:
    async def scenario(client: TransactionalClient) -> None:
        old = client.pair
        await client.start()
        assert [code_of(await client.init(old, version=v)) for v in (3, 4, 5)] == [47, 90, 90]
        for produce_version in (9, 11, 12):
            if version or produce_version < 12:
                await client.add()
                assert await client.code(0, version=produce_version, pair=old) == 47
        assert [await client.add(version=v, pair=old) for v in (0, 1, 2, 3)] == [[47], [47], [90], [90]]
        assert [await client.add_offsets(version=v, pair=old) for v in range(5)] == [47, 47, 90, 90, 90]
        assert [code_of(await client.end(True, version=v, pair=old)) for v in range(5)] == [47, 47, 90, 90, 90]
        assert [await client.commit_offset(1, version=v, pair=old) for v in (2, 3, 4)] == [47] * 3
        if version:
            assert code_of(await client.end(True, version=5, pair=old)) == 90
            assert await client.commit_offset(1, version=5, pair=old) == 47

    on(version, scenario)


def test_another_producer_id_is_49_and_an_unknown_transactional_id_too() -> None:
    async def scenario(client: TransactionalClient) -> None:
        stranger = (12345, 0)
        assert await client.add(pair=stranger) == [49] and await client.add_offsets(pair=stranger) == 49
        assert code_of(await client.end(True, pair=stranger)) == 49
        assert await client.code(0, pair=stranger) == 49 and await client.code(0, version=11, pair=stranger) == 49
        assert await client.commit_offset(1, pair=stranger) == 49
        assert await client.code(0, transactional_id="unknown") == 49

    on(2, scenario)


def test_batches_and_requests_must_agree_that_this_is_a_transaction() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.code(0, transactional_id=None) == 53
        assert await client.code(0) == 0
        assert await client.code(1, transactional_id=None, transactional=False) == 48

    on(2, scenario)


def test_a_producer_id_is_asked_for_again_and_again() -> None:
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        assert await client.init(version=0) == (0, (producer_id, epoch + 1))
        again = await client.init((producer_id, epoch + 1))
        assert again == (0, (producer_id, epoch + 2))
        assert await client.init((producer_id, epoch + 1)) == again  # broker: 9.4
        assert (await client.init((producer_id, -1)))[0] == 42
        assert (await client.init(timeout_ms=900_001))[0] == 50

    on(2, scenario)


def test_a_new_owner_aborts_what_is_open() -> None:  # broker: 9.8
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        assert await client.code(0) == 0
        assert await client.init() == (51, (-1, -1))
        assert await client.init() == (0, (producer_id, epoch + 2))
        marker = client.cluster.log("t")[-1]
        assert marker.is_abort_marker and marker.producer_epoch == epoch + 1

    on(2, scenario)


# ---------------------------------------------------------------------- 10: what a transaction is


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        (2, [(9, 48), (10, 48), (11, 120), (12, 0), (13, 0)]),
        (1, [(9, 48), (10, 48), (11, 120), (12, 0), (13, 0)]),
        (0, [(9, 48), (10, 48), (11, 120), (12, 35)]),
    ],
)
def test_a_write_without_add_partitions(version: int, rows: list[tuple[int, int]]) -> None:  # broker: 10.1
    for produce_version, code in rows:

        async def scenario(client: TransactionalClient, asked: int = produce_version, code: int = code) -> None:
            answer = await client.write(0, version=asked)
            assert answer.error_code == code
            if code == 48:
                assert answer.error_message == "Partition was not added to the transaction"
            if code == 35:
                assert code_of(await client.end(False, version=4)) == 51
                assert await client.add() == [51] and code_of(await client.init()) == 51
                client.cluster.stop_broker(1)
                client.cluster.start_broker(1)

        on(version, scenario)


def test_a_wedged_id_is_free_when_its_coordinator_was_restarted() -> None:
    async def run() -> None:
        async with transactional(0) as client:
            await client.start()
            assert await client.add(version=4) == [35]
            assert code_of(await client.init()) == 51
            client.cluster.stop_broker(1)
            client.cluster.start_broker(1)
            async with type(client.raw)(client.cluster) as raw:
                client.raw = raw
                assert code_of(await client.init()) == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        (2, [(2, 48), (3, 48), (4, 120), (5, 0)]),
        (1, [(2, 48), (3, 48), (4, 120), (5, 0)]),
        (0, [(2, 48), (3, 48), (4, 120), (5, 35)]),
    ],
)
def test_offsets_without_add_offsets(version: int, rows: list[tuple[int, int]]) -> None:  # broker: 10.2
    for asked, code in rows:

        async def scenario(client: TransactionalClient, asked: int = asked, code: int = code) -> None:
            assert await client.commit_offset(7, version=asked) == code

        on(version, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_the_end_bumps_the_epoch_and_the_next_write_carries_sequence_zero(version: int) -> None:  # broker: 10.3
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        await client.transaction()
        assert client.pair == (producer_id, epoch + 1)
        assert await client.code(1) == 45
        assert await client.code(0) == 0

    on(version, scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_end_of_the_first_version_keeps_the_epoch_and_the_sequences(version: int) -> None:  # broker: 10.3b
    async def scenario(client: TransactionalClient) -> None:
        for sequence in range(3):
            assert await client.add() == [0]
            assert await client.code(sequence, version=11) == 0
            assert await client.end(True, version=4) == (0, (-1, -1))
        assert [record.value for record in client.cluster.records("t", committed=True)] == [b"v0", b"v1", b"v2"]

    on(version, scenario)


def test_a_lost_answer_to_an_end_is_given_again_and_the_other_verdict_is_not() -> None:  # broker: 10.4, 10.4b
    async def scenario(client: TransactionalClient) -> None:
        client.cluster.hold_markers()
        before = await client.transaction()
        assert [code_of(await client.end(True, pair=before)) for _ in range(2)] == [51, 51]
        assert code_of(await client.end(False, pair=before)) == 51  # broker: 10.4e
        assert [code_of(await client.end(verdict)) for verdict in (True, False)] == [51, 51]
        assert client.cluster.transaction("tx").state.value == "PrepareCommit"
        client.cluster.release_markers()
        assert [await client.end(True, pair=before) for _ in range(2)] == [(0, client.pair)] * 2
        assert code_of(await client.end(False, pair=before)) == 48

    on(2, scenario)


def test_late_requests_of_a_transaction_that_is_over_in_the_second_version() -> None:  # broker: 10.4c, 10.4d
    async def scenario(client: TransactionalClient) -> None:
        before = await client.transaction()
        assert await client.code(0, pair=before) == 47
        assert await client.code(0) == 0
        assert await client.code(1, pair=before) == 47
        assert code_of(await client.end(True, pair=before)) == 90
        assert client.cluster.transaction("tx").is_ongoing

    on(2, scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_late_requests_of_a_transaction_that_is_over_in_the_first_version(version: int) -> None:
    async def scenario(client: TransactionalClient) -> None:
        await client.add()
        assert await client.code(0, version=11) == 0
        assert code_of(await client.end(True, version=4)) == 0
        assert await client.code(1, version=11) == 120
        await client.add()
        assert await client.code(1, version=11) == 0  # it is part of the next transaction
        assert code_of(await client.end(True, version=4)) == 0  # and so is the verdict

    on(version, scenario)


def test_the_end_of_nothing() -> None:  # broker: 10.5
    async def second(client: TransactionalClient) -> None:
        assert code_of(await client.end(True)) == 48
        producer_id, epoch = client.pair
        assert await client.end(False) == (0, (producer_id, epoch + 1))
        client.pair = (producer_id, epoch + 1)
        await client.transaction()
        assert code_of(await client.end(True)) == 48
        assert (await client.end(False))[0] == 0

    async def first(client: TransactionalClient) -> None:
        assert code_of(await client.end(True, version=4)) == 48
        assert code_of(await client.end(False, version=4)) == 48
        await client.add()
        assert code_of(await client.end(True, version=4)) == 0
        assert code_of(await client.end(True, version=4)) == 0
        assert code_of(await client.end(False, version=4)) == 48

    on(2, second)
    on(1, first)
    on(0, first)


def test_after_the_coordinator_aborted_on_timeout_in_the_second_version() -> None:  # broker: 10.7
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        assert await client.code(0) == 0
        client.clock.now_ms += 60_001
        assert client.cluster.abort_timed_out_transactions() == ["tx"]
        assert await client.code(1) == 47 and await client.code(0, partition=1) == 47
        assert await client.add() == [90] and await client.add_offsets() == 90
        assert await client.commit_offset(1) == 47
        assert code_of(await client.end(True)) == 48
        assert await client.end(False) == (0, (producer_id, epoch + 1))
        assert await client.init(client.pair) == (0, (producer_id, epoch + 1))
        assert await client.init() == (0, (producer_id, epoch + 2))

    on(2, scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_after_the_coordinator_aborted_on_timeout_in_the_first_version(version: int) -> None:
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        await client.add()
        assert await client.code(0, version=11) == 0
        client.clock.now_ms += 60_001
        client.cluster.abort_timed_out_transactions()
        assert await client.code(1, version=11) == 47
        assert await client.add() == [90] and await client.add_offsets() == 90
        assert code_of(await client.end(True, version=4)) == 90
        assert code_of(await client.end(False, version=4)) == 90
        assert code_of(await client.init(client.pair)) == 90
        assert await client.init() == (0, (producer_id, epoch + 2))

    on(version, scenario)


def test_a_duplicate_inside_a_transaction_is_known() -> None:  # broker: 10.8
    async def scenario(client: TransactionalClient) -> None:
        first = await client.write(0)
        again = await client.write(0)
        assert (again.error_code, again.base_offset) == (0, first.base_offset)
        assert await client.code(5) == 45

    on(2, scenario)


def test_all_partitions_are_added_or_none() -> None:  # broker: 10.9
    async def scenario(client: TransactionalClient) -> None:
        assert await client.add(("t", 0), ("t", 9)) == [55, 3]
        assert await client.add(("t", 0), ("nothing", 0), version=4) == [55, 3]
        assert client.cluster.transaction("tx").partitions == set()
        assert await client.add(("t", 0), ("t", 1), version=5) == [0, 0]

    on(2, scenario)


def test_acks_one_is_taken() -> None:  # broker: 10.9c
    async def scenario(client: TransactionalClient) -> None:
        assert await client.code(0, acks=1) == 0

    on(2, scenario)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:  # broker: 9.10
    async def scenario(client: TransactionalClient) -> None:
        client.cluster._transactions.coordinator.ids["tx"].epoch = 32766
        client.pair = last = (client.pair[0], 32766)
        await client.transaction()
        assert client.pair[0] != last[0] and client.pair[1] == 0
        assert await client.end(True, pair=last) == (0, client.pair)
        assert await client.code(1, pair=last) == 47  # the marker has the epoch behind the last one
        assert await client.code(0, pair=last, partition=1) == 49
        assert await client.code(0) == 0

    on(2, scenario)


def test_the_coordinator_is_asked_once_about_the_offsets_of_a_transaction() -> None:
    async def scenario(client: TransactionalClient) -> None:
        assert await client.add_offsets() == 0
        assert await client.commit_offset(1, version=3) == 0
        assert await client.code(0) == 35  # the id is wedged
        assert [await client.commit_offset(2, version=v) for v in (3, 5)] == [0, 0]

    on(0, scenario)


# ---------------------------------------------------------------------- 11: a stranger


def test_any_client_with_the_pair_may_end_the_transaction() -> None:  # broker: 11
    async def scenario(client: TransactionalClient) -> None:
        producer_id, epoch = client.pair
        assert await client.code(0) == 0
        assert code_of(await client.end(True, pair=(producer_id, epoch + 1))) == 90
        async with type(client.raw)(client.cluster) as other:
            mine, client.raw = client.raw, other
            assert await client.end(True) == (0, (producer_id, epoch + 1))
            client.raw = mine
        assert await client.code(1) == 47

    on(2, scenario)
