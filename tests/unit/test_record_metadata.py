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


def test_sizes_and_the_mark_of_a_duplicate_go_along_and_do_not_make_another_place_of_it() -> None:
    whole = RecordMetadata("t", 1, 7, 1_700_000_000_000, TimestampType.CREATE_TIME, 3, -1, True)
    for again in (whole, pickle.loads(pickle.dumps(whole)), copy.deepcopy(whole)):
        assert (again.serialized_key_size, again.serialized_value_size, again.duplicate) == (3, -1, True)
        assert again == METADATA and hash(again) == hash(METADATA)
    assert (METADATA.serialized_key_size, METADATA.serialized_value_size, METADATA.duplicate) == (None, None, False)
    assert repr(whole).endswith("duplicate=True)") and "duplicate" not in repr(METADATA)


def test_equal_ones_are_one_key() -> None:
    assert len({METADATA, copy.copy(METADATA)}) == 1
    assert RecordMetadata("t", 1, 8, 1_700_000_000_000, TimestampType.CREATE_TIME) != METADATA
