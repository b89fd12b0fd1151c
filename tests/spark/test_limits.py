"""The time limit of the tests with processes of Spark."""

from __future__ import annotations

import signal
import threading

import pytest
from limits import OutOfTimeError, limited


def test_a_block_that_hangs_fails_and_leaves_no_timer() -> None:
    with pytest.raises(OutOfTimeError, match=r"longer than 0\.05 s"), limited(0.05):
        threading.Event().wait()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
