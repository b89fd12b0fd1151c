"""Contexts from options, and what failures of TLS are called."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from aiokprod.cluster.dialing.tls import TlsFiles, accept_context, build_context, diagnose, is_tls_failure, server_name
from aiokprod.config import Secret
from aiokprod.errors import ConfigError, TlsError

CA = trustme.CA()
LEAF = CA.issue_cert("client@example.org")
CA_PEM = CA.cert_pem.bytes().decode()
CERTIFICATE_PEM = "".join(pem.bytes().decode() for pem in LEAF.cert_chain_pems)
KEY_PEM = LEAF.private_key_pem.bytes().decode()
PASSWORD = "canary-passphrase"
ENCRYPTED_KEY_PEM = (
    load_pem_private_key(KEY_PEM.encode(), None)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    .decode()
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"ca": CA_PEM, "certificate": CERTIFICATE_PEM, "key": KEY_PEM, "encrypted": ENCRYPTED_KEY_PEM}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


def test_certificates_and_names_are_verified_with_tls_1_2_or_newer() -> None:
    context = build_context(TlsFiles())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.get_ca_certs() or ssl.get_default_verify_paths()


def test_only_the_named_authorities_are_trusted(files: dict[str, str]) -> None:
    for context in (build_context(TlsFiles(ca_file=files["ca"])), build_context(TlsFiles(ca_pem=CA_PEM))):
        assert len(context.get_ca_certs()) == 1


def test_a_client_certificate_comes_from_files_or_texts(files: dict[str, str]) -> None:
    build_context(TlsFiles(certificate_file=files["certificate"], key_file=files["key"]))
    build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM, key_pem=Secret(KEY_PEM)))
    build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM + KEY_PEM))  # both in one
    build_context(TlsFiles(certificate_file=files["certificate"], key_pem=Secret(KEY_PEM)))


def test_an_encrypted_key_is_opened_with_its_password(files: dict[str, str]) -> None:
    for key in ({"key_file": files["encrypted"]}, {"key_pem": Secret(ENCRYPTED_KEY_PEM)}):
        build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM, key_password=Secret(PASSWORD), **key))


@pytest.mark.parametrize(
    ("password", "says"),
    [
        (None, "set ssl_key_password"),
        (Secret(""), "set ssl_key_password"),
        (Secret("wrong"), "ssl_key_password does not"),
    ],
)
@pytest.mark.parametrize("option", ["key_file", "key_pem", "certificate_pem", "certificate_file"])
def test_a_wrong_or_missing_password_is_a_wrong_option_and_asks_no_terminal(
    password: Secret | None, says: str, option: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(ENCRYPTED_KEY_PEM)
    (tmp_path / "both").write_text(CERTIFICATE_PEM + ENCRYPTED_KEY_PEM)
    options: dict[str, dict[str, Any]] = {
        "key_file": {"certificate_pem": CERTIFICATE_PEM, "key_file": str(tmp_path / "key")},
        "key_pem": {"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret(ENCRYPTED_KEY_PEM)},
        "certificate_pem": {"certificate_pem": CERTIFICATE_PEM + ENCRYPTED_KEY_PEM},
        "certificate_file": {"certificate_file": str(tmp_path / "both")},
    }
    named = {
        "key_file": "ssl_keyfile", "key_pem": "ssl_key_pem", "certificate_pem": "ssl_cert_pem",
        "certificate_file": "ssl_certfile",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=says) as raised:
        build_context(TlsFiles(key_password=password, **options[option]))
    assert str(raised.value).startswith(f"{named[option]}: ")
    assert "wrong" not in str(raised.value)


OTHER_KEY = CA.issue_cert("other.example").private_key_pem.bytes().decode()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ca_file": "/no/such/file"}, "ssl_cafile: /no/such/file cannot be read: No such file"),
        ({"ca_file": "/"}, "ssl_cafile: / cannot be read: Is a directory"),
        ({"ca_file": __file__}, "ssl_cafile: .* holds no certificate in PEM"),
        ({"ca_pem": "rubbish"}, "ssl_ca_pem: the text holds no certificate in PEM"),
        ({"ca_pem": "rübbish"}, "ssl_ca_pem: the text holds no certificate in PEM"),
        ({"ca_pem": CERTIFICATE_PEM.replace("M", "!")}, "ssl_ca_pem: "),
        ({"certificate_file": "/no/such/file"}, "ssl_certfile: /no/such/file cannot be read: No such file"),
        ({"certificate_file": __file__}, "ssl_certfile: .* holds no certificate in PEM"),
        ({"certificate_pem": "rubbish"}, "ssl_cert_pem: the text holds no certificate in PEM"),
        ({"certificate_pem": CERTIFICATE_PEM}, "ssl_cert_pem: .* no private key in PEM.*ssl_keyfile or ssl_key_pem"),
        (
            {"certificate_pem": CERTIFICATE_PEM, "key_file": "/no/such/file"},
            "ssl_keyfile: /no/such/file cannot be read: No such file",
        ),
        (
            {"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret("rubbish")},
            "ssl_key_pem: the text holds no private key in PEM",
        ),
        (
            {"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret(OTHER_KEY)},
            "ssl_key_pem: the key is not the one of the certificate in ssl_cert_pem",
        ),
        ({"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret(KEY_PEM.replace("M", "!"))}, "ssl_key_pem: "),
        ({"key_pem": Secret(KEY_PEM)}, "ssl_key_pem: .*set ssl_certfile or ssl_cert_pem"),
        ({"key_file": "/some/key"}, "ssl_keyfile: .*set ssl_certfile or ssl_cert_pem"),
    ],
)
def test_what_cannot_be_loaded_is_a_wrong_option_named_as_the_user_set_it(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        build_context(TlsFiles(**options))
    assert "PRIVATE KEY" not in str(raised.value)


def test_no_key_stays_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # faults: S18
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM, key_pem=Secret(KEY_PEM)))
    with pytest.raises(ConfigError):
        build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM, key_pem=Secret("rubbish")))
    assert list(tmp_path.iterdir()) == []


def test_turning_the_check_of_names_off_is_logged(caplog: pytest.LogCaptureFixture) -> None:  # faults: S3
    context = build_context(TlsFiles(check_host_name=False), "shop")
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert "TLS [shop]: " in caplog.text and "ssl_check_hostname" in caplog.text


def test_a_context_of_the_users_is_taken_as_it_is_and_its_holes_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:  # faults: S3
    context = ssl.create_default_context()
    assert accept_context(context) is context
    assert caplog.text == ""
    context.check_hostname = False
    accept_context(context)
    assert caplog.text.count("check_hostname") == 1
    context.verify_mode = ssl.CERT_NONE
    accept_context(context, "shop")
    assert caplog.text.count("TLS [shop]: certificates") == 1
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("a.example", "a.example"),
        ("a.example.", "a.example"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_the_name_to_verify_has_no_brackets_and_no_final_dot(host: str, name: str) -> None:  # faults: S2
    assert server_name(host) == name


def openssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] something")
    error.reason = reason
    return error


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "verify failed")
    error.verify_code = code
    error.verify_message = "because\x1b[0m"
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (openssl_error("WRONG_VERSION_NUMBER"), "does not speak TLS"),
        (openssl_error("TLSV1_ALERT_PROTOCOL_VERSION"), "no common TLS version"),
        (openssl_error("UNSUPPORTED_PROTOCOL"), "no common TLS version"),
        (openssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "wants a client certificate"),
        (openssl_error("TLSV1_ALERT_UNKNOWN_CA"), "refused our client certificate, or that there is none"),
        (openssl_error("SSLV3_ALERT_BAD_CERTIFICATE"), "refused our client certificate, or that there is none"),
        (openssl_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), "no cipher in common"),
        (openssl_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), "may want a client certificate"),
        (openssl_error("SOMETHING_ELSE"), "TLS failed"),
        (openssl_error("UNEXPECTED_EOF_WHILE_READING"), "hung up during the TLS handshake"),
        (ssl.SSLEOFError(8, "EOF occurred"), "hung up during the TLS handshake"),
        (ConnectionResetError(), "hung up during the TLS handshake"),
        (ssl.SSLError(1, "bare"), "TLS failed"),
        (unverified(9), "not valid yet"),
        (unverified(10), "expired"),
        (unverified(18), "signed by itself"),
        (unverified(19), "signed by itself"),
        (unverified(20), "authority that is not trusted"),
        (unverified(20), "if it is there, let the broker send the certificates between too"),
        (unverified(21), "authority that is not trusted"),
        (unverified(62), "not for broker.example"),
        (unverified(64), "not for broker.example"),
        (unverified(23), "refused: because"),
    ],
)
def test_each_failure_names_host_port_and_meaning(error: Exception, words: str) -> None:  # faults: S1, S2, S4, S5
    told = diagnose(error, "broker.example", 9093)
    assert isinstance(told, TlsError)
    assert str(told).startswith("broker.example:9093: ")
    assert words in str(told)
    assert "\x1b" not in str(told)
    for way_out in ("PLAINTEXT", "ssl_check_hostname", "can allow", "turn"):
        assert way_out not in str(told), "what to verify, not how to do without"


def test_failures_of_tls_are_told_from_those_of_the_network() -> None:
    assert is_tls_failure(ssl.SSLError(1, "x"))
    assert not is_tls_failure(ConnectionResetError())


SURROGATE = "canary\udcff"


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("ssl_key_pem", {"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret(KEY_PEM + SURROGATE)}),
        ("ssl_cert_pem", {"certificate_pem": CERTIFICATE_PEM + KEY_PEM + SURROGATE}),
        (
            "ssl_key_password",
            {
                "certificate_pem": CERTIFICATE_PEM,
                "key_pem": Secret(ENCRYPTED_KEY_PEM),
                "key_password": Secret(SURROGATE),
            },
        ),
    ],
)
def test_a_text_without_utf_8_is_named_and_not_shown(option: str, wrong: dict[str, Any]) -> None:  # faults: S18
    with pytest.raises(ConfigError, match=f"{option} cannot be encoded in UTF-8") as raised:
        build_context(TlsFiles(**wrong))
    error: BaseException | None = raised.value
    while error is not None:
        assert "canary" not in f"{error!r}{error}"
        assert "PRIVATE" not in f"{error!r}{error}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("option", "meant", "files"),
    [
        ("ssl_cafile", "ssl_ca_pem", {"ca_file": CA_PEM}),
        ("ssl_certfile", "ssl_cert_pem", {"certificate_file": CERTIFICATE_PEM}),
        ("ssl_keyfile", "ssl_key_pem", {"certificate_pem": CERTIFICATE_PEM, "key_file": KEY_PEM}),
    ],
)
def test_a_text_where_a_path_belongs_is_named_and_not_shown(option: str, meant: str, files: dict[str, Any]) -> None:
    # faults: S18
    with pytest.raises(ConfigError, match=f"{option} is the path of a file.*{meant}") as raised:
        build_context(TlsFiles(**files))
    assert "BEGIN" not in str(raised.value)


def test_a_pem_text_may_have_comments_beyond_ascii() -> None:
    build_context(TlsFiles(certificate_pem="# Größe\n" + CERTIFICATE_PEM, key_pem=Secret("# Größe\n" + KEY_PEM)))


BOTH: dict[str, Any] = {"certificate_pem": CERTIFICATE_PEM, "key_pem": Secret(KEY_PEM)}


def test_a_key_that_is_given_as_a_text_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "is not there"))  # whatever is written there fails
    before = len(list(Path("/proc/self/fd").iterdir()))
    build_context(TlsFiles(**BOTH))
    with pytest.raises(ConfigError):
        build_context(TlsFiles(certificate_pem=CERTIFICATE_PEM, key_pem=Secret(ENCRYPTED_KEY_PEM)))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_without_files_in_memory_a_key_is_in_a_file_of_this_user_alone_and_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    seen: list[tuple[int, int]] = []
    plain_open = os.open

    def looked_at(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        descriptor = plain_open(path, flags, mode, **options)
        if str(path).endswith(".pem"):
            seen.append((stat.S_IMODE(os.fstat(descriptor).st_mode), stat.S_IMODE(Path(path).parent.stat().st_mode)))
            assert flags & os.O_EXCL
        return descriptor

    monkeypatch.setattr(os, "open", looked_at)
    build_context(TlsFiles(**BOTH))
    assert seen == [(0o600, 0o700)] * 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", [True, False])
def test_where_files_in_memory_are_forbidden_or_have_no_path_a_context_is_made_all_the_same(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(name: str, flags: int) -> int:
        if fails:
            raise PermissionError("a sandbox")
        return os.dup(2)

    monkeypatch.setattr(os, "memfd_create", forbidden)
    if not fails:
        monkeypatch.setattr(Path, "exists", lambda path: False)
    build_context(TlsFiles(**BOTH))


def test_a_damaged_certificate_is_told_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "half.pem"
    kind = "CERTIFICATE"  # not written out: another test says that this very file holds none
    file.write_text(f"-----BEGIN {kind}-----\nMIIB\n-----END {kind}-----\n")
    with pytest.raises(
        ConfigError, match=r"^ssl_cafile: .*half\.pem has a certificate that cannot be read .*damaged or cut"
    ):
        build_context(TlsFiles(ca_file=str(file)))
