"""`ApiVersions`: what a broker speaks, and what we pick of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiokprod.errors import UnsupportedVersionError
from aiokprod.wire.messages.api_versions import ApiVersionsResponse


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """Version ranges by API key, and the finalized features (transactions are chosen by these, broker: 10)."""

    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int] = field(default_factory=dict)

    def pick(self, api_key: int, lowest: int, highest: int) -> int:
        """The highest version both speak.

        Raises:
            UnsupportedVersionError: there is none.
        """
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"the broker does not know API {api_key}")
        version = min(theirs[1], highest)
        if version < max(theirs[0], lowest):
            raise UnsupportedVersionError(
                f"API {api_key}: the broker speaks versions {theirs[0]} to {theirs[1]}, we {lowest} to {highest}"
            )
        return version

    @classmethod
    def from_response(cls, response: ApiVersionsResponse) -> ApiVersions:
        """Entries that make no sense are dropped (faults: H15)."""
        return cls(
            {
                key.api_key: (key.min_version, key.max_version)
                for key in response.api_keys
                if 0 <= key.min_version <= key.max_version
            },
            {feature.name: feature.max_version_level for feature in response.finalized_features},
        )
