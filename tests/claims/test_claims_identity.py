"""The identity header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.claims import HEADER, decode_identity, encode_identity
from aiokprod.claims.identity import identity_of

NUMBER = st.integers(-(2**63), 2**63 - 1)


@given(NUMBER, NUMBER, NUMBER)
def test_what_is_encoded_is_decoded_from_24_bytes(run: int, stream: int, seq: int) -> None:
    value = encode_identity(run, stream, seq)
    assert len(value) == 24
    assert decode_identity(value) == (run, stream, seq)


def test_the_layout_is_three_big_endian_integers() -> None:
    assert encode_identity(1, 2, -1).hex() == "0000000000000001" + "0000000000000002" + "f" * 16


def test_another_length_is_no_identity() -> None:
    with pytest.raises(ValueError, match="24 bytes, not 3"):
        decode_identity(b"123")


def test_the_identity_is_found_among_other_headers() -> None:
    identity = (HEADER, encode_identity(1, 2, 3))
    assert identity_of([("a", None), identity, ("b", b"x")]) == (1, 2, 3)
    assert identity_of([("a", None), (HEADER, b"short"), (HEADER, None)]) is None
    assert identity_of([]) is None


def test_of_several_identities_the_last_one_counts() -> None:
    older, newer = ((HEADER, encode_identity(1, 2, seq)) for seq in (3, 4))
    assert identity_of([older, ("a", b"b"), newer, (HEADER, b"short")]) == (1, 2, 4)
