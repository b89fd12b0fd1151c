"""`ApiVersions`: the API versions that a broker supports, and the choice of one to use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from aiokprod.errors import UnsupportedVersionError
from aiokprod.wire.messages.api_versions import ApiVersionsResponse

LOWEST_METADATA: Final = 4
"""The first version of Metadata that can ask for a topic without creating it; every Kafka since 1.0 has it."""


class ApiVersions(NamedTuple):
    """Version ranges by API key, and the finalized features (which choose the protocol of transactions, broker: 10)."""

    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int] = MappingProxyType({})
    features_epoch: int = -1
    """Grows with each change of the finalized features; -1: the broker tells none."""

    def pick(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the highest version that both sides support.

        Raises:
            UnsupportedVersionError: there is no common version.
        """
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker does not support API {api_key}")
        version = min(theirs[1], highest)
        if version < max(theirs[0], lowest):
            raise UnsupportedVersionError(
                f"API {api_key}: the broker supports versions {theirs[0]} to {theirs[1]}, aiokprod {lowest} to {highest}"
            )
        return version

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> ApiVersions:
        """Read a response, dropping entries that make no sense (faults: H15)."""
        return cls(
            {
                key.api_key: (key.min_version, key.max_version)
                for key in response.api_keys
                if 0 <= key.min_version <= key.max_version
            },
            {feature.name: feature.max_version_level for feature in response.finalized_features},
            response.finalized_features_epoch,
        )
