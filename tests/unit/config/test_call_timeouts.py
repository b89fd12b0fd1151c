"""Timeouts of calls: a finite number of seconds that is not below 0, or None."""

from __future__ import annotations

from decimal import Decimal

import pytest

from aiokprod.config.call_timeouts import UNSET, check_timeout, timeout_of_call
from aiokprod.errors import ConfigError

WRONG = [
    "5",
    "",
    b"5",
    True,
    float("nan"),
    float("inf"),
    float("-inf"),
    10**400,
    -(10**400),
    10**5000,
    Decimal(5),
    [5],
    -1,
    -0.5,
]


@pytest.mark.parametrize("timeout", [None, 0, 5, 0.25, 10**300])
def test_numbers_of_seconds_and_none_pass(timeout: float | None) -> None:
    check_timeout("timeout of close()", timeout)


@pytest.mark.parametrize("timeout", WRONG, ids=lambda value: f"{type(value).__name__}")
def test_everything_else_is_refused_by_name(timeout: object) -> None:
    with pytest.raises(ConfigError, match=r"^timeout of close\(\) is .{1,100}\(\w+\): .*finite number of seconds"):
        check_timeout("timeout of close()", timeout)


def test_a_timeout_that_is_left_out_is_that_of_the_option_and_none_is_no_bound() -> None:
    assert timeout_of_call("timeout of close()", UNSET, 30.0) == 30.0
    assert timeout_of_call("timeout of close()", UNSET, None) is None
    assert timeout_of_call("timeout of close()", None, 30.0) is None
    assert timeout_of_call("timeout of close()", 5, 30.0) == 5
    with pytest.raises(ConfigError, match="timeout of close"):
        timeout_of_call("timeout of close()", -1, 30.0)
    assert repr(UNSET) == "<as the option says>"
