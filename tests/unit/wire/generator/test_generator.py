"""The generator: definitions as values, the code it writes, and that the committed files are what it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiokprod.errors import ProtocolError, UnsupportedVersionError
from aiokprod.testing.kafka_cluster.jars import kafka_classpath
from aiokprod.wire.generator.__main__ import KAFKA_VERSION, codes_module
from aiokprod.wire.generator.definitions import LAST, Versions, load
from aiokprod.wire.generator.emit import module, snake

ROOT = Path(__file__).resolve().parents[4]

# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("text", "first", "last"), [("3+", 3, LAST), ("0-5", 0, 5), ("7", 7, 7), ("none", 0, -1), (None, 0, -1)]
)
def test_ranges_of_versions(text: str | None, first: int, last: int) -> None:
    versions = Versions.parse(text)
    assert (versions.first, versions.last) == (first, last)
    assert versions.is_empty == (text in (None, "none"))


def test_ranges_are_cut_and_compared() -> None:
    assert Versions(0, LAST).within(Versions(3, 13)) == Versions(3, 13)
    assert Versions(0, 2).within(Versions(3, 13)).is_empty
    assert Versions(0, LAST).covers(Versions(3, 13))
    assert not Versions(4, LAST).covers(Versions(3, 13))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ErrorCode", "error_code"),
        ("ISRNodes", "isr_nodes"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("Class", "class_"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert snake(name) == expected


# ---------------------------------------------------------------------- error codes
TABLE = """<table class="data-table"><tbody>
<tr><th>Error</th>
<th>Code</th>
</tr>
<tr><td>NONE</td><td>0</td><td>False</td><td></td></tr>
<tr><td>UNKNOWN_SERVER_ERROR</td><td>-1</td><td>False</td><td>Any.</td></tr>
</tbody></table>
"""


def test_codes_come_from_the_table_that_kafka_prints() -> None:
    assert "    UNKNOWN_SERVER_ERROR = -1\n    NONE = 0\n\n" in codes_module(TABLE)


@pytest.mark.parametrize(
    "table", ["", TABLE.replace("<td>0</td>", "<td><b>0</b></td>"), TABLE.replace("NONE", "NO-NE")]
)
def test_a_table_of_another_shape_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="otherwise than before"):
        codes_module(table)


# ---------------------------------------------------------------------- a small definition

REQUEST = """// A licence.
{
  "apiKey": 99, "type": "request", "name": "SampleRequest", "validVersions": "1-4", "flexibleVersions": "3+",
  // what it holds
  "fields": [
    { "name": "Name", "type": "string", "versions": "0+", "nullableVersions": "2+" },
    { "name": "Early", "type": "int32", "versions": "0-2", "default": "-1" },
    { "name": "Late", "type": "int64", "versions": "2+", "default": "0x10" },
    { "name": "Quiet", "type": "bool", "versions": "4+", "default": "true", "ignorable": true },
    { "name": "Gone", "type": "int8", "versions": "0" },
    { "name": "Ratio", "type": "float64", "versions": "1+", "default": "0.5" },
    { "name": "Old", "type": "[]Shared", "versions": "1-2" },
    { "name": "Boxes", "type": "[]Box", "versions": "3+", "nullableVersions": "4+", "fields": [
      { "name": "Items", "type": "[]Shared", "versions": "3+" },
      { "name": "Raw", "type": "records", "versions": "3+", "nullableVersions": "3+" }
    ]},
    { "name": "Maybe", "type": "Spot", "versions": "4+", "nullableVersions": "4+", "default": "null", "fields": [
      { "name": "At", "type": "uint16", "versions": "4+" }
    ]},
    { "name": "Note", "type": "string", "versions": "3+", "taggedVersions": "3+", "tag": 5, "ignorable": true },
    { "name": "Extra", "type": "[]int16", "versions": "4+", "taggedVersions": "4+", "tag": 2, "nullableVersions": "4+" }
  ],
  "commonStructs": [
    { "name": "Shared", "versions": "0+", "fields": [ { "name": "Id", "type": "uuid", "versions": "0+" } ] }
  ]
}
"""
RESPONSE = json.dumps(
    {
        "apiKey": 99, "type": "response", "name": "SampleResponse", "validVersions": "1-4", "flexibleVersions": "none",
        "fields": [
            {"name": "Box", "type": "Box", "versions": "0+", "fields": [
                {"name": "Size", "type": "uint32", "versions": "0+"},
            ]},
        ],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    jar = tmp_path_factory.mktemp("jar") / "sample.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("common/message/SampleRequest.json", REQUEST)
        archive.writestr("common/message/SampleResponse.json", RESPONSE)
    text = module([load(jar, "SampleRequest"), load(jar, "SampleResponse")], "9.9.9")
    made = ModuleType("generated_sample")
    sys.modules["generated_sample"] = made
    exec(compile(text, "generated_sample", "exec"), made.__dict__)
    assert "from the definitions of Apache Kafka 9.9.9: do not edit" in str(made.__doc__)
    return made


def round_trip(message: Any, version: int) -> bytes:
    data: bytes = message.encode(version)
    assert type(message).decode(data, version) == message
    return data


def test_a_message_knows_its_versions(sample: ModuleType) -> None:
    request = sample.SampleRequest
    assert (request.API_KEY, request.MIN_VERSION, request.MAX_VERSION, request.FLEXIBLE_FROM) == (99, 1, 4, 3)
    assert sample.SampleResponse.FLEXIBLE_FROM == LAST


def test_defaults_are_those_of_the_definition(sample: ModuleType) -> None:
    request = sample.SampleRequest()
    assert (request.name, request.early, request.late, request.quiet, request.ratio) == ("", -1, 16, True, 0.5)
    assert (request.boxes, request.maybe, request.note, request.extra) == ([], None, "", [])
    assert not hasattr(request, "gone")  # no valid version has it


def test_the_bytes_of_each_version(sample: ModuleType) -> None:
    half, sixteen = b"\x3f\xe0" + bytes(6), bytes(7) + b"\x10"
    request = sample.SampleRequest()
    assert round_trip(request, 1) == b"\0\0" + b"\xff" * 4 + half + bytes(4)
    assert round_trip(request, 2) == b"\0\0" + b"\xff" * 4 + sixteen + half + bytes(4)
    assert round_trip(request, 3) == b"\1" + sixteen + half + b"\1" + b"\0"
    assert round_trip(request, 4) == b"\1" + sixteen + b"\1" + half + b"\1" + b"\xff" + b"\0"


def test_tagged_fields_are_written_in_order_and_only_when_set(sample: ModuleType) -> None:
    plain = sample.SampleRequest().encode(4)
    tagged = sample.SampleRequest(note="hi", extra=[1, -1])
    assert round_trip(tagged, 4) == plain[:-1] + b"\2" + b"\2\5\3\0\1\xff\xff" + b"\5\3\3hi"
    assert round_trip(sample.SampleRequest(extra=None), 4) == plain[:-1] + b"\1" + b"\2\1\0"


def test_a_tag_of_a_later_version_is_skipped(sample: ModuleType) -> None:
    data = sample.SampleRequest().encode(3)[:-1] + b"\2" + b"\2\1\0" + b"\5\3\3hi"
    assert sample.SampleRequest.decode(data, 3) == sample.SampleRequest(note="hi")


def test_a_tagged_field_fills_its_size(sample: ModuleType) -> None:
    data = sample.SampleRequest().encode(3)[:-1] + b"\1" + b"\5\4\3hi!"
    with pytest.raises(ProtocolError, match="1 bytes after the end"):
        sample.SampleRequest.decode(data, 3)


def test_a_shared_struct_has_its_own_versions_not_those_of_its_first_user(sample: ModuleType) -> None:
    shared = sample.Shared(b"i" * 16)
    assert round_trip(sample.SampleRequest(old=[shared]), 1)[-16:] == b"i" * 16
    round_trip(sample.SampleRequest(boxes=[sample.Box([shared, shared], b"records"), sample.Box([], None)]), 3)


def test_a_nullable_struct_has_a_byte_before_it(sample: ModuleType) -> None:
    data = round_trip(sample.SampleRequest(maybe=sample.Spot(65535)), 4)
    assert data.endswith(b"\1\xff\xff\0" + b"\0")


def test_structs_of_one_name_in_both_messages_are_told_apart(sample: ModuleType) -> None:
    assert round_trip(sample.SampleResponse(sample.SampleResponseBox(2**32 - 1)), 1) == b"\xff" * 4
    assert list(vars(sample.Box)["__slots__"]) == ["items", "raw"]


@pytest.mark.parametrize(
    ("values", "version", "named"),
    [
        ({"early": 0}, 3, "Early"),
        ({"late": 5}, 1, "Late"),
        ({"old": [None]}, 3, "Old"),
        ({"name": None}, 1, "null in Name"),
        ({"boxes": None}, 3, "null in Boxes"),
        ({"boxes": [None]}, 2, "Boxes"),
    ],
)
def test_a_value_that_the_version_cannot_carry_is_refused(
    sample: ModuleType, values: dict[str, Any], version: int, named: str
) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"version {version} has no field {named}, but it is set"):
        sample.SampleRequest(**values).encode(version)


def test_an_ignorable_value_is_left_out(sample: ModuleType) -> None:
    assert sample.SampleRequest(quiet=False).encode(3) == sample.SampleRequest().encode(3)


# ---------------------------------------------------------------------- the committed files


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `--check` on the sources in this folder, against the jar that the real clusters run."""
    jar = Path(kafka_classpath(KAFKA_VERSION)).parent / f"kafka-clients-{KAFKA_VERSION}.jar"
    command = [sys.executable, "-m", "aiokprod.wire.generator", "--check", "--jar", str(jar)]
    environment = os.environ | {"PYTHONPATH": str(folder)}  # also where an installed package is tested
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.real
def test_the_committed_files_are_what_the_generator_writes() -> None:
    done = check(ROOT)
    assert (done.returncode, done.stdout) == (0, "42 files, 0 differ: \n"), done.stderr


@pytest.mark.slow
@pytest.mark.real
def test_a_changed_file_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)  # how ruff formats here
    shutil.copytree(ROOT / "aiokprod", tmp_path / "aiokprod", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    changed = tmp_path / "aiokprod" / "wire" / "messages" / "end_txn.py"
    changed.write_text(changed.read_text().replace("producer_epoch", "epoch_of_producer"))
    done = check(tmp_path)
    assert (done.returncode, done.stdout) == (1, "42 files, 1 differ: end_txn.py\n"), done.stderr
    assert "epoch_of_producer" in changed.read_text()
