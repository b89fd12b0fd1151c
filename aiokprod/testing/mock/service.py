"""The way from one frame to one answer: header, version, authentication, fault script, handler, encoding.

Called by a connection for each frame. `serve` returns the `Reply` if it is there at once, else a `Pause`: something to
wait for, which ends in a `Reply` or another `Pause`. What makes the broker close or fall silent is raised.
"""

from __future__ import annotations

from aiokprod.testing.mock.answering import FLEXIBLE_FROM, Reply, Served, Step, answer
from aiokprod.testing.mock.counters import RequestSeen
from aiokprod.testing.mock.handlers import APIS
from aiokprod.testing.mock.handlers.api import Call, Channel, HangUpError
from aiokprod.testing.mock.handlers.api_versions import version_unknown
from aiokprod.testing.mock.handlers.sasl import raw_token
from aiokprod.testing.mock.scripted import scripted
from aiokprod.wire.broker_frames import decode_request_header, encode_response
from aiokprod.wire.frames import API_VERSIONS


def serve(connection: Channel, frame: bytes, *, by_script: bool = True, counts: bool = True) -> Step:
    """Serve one frame. Raises HangUpError, SilenceError, ProtocolError.

    Args:
        by_script: apply fault rules; False when serving a frame again that a rule has already changed.
        counts: count it as a request; False when serving the damaged form of a request that was counted.
    """
    broker = connection.broker
    if connection.gate.wants_raw_token:
        call = Call(broker, connection, -1, 0, None)
        token = raw_token(call, frame)
        return Reply(len(token).to_bytes(4, "big") + token)
    header = decode_request_header(frame, FLEXIBLE_FROM)
    if counts:
        broker.counters.saw(
            RequestSeen(
                broker.node_id,
                header.api_key,
                header.version,
                header.correlation_id,
                header.client_id,
                len(frame),
                connection.number,
            )
        )
    api = APIS.get(header.api_key)
    offered = broker.advertised.get(header.api_key)
    if api is None or offered is None:
        raise HangUpError(f"API {header.api_key} is not offered")
    lowest, highest = offered
    if not lowest <= header.version <= highest and header.api_key == API_VERSIONS:
        return Reply(encode_response(header.correlation_id, False, version_unknown(lowest, highest).encode(0)))
    if not max(lowest, api.min_version) <= header.version <= min(highest, api.max_version):
        raise HangUpError(f"version {header.version} of API {header.api_key} is not offered")  # broker: 13.6
    if not connection.gate.lets(header.api_key, broker.monotonic()):
        raise HangUpError(f"API {header.api_key} before authentication")
    call = Call(broker, connection, header.api_key, header.version, header.client_id)
    served = Served(call, header, api, api.bind(call, header.body), len(frame))
    faults = broker.faults
    if by_script and faults and faults.has_request_rules(api.key):
        rule = faults.for_request(api.key, broker.node_id, served.bound.items())
        if rule is not None:
            return scripted(
                served,
                rule,
                frame,
                lambda again, is_one_more: serve(connection, again, by_script=False, counts=is_one_more),
            )
    return answer(served)
