"""`aiokprod config explain`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_runs import objects, ok, run

from aiokprod.cli.option_meanings import MEANINGS
from aiokprod.config import ProducerConfig

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
PASSWORD = "the-password-of-alice"
SASL = (
    "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice",
    "-X", f"sasl.password={PASSWORD}",
)  # fmt: skip


def test_an_option_is_explained_in_any_spelling() -> None:
    told = ok(None, "config", "explain", "queue.buffering.max.ms")
    assert told.splitlines()[:4] == [
        "linger_ms", "  How long a batch waits for more records.", "  value:     5", "  from:      default",
    ]  # fmt: skip
    assert "AIOKPROD_LINGER_MS" in told and "queue.buffering.max.ms" in told and "a number from 0" in told


def test_the_value_is_the_effective_one_and_its_source_is_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=2\nbatch.size=1000\n")
    arguments = (
        "config",
        "explain",
        "linger_ms",
        "batch_size",
        "client_id",
        "--json",
        "--config",
        str(file),
        "-X",
        "linger.ms=3",
    )
    found = {
        each["option"]: each for each in objects(ok(None, *arguments, AIOKPROD_LINGER_MS="1", KAFKA_CLIENT_ID="me"))
    }
    assert (found["linger_ms"]["value"], found["linger_ms"]["from"]) == ("3", "-X")
    assert found["linger_ms"]["overridden"] == [f"--config {file}", "AIOKPROD_LINGER_MS"]
    assert found["batch_size"]["from"] == f"--config {file}"
    assert (found["client_id"]["value"], found["client_id"]["from"]) == ("'me'", "KAFKA_CLIENT_ID")


def test_an_option_that_has_no_value_is_told_so_and_not_as_none() -> None:
    told = ok(None, "config", "explain", "ssl_cafile", "delivery_timeout_ms")
    assert "value:     not set\n" in told and told.count("default:   not set\n") == 2 and "None" not in told
    table = ok(None, "config", "explain", "--all")
    assert "None" not in table


def test_without_names_what_is_set_is_listed() -> None:
    told = ok(None, "config", "explain", "-X", "queue.buffering.max.ms=7", AIOKPROD_ACKS="1")
    assert [line.split(maxsplit=2) for line in told.splitlines()] == [
        ["OPTION", "VALUE", "FROM"], ["acks", "1", "AIOKPROD_ACKS"], ["linger_ms", "7", "-X (queue.buffering.max.ms)"],
    ]  # fmt: skip
    nothing = run(None, "config", "explain")
    assert (nothing.exit_code, nothing.stdout) == (0, "") and "--all" in nothing.stderr


def test_all_options_are_shown_with_where_they_come_from() -> None:
    found = {each["option"]: each for each in objects(ok(None, "config", "explain", "--all", "--json", "-X", "acks=1"))}
    assert list(found) == ProducerConfig.names()
    assert found["bootstrap_servers"]["from"] == "nowhere: it is needed"
    assert found["start_timeout_ms"]["from"].startswith("default of the command line")
    assert found["enable_idempotence"]["from"] == "derived from other options"
    assert found["dialer"]["variable"] is None


@pytest.mark.parametrize("form", [(), ("--json",), ("--all",), ("sasl_password",)])
def test_a_secret_is_never_shown(form: tuple[str, ...]) -> None:
    assert PASSWORD not in run(None, "config", "explain", *form, *SASL).output


def test_a_secret_is_not_shown_by_errors_either() -> None:
    for pair in (f"sasl.passwort={PASSWORD}", f"linger.ms={PASSWORD}", f"acks={PASSWORD}"):
        done = run(None, "config", "explain", "-X", pair)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1
        if not pair.startswith(("linger", "acks")):
            assert PASSWORD not in done.output


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        ("linger.ms=\udcff", "linger.ms is '\\xff': it must be a number"),
        ("client.id=\udcff", "client.id is '\\xff': it must be a text of at most 32767 bytes in UTF-8"),
        ("sasl.username=\udcff", "sasl.username is not UTF-8"),
        ("sasl.password=\udcff", "sasl.password is not UTF-8"),
        ("sasl.username=", "sasl.username is '': it must be a text that is not empty"),
        ("sasl.password=", "sasl.password is empty: it must be a text that is not empty"),
        (
            "ssl.cafile=",
            "ssl.cafile is '': it must be the path of a file; what is in such a file is given as ssl_ca_pem",
        ),
    ],
)
def test_texts_that_are_empty_or_not_utf8_are_told_without_words_of_python(pair: str, line: str) -> None:
    assert run(None, "config", "explain", "-X", pair).stderr == f"aiokprod config explain: -X: {line}\n"
    assert examined(pair)["what"] == line


def examined(pair: str) -> dict[str, str]:
    [found] = objects(run(None, "doctor", "--json", "-b", "127.0.0.1:1", "-X", pair).stdout)
    return found


def test_what_an_option_must_be_is_told_without_types_of_python() -> None:
    told = ok(None, "config", "explain", *ProducerConfig.names())
    for_texts = [each for each in told.split("\n\n") if "  variable:" in each]
    assert [each for each in for_texts if re.search(r"must be:.*(\bstr\b|\bPath\b|Secret|function)", each)] == []


@pytest.mark.parametrize(("name", "near"), [("lingr.ms", "linger.ms"), ("lingr_ms", "linger_ms")])
def test_an_unknown_option_is_told_with_the_nearest_name_in_the_spelling_that_was_typed(name: str, near: str) -> None:
    done = run(None, "config", "explain", name)
    assert (done.exit_code, done.stderr) == (
        2,
        f"aiokprod config explain: unknown option '{name}': did you mean '{near}'?\n",
    )


def test_an_unknown_option_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=7\nthis is no option\n")
    done = run(None, "config", "explain", "--config", str(file))
    assert done.stderr.startswith(f"aiokprod config explain: {file}, line 2: unknown option 'this': leave it out")
    [found] = objects(run(None, "doctor", "--json", "-b", "127.0.0.1:1", "--config", str(file)).stdout)
    assert found["change"] == "delete this"


def test_the_meanings_are_those_of_the_page() -> None:
    rows = [line for line in PAGE.split("\n## Options\n")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
    page = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        text = re.sub(r"\s*\(\[below\]\([^)]*\)\)", "", cells[-1])
        page[cells[0].strip("`")] = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")
    assert page == MEANINGS


def test_a_value_that_is_given_with_a_name_is_not_shown() -> None:
    done = run(None, "config", "explain", f"sasl.password={PASSWORD}")
    assert done.exit_code == 2 and PASSWORD not in done.output
    assert "values are set by -X" in done.stderr


def test_all_lines_that_are_wrong_are_told_and_the_others_shown(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("key.serializer=org.x\nlinger.ms=7\nssl.truststore.location=/t.jks\n")
    done = run(None, "config", "explain", "--config", str(file), "-X", "acks=5")
    assert done.exit_code == 2
    where = f"aiokprod config explain: --config {file}: option "
    told = done.stderr.splitlines()
    assert (
        told[0] == f"{where}'key.serializer' is for programs, and a command does not use it: delete its line, or the -X"
    )
    assert told[1].startswith(f"{where}'ssl.truststore.location' has no meaning here: ")
    assert told[2].startswith("aiokprod config explain: -X: acks is '5'") and len(told) == 3
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["OPTION", "linger_ms"]


def test_options_that_do_not_fit_together_are_told() -> None:
    done = run(None, "config", "explain", "-X", "sasl.username=me")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "sasl_username is set" in done.stderr


def test_the_values_that_do_not_fit_together_are_shown_with_the_others_and_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"sasl.username=me\nsasl.password={PASSWORD}\nlinger.ms=7\ncompression.type=lz4\ncompression.lz4.level=99\n"
    )
    done = run(None, "config", "explain", "--config", str(file), "-X", "acks=1", "-X", "enable.idempotence=true")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 3), done.stderr
    found = {option: (value, source) for option, value, source in map(str.split, head_of(done.stdout))}
    assert found == {
        "acks": ("'1'", "-X"), "enable_idempotence": ("True", "-X"), "linger_ms": ("7", "--config"),
        "compression_type": ("'lz4'", "--config"), "compression_level": ("99", "--config"),
        "sasl_username": ("'me'", "--config"), "sasl_password": ("Secret(***)", "--config"),
    }  # fmt: skip
    assert PASSWORD not in done.output


def head_of(table: str) -> list[str]:
    """Return the rows of a table, without its head, and the first word of where each value comes from."""
    return [" ".join(line.split()[:3]) for line in table.splitlines()[1:]]


@pytest.mark.parametrize("form", [(), ("--all",), ("--json",), ("linger.ms",)])
@pytest.mark.parametrize(
    "pairs",
    [
        ("acks=1", "transactional.id=a"), ("batch.size=9", "max.request.size=8"),
        ("max.request.size=99999999", "buffer.memory=9999"),
        ("security.protocol=SASL_SSL",), ("ssl.cafile=/a", "ssl.certfile=/b"), ("ssl.key.password=a", "security.protocol=SSL"),
        ("delivery.timeout.ms=1", "linger.ms=5"), ("compression.type=gzip", "compression.gzip.level=77"),
        ("max.in.flight=9", "enable.idempotence=1"),
        ("sasl.mechanism=XY", "retries=0", "enable.idempotence=true"), ("bootstrap.servers=a:1", "sasl.username=b"),
    ],
)  # fmt: skip
def test_conflicts_of_every_kind_are_explained(pairs: tuple[str, ...], form: tuple[str, ...]) -> None:
    done = run(None, "config", "explain", *form, *(each for pair in pairs for each in ("-X", pair)))
    assert done.exit_code == 2 and done.stdout


def test_all_names_that_are_unknown_are_told_and_the_others_explained() -> None:
    done = run(None, "config", "explain", "linger.ms", "foo", "bar")
    assert done.exit_code == 2
    assert [name for name in ("'foo'", "'bar'") if name not in done.stderr] == []
    assert done.stdout.splitlines()[0] == "linger_ms"


def test_all_variables_and_lines_that_are_wrong_are_told_each_with_its_source_once(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("=x\nbatch.size=1000\nacks=1\nacks=all\n")
    arguments = ("config", "explain", "--config", str(file), "-X", "retries=-1")
    done = run(None, *arguments, AIOKPROD_LINGER_MS="abc", AIOKPROD_MAX_BLOCK_MS="x")
    assert sorted(line.removeprefix("aiokprod config explain: ") for line in done.stderr.splitlines()) == [
        "-X: retries is -1: it must be a whole number from 0 to 2147483647",
        f"{file}, line 1 has no name: write name=value",
        f"{file}: 'acks' has two values, in lines 3 and 4",
        "AIOKPROD_LINGER_MS is 'abc': it must be a number",
        "AIOKPROD_MAX_BLOCK_MS is 'x': it must be a number",
    ]
    assert done.exit_code == 2
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["OPTION", "VALUE"], ["batch_size", "1000"]]


@pytest.mark.parametrize("in_file", ["a", "7"])
def test_a_wrong_value_leaves_the_one_that_it_overrides_out(tmp_path: Path, in_file: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"linger.ms={in_file}\nbatch.size=1000\n")
    arguments = ("config", "explain", "--config", str(file), "-X", "linger.ms=abc")
    done = run(None, *arguments)
    assert done.stderr == "aiokprod config explain: -X: linger.ms is 'abc': it must be a number\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["OPTION", "batch_size"]
    [one] = objects(run(None, *arguments, "linger.ms", "--json").stdout)
    assert (one["value"], one["from"]) == ("none: the one that is given is wrong", "-X")


def test_a_wrong_server_does_not_hide_the_other_options() -> None:
    done = run(None, "config", "explain", "-b", "tcp://kafka:1", "-X", "linger.ms=3")
    assert done.exit_code == 2 and done.stderr.startswith("aiokprod config explain: -b: bootstrap_servers: ")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["OPTION", "linger_ms"]
