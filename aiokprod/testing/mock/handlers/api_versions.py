"""ApiVersions: what this broker offers, and error 35 in the v0 layout for versions it does not know (KIP-511)."""

from __future__ import annotations

import re
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
"""What the name and the version of a client's software may be (KIP-511)."""


def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return every API that is advertised, with its range."""
    try:
        call.refuse_by_script()
        if call.version >= 3 and not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            raise RefusalError(ErrorCode.INVALID_REQUEST)
    except RefusalError as refusal:
        return ApiVersionsResponse(error_code=int(refusal.code))
    broker = call.broker
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in sorted(broker.advertised.items())
        ]
    )
    if call.version >= 3:
        features = broker.features
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0 if call.version >= 4 else 1, max_version=level)
            for name, level in features.items()
        ]
        response.finalized_features_epoch = broker.features_epoch if features or broker.features_epoch else -1
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.items()
        ]
    return response


def version_unknown(lowest: int, highest: int) -> ApiVersionsResponse:
    """Return the answer to an ApiVersions request that is too new; written in v0 whatever was asked."""
    only = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=lowest, max_version=highest)
    return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[only])
