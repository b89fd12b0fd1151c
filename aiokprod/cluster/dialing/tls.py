"""TLS: the context built from the options, and texts that say what its failures mean and which option to check.

Invariants: certificates and host names are verified unless the user turned that off, which is logged once; TLS is 1.2 or
newer; there is no fallback to plaintext; no key or password shows in an error.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from aiokprod.cluster.hosts import address_of, is_ip, without_brackets
from aiokprod.config import Secret
from aiokprod.config.option_checks import can_be_encoded
from aiokprod.errors import ConfigError, TlsError
from aiokprod.logs import GuardedLogger, printable

logger = GuardedLogger(__name__)

TEXT_LIMIT: Final = 200
CERTIFICATE: Final = "-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----"
PRIVATE_KEY: Final = "-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----"

# OpenSSL's verification codes (x509_vfy.h); Python has no names for them.
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
SELF_SIGNED: Final = frozenset({18, 19})
NO_ROOT: Final = 2
"""the issuer is trusted, and is no root: OpenSSL wants the root too"""
NO_WAY_TO_ROOT: Final = frozenset({20, 21})
UNKNOWN_ISSUER: Final = frozenset({NO_ROOT, *NO_WAY_TO_ROOT})
HOST_NAME_MISMATCH: Final = 62
IP_MISMATCH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The sources of certificates and keys: files, or PEM texts."""

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    key_file: str | None = None
    key_pem: Secret | None = None
    key_password: Secret | None = None
    check_host_name: bool = True


def build_context(files: TlsFiles, client_id: str = "") -> ssl.SSLContext:
    """Make the context of a producer. Reads files: call it once, before the loop is busy.

    Args:
        files: what to verify with, and what to show.
        client_id: names the producer in the log.

    Raises:
        ConfigError: a file is missing or not PEM, key and certificate do not belong together, a password is wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authorities(context, files)
    _load_own_certificate(context, files)
    if not files.check_host_name:
        context.check_hostname = False
        logger.warning(
            "TLS [%s]: host names of brokers are not verified (ssl_check_hostname is off)", printable(client_id)
        )
    return context


def check_readable(files: TlsFiles) -> None:
    """Check that each named file holds PEM of the right kind.

    Raises:
        ConfigError: a file is missing, or holds something else.
    """
    named = (
        (CERTIFICATE, "ssl_cafile", files.ca_file),
        (CERTIFICATE, "ssl_certfile", files.certificate_file),
        (PRIVATE_KEY, "ssl_keyfile", files.key_file),
    )
    for kind, option, path in named:
        if path is not None:
            _want(kind, _read(option, path), option, path)


def accept_context(context: ssl.SSLContext, client_id: str = "") -> ssl.SSLContext:
    """Return the user's context unchanged, and log a warning about checks that are off in it (`# faults: S3`)."""
    if context.verify_mode != ssl.CERT_REQUIRED:
        logger.warning(
            "TLS [%s]: certificates of brokers are not verified: verify_mode of the given ssl_context is off",
            printable(client_id),
        )
    elif not context.check_hostname:
        logger.warning(
            "TLS [%s]: host names of brokers are not verified: check_hostname of the given ssl_context is off",
            printable(client_id),
        )
    return context


def server_name(host: str) -> str:
    """Return the name that a certificate must carry: without brackets and without the trailing dot of a full name."""
    # A certificate never has that dot, and a comparison with it would refuse every certificate. (faults: S2, N18)
    bare = without_brackets(host)
    return bare if is_ip(bare) else bare.rstrip(".")


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.ca_file is None and files.ca_pem is None:
        context.load_default_certs()
        return
    option = "ssl_ca_pem" if files.ca_file is None else "ssl_cafile"
    text = files.ca_pem or "" if files.ca_file is None else _read(option, files.ca_file)
    _want(CERTIFICATE, text, option, files.ca_file)
    try:
        context.load_verify_locations(cafile=files.ca_file, cadata=files.ca_pem)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        where = "the text" if files.ca_file is None else printable(files.ca_file, TEXT_LIMIT)
        raise ConfigError(
            f"{option}: {where} has a certificate that cannot be read ({error}): what is between BEGIN and END is damaged"
            " or cut"
        ) from None


def _load_own_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    certificate, key = files.certificate_file, files.key_file
    certificate_option = "ssl_certfile" if certificate is not None else "ssl_cert_pem"
    key_option = (
        "ssl_keyfile" if key is not None else "ssl_key_pem" if files.key_pem is not None else certificate_option
    )
    if certificate is None and files.certificate_pem is None:
        if key_option != certificate_option:
            raise ConfigError(f"{key_option}: a key without its certificate: set ssl_certfile or ssl_cert_pem")
        return
    _check_encoding("ssl_cert_pem", files.certificate_pem is None or can_be_encoded(files.certificate_pem))
    _check_encoding("ssl_key_pem", files.key_pem is None or can_be_encoded(files.key_pem.reveal()))
    _check_encoding("ssl_key_password", files.key_password is None or can_be_encoded(files.key_password.reveal()))
    certificate_text = files.certificate_pem or "" if certificate is None else _read("ssl_certfile", certificate)
    key_text = files.key_pem.reveal() if files.key_pem is not None else certificate_text
    key_text = key_text if key is None else _read("ssl_keyfile", key)
    _want(CERTIFICATE, certificate_text, certificate_option, certificate)
    _want(PRIVATE_KEY, key_text, key_option, key or (certificate if key_option == "ssl_certfile" else None))
    with ExitStack() as texts:  # OpenSSL loads a chain from files only
        if certificate is None:
            certificate = texts.enter_context(_as_file(certificate_text))
        if key is None and files.key_pem is not None:
            key = texts.enter_context(_as_file(key_text))
        try:
            # A callable: without one OpenSSL would ask the terminal for the password of an encrypted key.
            context.load_cert_chain(certificate, key, lambda: files.key_password.reveal() if files.key_password else "")
        except (OSError, ValueError) as error:
            meaning = _unloadable(error, key_text, files.key_password, certificate_option)
            raise ConfigError(f"{key_option}: {meaning}") from None


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """Provide a path at which OpenSSL can read the text: a file in memory where the system has those (Linux).

    Elsewhere it is a file that this user alone can read, in a directory of its own; both are removed at the end, and stay
    only if the process is killed in between.
    """
    from pathlib import Path  # with all that it imports, not loaded without TLS

    with ExitStack() as stack:
        descriptor = _in_memory()
        if descriptor is None:
            from tempfile import TemporaryDirectory

            path = Path(stack.enter_context(TemporaryDirectory(prefix="aiokprod-")), "text.pem")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        else:
            path = Path(f"/proc/self/fd/{descriptor}")
        stack.callback(os.close, descriptor)
        left = memoryview(text.encode())
        while left:
            left = left[os.write(descriptor, left) :]
        yield str(path)


def _in_memory() -> int | None:
    """Return the descriptor of a file in memory; None if the system has none, or no path to it."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        descriptor = os.memfd_create("aiokprod", os.MFD_CLOEXEC)
    except OSError:  # forbidden by a sandbox
        return None
    from pathlib import Path

    if Path(f"/proc/self/fd/{descriptor}").exists():
        return descriptor
    os.close(descriptor)
    return None


def _check_encoding(option: str, is_fine: bool) -> None:
    if not is_fine:  # Python's UnicodeEncodeError would show the whole key or password in its repr (faults: S18)
        raise ConfigError(f"{option} cannot be encoded in UTF-8")


def _unloadable(error: Exception, key_text: str, password: Secret | None, certificate_option: str) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"the key is not the one of the certificate in {certificate_option} (which must come first in a chain)"
    if "ENCRYPTED" in key_text:
        return "the key is encrypted: " + (
            f"ssl_key_password does not open it ({error})" if password else "set ssl_key_password"
        )
    return (
        f"certificate ({certificate_option}) and key cannot be loaded ({error}): what is between BEGIN and END of one of them"
        " is damaged or cut"
    )


def _read(option: str, path: str) -> str:
    if "-----BEGIN" in path:  # not shown: it may be the key
        text_option = {"ssl_cafile": "ssl_ca_pem", "ssl_certfile": "ssl_cert_pem", "ssl_keyfile": "ssl_key_pem"}[option]
        raise ConfigError(f"{option} is the path of a file, and what it was given is PEM itself: set {text_option}")
    from pathlib import Path

    try:
        return Path(path).read_text(encoding="ascii", errors="replace")  # PEM is ASCII; comments around it may not be
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{option}: {printable(path, TEXT_LIMIT)} cannot be read: {why}; correct the path") from None


def _want(kind: str, text: str, option: str, path: str | None) -> None:
    """Check that a text holds PEM of a kind: OpenSSL's error ("no start line") names neither option nor file.

    Raises:
        ConfigError: it does not.
    """
    if re.search(kind, text):
        return
    where = "the text" if path is None else printable(path, TEXT_LIMIT)
    if kind == CERTIFICATE:
        raise ConfigError(f"{option}: {where} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    own = "" if "key" in option else "; set ssl_keyfile or ssl_key_pem"
    raise ConfigError(f"{option}: {where} holds no private key in PEM{own}")


def diagnose(error: BaseException, host: str, port: int) -> TlsError:
    """Return an error that says what a failed TLS handshake means and which option to check."""
    return TlsError(f"{address_of(host, port)}: {_meaning(error, host)}")


def is_tls_failure(error: BaseException) -> bool:
    """Return whether TLS itself failed, and not the network below."""
    return isinstance(error, ssl.SSLError)


def _meaning(error: BaseException, host: str) -> str:
    """Return what the user should check; never how to turn off TLS or one of its checks."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _bad_certificate(error, host)
    if isinstance(error, ssl.SSLError):
        reason = str(getattr(error, "reason", None) or "").upper()  # absent if Python and not OpenSSL made the error
        if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return (
                "the other side does not speak TLS: check that this is the port of a TLS listener of the broker"
                " (its listeners and listener.security.protocol.map say which one is)"
            )
        if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
            return (
                "no common TLS version: ours are 1.2 and newer, or those of the given ssl_context;"
                " the broker needs one of them in its ssl.enabled.protocols"
            )
        if "CERTIFICATE_REQUIRED" in reason:
            return "the broker wants a client certificate: set ssl_certfile and ssl_keyfile"
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return (
                f"the broker refused our client certificate, or that there is none ({reason}): ssl_certfile and"
                " ssl_keyfile must be of an authority in its truststore"
            )
        if "HANDSHAKE_FAILURE" in reason:
            return (
                "the broker refused our side of TLS without saying why: it may want a client certificate (ssl_certfile"
                " and ssl_keyfile), or have no cipher in common with us (ssl.cipher.suites on the broker)"
            )
        if reason != "UNEXPECTED_EOF_WHILE_READING" and not isinstance(error, ssl.SSLEOFError):
            return f"TLS failed: {printable(str(error), TEXT_LIMIT)}"
    return (
        "the broker hung up during the TLS handshake: check that this is the port of a TLS listener; if it is, the broker"
        " may have no TLS version in common with us (1.2 and newer) or refuse our client certificate, or that there is"
        " none (ssl_certfile); its log says which"
    )


def _bad_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    code = getattr(error, "verify_code", 0)  # one that a `dialer` has made need not have it
    if code == EXPIRED:
        return "the broker's certificate has expired: renew it (or set this machine's clock)"
    if code == NOT_YET_VALID:
        return "the broker's certificate is not valid yet: set this machine's clock, or wait"
    if code in SELF_SIGNED:
        return "the broker's certificate is signed by itself or by an unknown authority: name that one in ssl_cafile"
    if code in UNKNOWN_ISSUER:
        return (
            "the broker's certificate comes from an authority that is not trusted here: name that one in ssl_cafile; if it is"
            " there, let the broker send the certificates between too"
        )
    if code in (HOST_NAME_MISMATCH, IP_MISMATCH):
        return (
            f"the broker's certificate is not for {server_name(host)}: check that this is the broker you mean, and use a"
            " name that its certificate carries in bootstrap_servers and advertised.listeners"
        )
    return f"the broker's certificate is refused: {printable(getattr(error, 'verify_message', error), TEXT_LIMIT)}"
