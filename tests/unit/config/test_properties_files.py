"""`ProducerConfig.from_properties`: the files of Java clients, librdkafka and kcat."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod import ProducerConfig
from aiokprod.config.properties import parse
from aiokprod.errors import ConfigError

CANARY = "hunter2"


def test_a_file_of_a_java_client_is_read_and_keywords_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# Required for all clients\n"
        "bootstrap.servers=one:9092,\\\n    two:9092\n"
        "security.protocol = SASL_SSL\r\n"
        "! as written by an older tool\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" \\\n'
        f'  password="{CANARY}=:#x";\n'
        "sasl.mechanism: PLAIN\n"
        "linger.ms 20\n",
        encoding="utf-8",
    )
    config = ProducerConfig.from_properties(file, acks=1)
    assert config.bootstrap_addresses == (("one", 9092), ("two", 9092))
    assert (config.linger_ms, config.acks, config.sasl_username) == (20, 1, "u")
    assert config == ProducerConfig.from_properties(str(file), acks=1)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("\n  \n# a=b\n!c=d\n", {}),
        ("a=b", {"a": "b"}),
        ("  a  =  b c ", {"a": "b c "}),
        ("a:b\rc d\r\ne", {"a": "b", "c": "d", "e": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b#c", {"a": "b#c"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t\\\\\\x", {"a": "\u00e9\t\\x"}),
        ("a=b\\\n  c\\\\\nd=e", {"a": "bc\\", "d": "e"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\na=b", {"a": "b"}),
    ],
)
def test_lines_are_those_of_java_util_properties(text: str, options: dict[str, str]) -> None:
    assert parse(text, "file") == options


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a=1\n[default]\nb=2", "file, line 2 is a section"),
        (f"={CANARY}", "file, line 1 has no name"),
        (f"a={CANARY}\nb=1\na=2", "file: 'a' has two values, in lines 1 and 3"),
    ],
)
def test_what_is_no_option_is_told_with_its_line_and_without_its_value(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "file")
    assert says in str(raised.value) and CANARY not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a=\xff")
    for path, says in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (tmp_path / "latin", "UTF-8")):
        with pytest.raises(ConfigError, match=says) as raised:
            ProducerConfig.from_properties(path)
        assert str(path) in str(raised.value)


def test_a_long_line_is_read_in_a_time_that_grows_with_its_length() -> None:
    for text in ("\\" * 200_001, " " * 200_000 + "=", "a" * 200_000, "a=b\\\n" * 50_000):
        try:
            parse(text, "file")
        except ConfigError:
            pass  # what matters is that it ends: quadratic, each would take minutes
