"""docs/how-to/security.md: each template is loaded, and sends a record to a broker with its protocol and mechanism."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import parse_qs

import pytest
import trustme
from page_programs import ROOT, Block, blocks

from aiokprod import OAuthToken, Producer, ProducerConfig
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster
from aiokprod.testing.mock import sasl_gate
from aiokprod.testing.mock.scram_server import OAuthBearerServer

PAGE: Final = ROOT / "docs" / "how-to" / "security.md"
TEMPLATES: Final = blocks(PAGE, "properties")
SERVICES: Final = (
    "Confluent Cloud",
    "Amazon MSK",
    "Aiven",
    "Azure Event Hubs",
    "Redpanda",
    "Google",
    "Oracle",
    "IBM",
    "Heroku",
)


class Keys(NamedTuple):
    """Files of an authority, and what it issued to a client and to the broker."""

    authority: Path
    certificate: Path
    key: Path
    of_broker: ssl.SSLContext
    of_strict_broker: ssl.SSLContext


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    client = authority.issue_cert("client@example.com")
    client.cert_chain_pems[0].write_to_path(str(folder / "client.crt"))
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    contexts = []
    for is_strict in (False, True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED if is_strict else ssl.CERT_NONE
        contexts.append(context)
    return Keys(folder / "ca.pem", folder / "client.crt", folder / "client.key", *contexts)


def adapted(template: Block, keys: Keys, folder: Path) -> tuple[Path, dict[str, str]]:
    """Write a template to a file, with the paths of files that are there; return it, and its values."""
    values = dict(line.split("=", 1) for line in template.text.splitlines())
    here = {
        "ssl.ca.location": keys.authority,
        "ssl.certificate.location": keys.certificate,
        "ssl.key.location": keys.key,
    }
    values |= {name: str(path) for name, path in here.items() if name in values}
    values["ssl.ca.location"] = str(
        keys.authority
    )  # the services' own authorities are known to systems, this one is not
    path = folder / template.marks["file"]
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")
    return path, values


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda block: block.marks["file"])
def test_a_template_is_loaded_as_it_stands(template: Block, tmp_path: Path) -> None:
    path = tmp_path / template.marks["file"]
    path.write_text(template.text, encoding="utf-8")
    config = ProducerConfig.from_properties(path)
    values = dict(line.split("=", 1) for line in template.text.splitlines())
    assert config.security_protocol == values["security.protocol"]
    assert config.sasl_mechanism == values.get("sasl.mechanism")
    assert config.sasl_username == values.get("sasl.username")
    if password := values.get("sasl.password"):
        assert password not in repr(config)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda block: block.marks["file"])
def test_a_template_sends_to_a_broker_of_its_kind(template: Block, keys: Keys, tmp_path: Path) -> None:
    path, values = adapted(template, keys, tmp_path)
    is_mutual = "ssl.certificate.location" in values
    server: dict[str, Any] = {"ssl_context": keys.of_strict_broker if is_mutual else keys.of_broker}
    if "sasl.mechanism" in values:
        server |= {
            "sasl_mechanisms": [values["sasl.mechanism"]],
            "users": {values["sasl.username"]: values["sasl.password"]},
        }

    async def scenario() -> None:
        async with MockCluster(1, **server) as cluster:
            config = ProducerConfig.from_properties(path, bootstrap_servers=cluster.bootstrap_servers)
            async with Producer(config) as producer:
                await producer.send("orders", b"v")
            assert len(cluster.records("orders")) == 1
            plain = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
            with pytest.raises(AiokprodError):
                await Producer(plain).start(timeout=0.5)

    asyncio.run(scenario())


def program_of(name: str) -> Any:
    """Return what the page's one program with this function defines under its name."""
    (program,) = (block for block in blocks(PAGE, "python") if f"def {name}(" in block.text)
    names: dict[str, Any] = {}
    exec(compile(program.padded(), program.page, "exec"), names)
    return names[name]


class IdentityProvider(BaseHTTPRequestHandler):
    """A token endpoint for client credentials."""

    forms: ClassVar[list[dict[str, list[str]]]] = []

    def do_POST(self) -> None:
        self.forms.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        answer = json.dumps({"access_token": "a.token", "expires_in": 3600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    IdentityProvider.forms.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), IdentityProvider)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token"
    server.shutdown()
    serving.join()
    server.server_close()


def sends_with_tokens(config: ProducerConfig, keys: Keys, *, expires_within_s: float = 3_600.0) -> dict[str, str]:
    """Send a record with a config of OAUTHBEARER, to a broker of its kind; return the extensions that the broker got."""
    seen: list[OAuthBearerServer] = []

    def remember(mechanism: str, users: Any) -> OAuthBearerServer:
        assert mechanism == "OAUTHBEARER"
        seen.append(OAuthBearerServer(users))
        return seen[-1]

    async def scenario() -> None:
        server: dict[str, Any] = {"sasl_mechanisms": ["OAUTHBEARER"], "users": {"shop": "a.token"}}
        async with MockCluster(1, ssl_context=keys.of_broker, **server) as cluster:
            here = config.replace(bootstrap_servers=cluster.bootstrap_servers, ssl_cafile=str(keys.authority))
            async with Producer(here) as producer:
                await producer.send("orders", b"v")
            assert len(cluster.records("orders")) == 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sasl_gate, "start", remember)
        asyncio.run(scenario())
    answer = config.sasl_oauth_token_provider()
    token = answer if isinstance(answer, OAuthToken) else OAuthToken(*answer)
    assert token.expires_at_ms is not None
    assert 0 < token.expires_at_ms / 1000 - time.time() <= expires_within_s + 1
    return seen[-1].extensions


def test_the_program_for_client_credentials_sends_with_a_token(endpoint: str, keys: Keys) -> None:
    provider = program_of("client_credentials")(endpoint, "shop", "a secret", "kafka")
    config = ProducerConfig(
        bootstrap_servers="kafka:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    sends_with_tokens(config, keys)
    assert IdentityProvider.forms[0] == {
        "grant_type": ["client_credentials"], "client_id": ["shop"], "client_secret": ["a secret"], "scope": ["kafka"],
    }  # fmt: skip


def test_the_program_for_confluent_cloud_sends_its_extensions(keys: Keys) -> None:
    made = program_of("confluent_cloud_config")
    config = made("kafka:9093", "lkc-1", "pool-2", lambda: ("a.token", (time.time() + 60) * 1000))
    assert sends_with_tokens(config, keys) == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


def test_the_program_for_iam_sends_what_the_signer_returns(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    class Signer:
        """As aws-msk-iam-sasl-signer-python 1.0.2 has it: blocking; the expiry in milliseconds."""

        @staticmethod
        def generate_auth_token(region: str, aws_debug_creds: bool = False) -> tuple[str, int]:
            assert region == "eu-west-1"
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()  # it would be blocked
            return "a.token", int(time.time() * 1000) + 900_000

    module = ModuleType("aws_msk_iam_sasl_signer")
    vars(module)["MSKAuthTokenProvider"] = Signer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = program_of("msk_iam_config")("b-1.msk:9098", "eu-west-1")
    assert config.bootstrap_servers == "b-1.msk:9098"
    assert sends_with_tokens(config, keys, expires_within_s=900.0) == {}


def test_the_program_for_event_hubs_sends_what_azure_returns(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    class AccessToken(NamedTuple):
        token: str
        expires_on: int

    class Credential:
        """As azure-identity has it: blocking; the expiry in seconds."""

        def get_token(self, *scopes: str) -> AccessToken:
            assert scopes == ("https://shop.servicebus.windows.net/.default",)
            return AccessToken("a.token", int(time.time()) + 3_600)

    module = ModuleType("azure.identity")
    vars(module)["DefaultAzureCredential"] = Credential
    monkeypatch.setitem(sys.modules, "azure", ModuleType("azure"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = program_of("event_hubs_config")("shop")
    assert config.bootstrap_servers == "shop.servicebus.windows.net:9093"
    assert sends_with_tokens(config, keys) == {}


def test_the_program_for_texts_in_variables_sends_with_them(keys: Keys) -> None:
    heroku_config = program_of("heroku_config")

    async def scenario() -> None:
        async with MockCluster(1, ssl_context=keys.of_strict_broker) as cluster:
            environment = {
                "KAFKA_URL": ",".join(f"kafka+ssl://{server}" for server in cluster.bootstrap_servers.split(",")),
                "KAFKA_TRUSTED_CERT": keys.authority.read_text(),
                "KAFKA_CLIENT_CERT": keys.certificate.read_text(),
                "KAFKA_CLIENT_CERT_KEY": keys.key.read_text(),
            }
            async with Producer(heroku_config(environment)) as producer:
                await producer.send("orders", b"v")
            assert len(cluster.records("orders")) == 1

    asyncio.run(scenario())


def test_each_service_has_its_template() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert [service for service in SERVICES if not any(service in heading for heading in headings)] == []
    assert len(TEMPLATES) >= 11
    assert len({template.marks["file"] for template in TEMPLATES}) == len(TEMPLATES)
