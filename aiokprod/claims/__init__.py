"""Claims: the outcome of each record as its producer reports it, kept as Parquet, for an audit to compare with the log.

from aiokprod.claims import Claims

async with Producer("localhost:9092", interceptors=[Claims("claims/")]) as producer: ...
"""

from __future__ import annotations

from aiokprod.claims.hook import Claims
from aiokprod.claims.identity import HEADER, decode_identity, encode_identity
from aiokprod.claims.rows import Status
from aiokprod.claims.writer import ClaimsReport

__all__ = ["HEADER", "Claims", "ClaimsReport", "Status", "decode_identity", "encode_identity"]
