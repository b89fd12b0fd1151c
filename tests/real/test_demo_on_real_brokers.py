"""`aiokprod demo --real`: what its page says happens, on real brokers."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from aiokprod.cli.demo import demo

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_an_acknowledgement_is_dropped_a_leader_moved_a_broker_killed_and_every_record_is_there_once() -> None:
    result = CliRunner().invoke(demo, ["--real", "--records", "60000"])
    assert result.exit_code == 0, result.output
    assert "dropped an acknowledgement after the append" in result.output
    assert "moved the leader of partition 1" in result.output
    assert re.search(r"killed broker \d \(-9\); brokers \d and \d go on", result.output)
    assert "TLS" not in result.output
    assert re.search(r"batches resent: [1-9]", result.output)
    assert "60,000 acknowledged, 0 failed" in result.output
    assert "lost 0, duplicate 0, reordered 0" in result.output
