"""Coverage-guided fuzzing of every decoder that sees bytes of the network: `python tests/fuzz/fuzz_wire.py -runs=N`.

The first two bytes choose the decoder, the rest is its input. A finding is any exception but ProtocolError, or a decoder
that contradicts its twin. Without a corpus folder among the arguments it starts from valid messages in a folder of its own.
libFuzzer's options hold (`-max_total_time=60`). Not collected by pytest: its name does not begin with test_.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "wire"))

with atheris.instrument_imports(include=["aiokprod"]):
    from hostile_decoders import DECODERS, verdict

from kio_twins import all_messages, valid_bodies

from aiokprod.records.batch import batch_header, encode_records
from aiokprod.records.compression import compress
from aiokprod.records.headers import encode_headers

NAMES = sorted(DECODERS)


def seeds() -> dict[str, list[bytes]]:
    """Return valid input for each decoder."""
    found: dict[str, list[bytes]] = {}
    for message in all_messages():
        for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
            bodies = [body for body in valid_bodies(message, version, 0) if len(body) < 4000]
            found[f"{message.__name__} {version}"] = bodies
            if message.__name__ == "ProduceResponse":
                found[f"decode_produce {version}"] = bodies
            if message.__name__ == "MetadataResponse":
                found[f"decode_metadata_slices {version}"] = bodies
    section = encode_records(
        [b"value", None], [b"key", None], [encode_headers([("h", b"x"), ("h", None)]), None], [0, 5]
    )
    found["split_records"] = [encode_records([b"v"] * 3, None, None, [0, 1, 2])]
    found["decode_batches"] = []
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        packed = compress(codec, None, section)
        header = batch_header(packed, count=2, attributes=number, base_timestamp_ms=1, max_timestamp_ms=6)
        found["decode_batches"].append(header + packed)
    return found


def fuzz_one(data: bytes) -> None:
    if len(data) >= 2:
        verdict(DECODERS[NAMES[int.from_bytes(data[:2], "big") % len(NAMES)]], data[2:])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = sys.argv
        if all(each.startswith("-") for each in arguments[1:]):
            for name, bodies in seeds().items():
                for number, body in enumerate(bodies):
                    path = Path(folder) / f"{name.replace(' ', '_')}_{number}"
                    path.write_bytes(NAMES.index(name).to_bytes(2, "big") + body)
            arguments = [*arguments, folder]
        atheris.Setup(arguments, fuzz_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
