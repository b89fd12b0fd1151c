"""The broker's half of SCRAM, written from RFC 5802 and not from our code."""

from __future__ import annotations

import base64
import hashlib
import hmac

from scripted_broker import Peer

from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateResponse


async def serve_scram(
    peer: Peer, password: str, *, hash_name: str = "sha256", iterations: int = 4096, lies: bool = False
) -> bool:
    """Run the exchange after the handshake; True if the client knows the password. A liar does not know it either."""
    first = (await peer.sasl_token_only()).decode()
    bare = first.removeprefix("n,,")
    server_first = f"r={bare.partition(',r=')[2]}server,s={base64.b64encode(b'salty').decode()},i={iterations}"
    peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=server_first.encode()))
    final = (await peer.sasl_token_only()).decode()
    without_proof, _, proof = final.partition(",p=")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), b"salty", iterations)
    message = ",".join((bare, server_first, without_proof)).encode()
    stored_key = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    signature = hmac.digest(stored_key, message, hash_name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    if hashlib.new(hash_name, key).digest() != stored_key and not lies:
        reason = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM"
        peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message=reason))
        return False
    mine = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), message, hash_name)
    peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=b"v=" + base64.b64encode(mine), session_lifetime_ms=60_000))
    return True
