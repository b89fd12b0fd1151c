"""RecordMetadata is a value: equal, hashable, copied and pickled, in both forms."""

from __future__ import annotations

import copy
import pickle

from aiokprod import RecordMetadata, TimestampType

METADATA = RecordMetadata("t", 1, 7, 1_700_000_000_000, TimestampType.CREATE_TIME)


def test_it_goes_through_pickle_and_copy() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(METADATA, protocol)) == METADATA
    assert copy.copy(METADATA) == METADATA == copy.deepcopy(METADATA)


def test_equal_ones_are_one_key() -> None:
    assert len({METADATA, copy.copy(METADATA)}) == 1
    assert RecordMetadata("t", 1, 8, 1_700_000_000_000, TimestampType.CREATE_TIME) != METADATA
