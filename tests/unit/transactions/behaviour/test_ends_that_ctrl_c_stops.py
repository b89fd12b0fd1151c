"""Ctrl-C in the middle of what a transaction's end leads to: a loud failure, and no transaction on top of a half-told one."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import run

from aiokprod import Producer, ProducerState
from aiokprod.errors import ProducerFailedError
from aiokprod.testing import MockCluster


def test_ctrl_c_in_what_an_end_leads_to_fails_the_producer() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        assert producer._pipeline is not None
        transactor = producer._pipeline.transactor
        assert transactor is not None

        def stopped(outcome: object) -> None:
            raise KeyboardInterrupt

        producer.begin_transaction()
        transactor.tell_end = stopped
        now = asyncio.get_running_loop().time()
        actions = transactor._machine.abort(now, now + 5.0)
        assert isinstance(actions, list)
        with pytest.raises(KeyboardInterrupt):
            transactor._apply(actions)
        assert producer.health().state is ProducerState.FAILED
        with pytest.raises(ProducerFailedError):
            producer.begin_transaction()

    run(scenario)
