"""The headers that a broker reads. Whole ones are compared with kio's in `test_frames.py`."""

from __future__ import annotations

import pytest

from aiokprod.errors import ProtocolError
from aiokprod.wire.broker_frames import decode_request_header
from aiokprod.wire.frames import encode_request_header


@pytest.mark.parametrize("cut", range(13))
def test_a_short_request_header_is_refused(cut: int) -> None:
    data = encode_request_header(3, 12, 1, "me", True)
    assert len(data) == 13
    with pytest.raises(ProtocolError):
        decode_request_header(data[:cut], {3: 9})
