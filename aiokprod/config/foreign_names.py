"""Options of other clients, by their names with dots: what each is called here, or why it does not exist here. Pure tables.

There are four cases: another name (`RENAMED`; `mapping` reads the values), an option without a meaning here (`IGNORED`), an
option of another program in the same file (`OF_OTHERS_STARTS` and the consumers' options), or an option without which the
program would not do what it promises (`REFUSED`: an error that says what to use instead). Of those that are ignored a mapping
logs one warning for all; as keywords they are errors. `settled` are values with which nothing changes, such as the defaults of
the other clients: no warning, no error. docs/configuration.md shows all of them; tests have a table of every option of four
clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RENAMED: Final = {
    # Java
    "partitioner.class": "partitioner",
    "ssl.keystore.key": "ssl_key_pem",
    "ssl.keystore.certificate.chain": "ssl_cert_pem",
    "ssl.truststore.certificates": "ssl_ca_pem",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
    # librdkafka
    "metadata.broker.list": "bootstrap_servers",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery_timeout_ms",
    "queue.buffering.max.ms": "linger_ms",
    "queue.buffering.max.kbytes": "buffer_memory",
    "message.send.max.retries": "retries",
    "compression.codec": "compression_type",
    "max.in.flight": "max_in_flight_requests_per_connection",
    "socket.send.buffer.bytes": "send_buffer_bytes",
    "socket.receive.buffer.bytes": "receive_buffer_bytes",
    "message.max.bytes": "max_request_size",
    "socket.timeout.ms": "request_timeout_ms",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
    "receive.message.max.bytes": "max_frame_bytes",
    "sasl.mechanisms": "sasl_mechanism",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.certificate.pem": "ssl_cert_pem",
    # aiokafka and kafka-python
    "max.batch.size": "batch_size",
    "sasl.plain.username": "sasl_username",
    "sasl.plain.password": "sasl_password",
    "ssl.password": "ssl_key_password",
    "bootstrap.timeout.ms": "start_timeout_ms",
}

OVERRULED: Final = {
    "request_timeout_ms": ("socket.timeout.ms", "request.timeout.ms"),
    "metadata_max_age_ms": ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
}
"""Two options of librdkafka with a value each, which are one here: the second counts."""

CODEC_LEVELS: Final = {
    "compression.gzip.level": "gzip",
    "compression.lz4.level": "lz4",
    "compression.zstd.level": "zstd",
}

PARTITIONER_NAMES: Final = {
    "consistent_random": "crc32",
    "fnv1a_random": "fnv1a",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "uniform_sticky",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "uniform_sticky",
}


@dataclass(frozen=True, slots=True)
class Absent:
    """An option of another client that does not exist here."""

    advice: str
    settled: tuple[str, ...] = ()


_JAVA = "Java classes cannot run here: "
_CALLBACK = (
    "await what send() returns, or give it add_done_callback(); for records that are not awaited set on_delivery_error"
)
_METRICS = "read producer.metrics() instead"
_LOG = "set levels on logging.getLogger('aiokprod')"
_NEGOTIATED = "versions are negotiated with each broker"
_STORES = "Java key and trust stores are not read: set ssl_cafile, ssl_certfile and ssl_keyfile (PEM)"
_TLS = "make an ssl.SSLContext and pass it as ssl_context"
_SASL = "SASL is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER here"
_TOKENS = (
    "set sasl_oauth_token_provider to a function that returns a token, for example by an HTTP request to the identity"
    " provider (docs/how-to/security.md has one)"
)
_OAUTH_CB = (
    "set sasl_oauth_token_provider to a function without arguments that returns (token, expiry); the expiry is in"
    " milliseconds, not in seconds"
)
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")

_BOTH = (*_TRUE, *_FALSE)
_FEATURES = "gzip,snappy,ssl,sasl,regex,lz4,sasl_gssapi,sasl_plain,sasl_scram,plugins,zstd,sasl_oauthbearer,http,oidc"
_NONE = ("", "[]", "()")
_JVM = "it is a setting of the Java machine"
_INSIDE = "it is a setting of librdkafka's inside"
_BYTES = "memory is bounded by bytes: set buffer_memory"
_LOGIN = "it paces logins of Java: a token is asked for before it expires"
_CHECKS = "it is for brokers, which check tokens"
_KERBEROS = f"Kerberos is not supported: {_SASL}"
_CLASSES = tuple(
    f"<class 'selectors.{kind}selector'>" for kind in ("default", "epoll", "kqueue", "devpoll", "poll", "select")
)

IGNORED: Final = {
    "debug": Absent(_LOG, _NONE),
    "log.level": Absent(_LOG, ("6",)),
    "log.queue": Absent(_LOG, _FALSE),
    "log.thread.name": Absent(_LOG, _TRUE),
    "log.connection.close": Absent(_LOG, _TRUE),
    "log.cb": Absent(_LOG),
    "logger": Absent(_LOG),
    "socket.keepalive.enable": Absent("TCP keepalive is always on: connections_keepalive_ms says how often", _BOTH),
    "socket.nagle.disable": Absent("Nagle's algorithm is always off", _TRUE),
    "socket.max.fails": Absent("a connection ends with its first failure", ("1",)),
    "socket.blocking.max.ms": Absent(_INSIDE, ("1000",)),
    "socket.options": Absent("pass a dialer", (*_NONE, "[(6, 1, 1)]")),
    "broker.address.family": Absent("addresses of both families are tried", ("any",)),
    "broker.address.ttl": Absent("names are resolved for each connection", ("1000",)),
    "sticky.partitioning.linger.ms": Absent("the sticky partition changes with each batch", ("10",)),
    "queue.buffering.backpressure.threshold": Absent("a batch that is full or old enough is sent", ("1",)),
    "queue.buffering.max.messages": Absent(_BYTES, ("100000", "0")),
    "batch.num.messages": Absent("batches are bounded by bytes: set batch_size", ("10000",)),
    "topic.metadata.refresh.fast.interval.ms": Absent("retry_backoff_ms sets the pace", ("100",)),
    "topic.metadata.refresh.fast.cnt": Absent("retry_backoff_ms sets the pace", ("10",)),
    "topic.metadata.refresh.sparse": Absent("only topics in use are asked for", _TRUE),
    "topic.metadata.propagation.max.ms": Absent("a new topic is waited for up to max_block_ms", ("30000",)),
    "topic.blacklist": Absent("only topics in use are asked for", _NONE),
    "reconnect.backoff.jitter.ms": Absent("backoffs are spread by 20 %", ("0",)),
    "message.copy.max.bytes": Absent("records are never copied needlessly", ("65535",)),
    "delivery.report.only.error": Absent("on_delivery_error is called for errors only", _BOTH),
    "produce.offset.report": Absent("the offset of a record is always known", _BOTH),
    "statistics.interval.ms": Absent(f"there are no reports at intervals: {_METRICS}", ("0",)),
    "stats.cb": Absent(_METRICS),
    "throttle.cb": Absent(f"throttling is counted: {_METRICS}"),
    "error.cb": Absent("errors are raised where they matter (start, send, deliveries); see producer.health()"),
    "background.event.cb": Absent("there are no background events: a producer lives in the event loop"),
    "enabled.events": Absent(_INSIDE, ("0",)),
    "enable.random.seed": Absent(_INSIDE, _TRUE),
    "internal.termination.signal": Absent(_INSIDE, ("0",)),
    "builtin.features": Absent("extras of the package say what it has: aiokprod[zstd]", (*_NONE, _FEATURES)),
    "open.cb": Absent(_INSIDE),
    "opaque": Absent(_INSIDE),
    "ssl.engine.id": Absent(_TLS, ("dynamic",)),
    "ssl.engine.callback.data": Absent(_TLS),
    "https.ca.location": Absent(_TOKENS, _NONE),
    "https.ca.pem": Absent(_TOKENS, _NONE),
    "metrics.num.samples": Absent(_METRICS, ("2",)),
    "metrics.sample.window.ms": Absent(_METRICS, ("30000",)),
    "metrics.recording.level": Absent(_METRICS, ("info",)),
    "metrics.enabled": Absent(f"figures are always kept: {_METRICS}", _TRUE),
    "metric.reporters": Absent(_METRICS, (*_NONE, "org.apache.kafka.common.metrics.jmxreporter")),
    "auto.include.jmx.reporter": Absent(_METRICS, _BOTH),
    "api.version": Absent(_NEGOTIATED, ("auto",)),
    "api.version.request": Absent(_NEGOTIATED, _TRUE),
    "api.version.request.timeout.ms": Absent(_NEGOTIATED, ("10000",)),
    "api.version.fallback.ms": Absent(_NEGOTIATED, ("0",)),
    "api.version.auto.timeout.ms": Absent(_NEGOTIATED, ("2000",)),
    "broker.version.fallback": Absent(_NEGOTIATED, ("0.10.0",)),
    "loop": Absent("a producer uses the loop that starts it"),
    "selector": Absent("a producer uses the loop that starts it", _CLASSES),
    "ssl.keystore.type": Absent(_STORES, ("pem", "jks")),
    "ssl.truststore.type": Absent(_STORES, ("pem", "jks")),
    "ssl.keymanager.algorithm": Absent(_JVM, ("sunx509",)),
    "ssl.trustmanager.algorithm": Absent(_JVM, ("pkix",)),
    "ssl.secure.random.implementation": Absent(_JVM),
    "sasl.login.connect.timeout.ms": Absent(_LOGIN),
    "sasl.login.read.timeout.ms": Absent(_LOGIN),
    "sasl.login.refresh.buffer.seconds": Absent(_LOGIN, ("300",)),
    "sasl.login.refresh.min.period.seconds": Absent(_LOGIN, ("60",)),
    "sasl.login.refresh.window.factor": Absent(_LOGIN, ("0.8",)),
    "sasl.login.refresh.window.jitter": Absent(_LOGIN, ("0.05",)),
    "sasl.login.retry.backoff.max.ms": Absent(_LOGIN, ("10000",)),
    "sasl.login.retry.backoff.ms": Absent(_LOGIN, ("100",)),
    "sasl.oauthbearer.clock.skew.seconds": Absent(_CHECKS, ("30",)),
    "sasl.oauthbearer.expected.audience": Absent(_CHECKS, _NONE),
    "sasl.oauthbearer.expected.issuer": Absent(_CHECKS),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Absent(_CHECKS, ("3600000",)),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Absent(_CHECKS, ("10000",)),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Absent(_CHECKS, ("100",)),
    "sasl.oauthbearer.jwks.endpoint.url": Absent(_CHECKS),
    "sasl.oauthbearer.scope.claim.name": Absent(_CHECKS, ("scope",)),
    "sasl.oauthbearer.sub.claim.name": Absent(_CHECKS, ("sub",)),
    "sasl.oauthbearer.jwt.validator.class": Absent(
        _CHECKS, ("org.apache.kafka.common.security.oauthbearer.defaultjwtvalidator",)
    ),
    "sasl.kerberos.service.name": Absent(_KERBEROS, ("kafka",)),
    "sasl.kerberos.principal": Absent(_KERBEROS, ("kafkaclient",)),
    "sasl.kerberos.kinit.cmd": Absent(
        _KERBEROS, ("/usr/bin/kinit", 'kinit -r -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}')
    ),
    "sasl.kerberos.keytab": Absent(_KERBEROS),
    "sasl.kerberos.min.time.before.relogin": Absent(_KERBEROS, ("60000",)),
    "sasl.kerberos.ticket.renew.jitter": Absent(_KERBEROS, ("0.05",)),
    "sasl.kerberos.ticket.renew.window.factor": Absent(_KERBEROS, ("0.8",)),
    "sasl.kerberos.name": Absent(_KERBEROS),
    "sasl.kerberos.domain.name": Absent(_KERBEROS),
}
"""A mechanism of Kerberos is refused by itself, so what only such a mechanism reads changes nothing."""

_BYTES_CLASS = "org.apache.kafka.common.serialization.bytearrayserializer"

REFUSED: Final = {
    "key.serializer": Absent(_JAVA + "pass key_serializer as a Python object", (_BYTES_CLASS,)),
    "value.serializer": Absent(_JAVA + "pass value_serializer as a Python object", (_BYTES_CLASS,)),
    "interceptor.classes": Absent(_JAVA + "pass interceptors as Python objects", _NONE),
    "config.providers": Absent("values such as ${file:...} are not resolved here: write the values themselves", _NONE),
    "transaction.two.phase.commit.enable": Absent("the coordinator ends transactions that are left open", _FALSE),
    "dr.cb": Absent(_CALLBACK),
    "dr.msg.cb": Absent(_CALLBACK),
    "on.delivery": Absent(_CALLBACK),
    "partitioner.cb": Absent(
        "set partitioner to a function (topic, key, value, all_partitions, available_partitions) -> int"
    ),
    "msg.order.cmp": Absent("records of a partition are sent in their order"),
    "default.topic.conf": Absent("write its options beside the others: there are none for topics alone"),
    "default.topic.config": Absent("write its options beside the others: there are none for topics alone"),
    "socket.cb": Absent("pass a dialer"),
    "connect.cb": Absent("pass a dialer"),
    "closesocket.cb": Absent("pass a dialer"),
    "resolve.cb": Absent("pass a dialer, which resolves host names itself"),
    "kafka.client": Absent("pass a dialer", ("<class 'kafka.net.compat.kafkanetclient'>",)),
    "socks5.proxy": Absent("pass a dialer that connects through the proxy"),
    "proxy.url": Absent("pass a dialer that connects through the proxy"),
    "oauth.cb": Absent(_OAUTH_CB),
    "oauthbearer.token.refresh.cb": Absent(_OAUTH_CB),
    "sasl.oauthbearer.method": Absent(_TOKENS, ("default",)),
    "sasl.oauthbearer.grant.type": Absent(_TOKENS, ("client_credentials",)),
    "sasl.oauthbearer.metadata.authentication.type": Absent(_TOKENS, ("none",)),
    "sasl.oauthbearer.header.urlencode": Absent(_TOKENS, _FALSE),
    "sasl.oauthbearer.assertion.algorithm": Absent(_TOKENS, ("rs256",)),
    "sasl.oauthbearer.assertion.claim.exp.seconds": Absent(_TOKENS, ("300",)),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Absent(_TOKENS, ("60",)),
    "sasl.oauthbearer.assertion.claim.jti.include": Absent(_TOKENS, _FALSE),
    "sasl.oauthbearer.jwt.retriever.class": Absent(
        _TOKENS, ("org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",)
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": Absent(_TOKENS, _FALSE),
    "ssl.keystore.location": Absent(_STORES),
    "ssl.keystore.password": Absent(f"{_STORES}; ssl_key_password opens an encrypted key"),
    "ssl.truststore.location": Absent(_STORES),
    "ssl.truststore.password": Absent(_STORES),
    "ssl.key": Absent("set ssl_keyfile, or ssl_key_pem"),
    "ssl.certificate": Absent("set ssl_certfile, or ssl_cert_pem"),
    "ssl.ca": Absent("set ssl_cafile, or ssl_ca_pem"),
    "ssl.ca.certificate.stores": Absent("the system's authorities are used: set ssl_cafile for others", ("root",)),
    "ssl.key.pem.password": Absent("set ssl_key_password"),
    "ssl.protocol": Absent(f"TLS is 1.2 or newer: {_TLS} to change that", ("tls", "tlsv1.3", "tlsv1.2")),
    "ssl.enabled.protocols": Absent(
        f"TLS is 1.2 or newer: {_TLS} to change that", ("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2")
    ),
    "ssl.cipher.suites": Absent(_TLS, _NONE),
    "ssl.curves.list": Absent(_TLS),
    "ssl.sigalgs.list": Absent(_TLS),
    "ssl.crl.location": Absent(_TLS),
    "ssl.crlfile": Absent(_TLS),
    "ssl.ciphers": Absent(_TLS),
    "ssl.provider": Absent(_TLS),
    "ssl.providers": Absent(_TLS),
    "ssl.engine.location": Absent(_TLS),
    "ssl.engine.factory.class": Absent(_JAVA + _TLS),
    "ssl.certificate.verify.cb": Absent(_TLS),
    "security.providers": Absent(_JAVA + _TLS),
    "enable.ssl.certificate.verification": Absent(
        f"certificates are verified: name the authority in ssl_cafile, or {_TLS}", _TRUE
    ),
    "enable.gapless.guarantee": Absent("a record that failed does not stop those behind it", _FALSE),
    "queuing.strategy": Absent("records of a partition are sent in their order", ("fifo",)),
    "plugin.library.paths": Absent("pass interceptors as Python objects", _NONE),
}

OTHERS_MECHANISMS: Final = ("PLAIN", "GSSAPI")
"""Defaults of `sasl_mechanism` in other clients: without credentials, and with a protocol without SASL, they change nothing."""

DEFAULT_PARTITIONERS: Final = {
    ("aiokafka.partitioner", "DefaultPartitioner"): "murmur2_random",
    ("kafka.partitioner.default", "DefaultPartitioner"): "murmur2_random",
}
"""Classes of other clients (module and name) whose objects do what a partitioner of aiokprod does."""

JAAS: Final = "sasl.jaas.config"
"""Java's user name and password in one text, which `jaas` reads."""

_CONSUMERS: Final = (
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "auto.offset.reset",
    "enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store", "max.poll.records",
    "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "isolation.level",
    "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.wait.max.ms", "fetch.message.max.bytes",
    "fetch.error.backoff.ms", "fetch.queue.backoff.ms", "max.partition.fetch.bytes", "partition.assignment.strategy",
    "key.deserializer", "value.deserializer", "check.crcs", "enable.partition.eof", "queued.min.messages",
    "queued.max.messages.kbytes", "client.rack", "exclude.internal.topics", "default.api.timeout.ms", "consumer.timeout.ms",
    "group.protocol.type", "coordinator.query.interval.ms", "rebalance.cb", "consume.cb", "offset.commit.cb",
    "offset.store.method", "auto.commit.enable",
)  # fmt: skip
_REGISTRY = (
    "a client of a schema registry (give SchemaRegistry of aiokprod.integrations.schema_registry its URL and its user)"
)
OF_OTHERS_STARTS: Final = {
    "schema.registry.": _REGISTRY,
    "basic.auth.": _REGISTRY,
}

# Names that only librdkafka has, even when the names of aiokprod are written with dots (`sasl.username`). They show that a
# configuration was written for librdkafka, whose default partitioner hashes keys with CRC-32. Java's and aiokprod's use
# murmur2, so the same keys go to other partitions (`mapping` logs it).
LIBRDKAFKA: Final = frozenset((
    "metadata.broker.list", "request.required.acks", "message.timeout.ms", "queue.buffering.max.ms",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "message.send.max.retries", "compression.codec",
    "max.in.flight", "socket.send.buffer.bytes", "socket.receive.buffer.bytes", "message.max.bytes",
    "socket.timeout.ms", "topic.metadata.refresh.interval.ms", "receive.message.max.bytes", "sasl.mechanisms",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.certificate.pem", "log.queue",
    "log.connection.close", "log.thread.name",
    "socket.keepalive.enable", "socket.nagle.disable", "socket.max.fails", "broker.address.family", "broker.address.ttl",
    "sticky.partitioning.linger.ms", "queue.buffering.backpressure.threshold", "topic.metadata.refresh.sparse",
    "topic.metadata.refresh.fast.interval.ms", "topic.metadata.propagation.max.ms", "reconnect.backoff.jitter.ms",
    "message.copy.max.bytes", "delivery.report.only.error", "api.version.request", "api.version.fallback.ms",
    "api.version.request.timeout.ms", "broker.version.fallback", "statistics.interval.ms",
    "enable.ssl.certificate.verification",
))  # fmt: skip

REFUSED_STARTS: Final = {
    "sasl.oauthbearer.": Absent(_TOKENS),
    "sasl.login.": Absent(f"Java classes log in with it: for OAUTHBEARER, {_TOKENS}"),
    "sasl.client.": Absent(f"Java classes log in with it: for OAUTHBEARER, {_TOKENS}"),
}


def dotted(name: str) -> str:
    """Return a name as the tables have it: "dr_cb" and "dr.cb" are the same."""
    return name.replace("_", ".")


def ignored(name: str) -> Absent | None:
    """Return why an option has no meaning here; None if it is not such an option."""
    return IGNORED.get(dotted(name))


def of_others(name: str) -> str | None:
    """Return the program an option belongs to, if it is not a producer's but occurs in files for producers; else None."""
    if dotted(name) in _CONSUMERS:
        return "consumers"
    return next((whose for start, whose in OF_OTHERS_STARTS.items() if dotted(name).startswith(start)), None)


def is_of_librdkafka(name: str) -> bool:
    """Return True for a name that only librdkafka (confluent-kafka) has; aiokprod's are written with underscores."""
    return "." in name and name in LIBRDKAFKA


def refused(name: str) -> Absent | None:
    """Return what to use instead of an option; None if it is not such an option."""
    found = REFUSED.get(dotted(name))
    if found is not None or ignored(name):
        return found
    return next((absent for start, absent in REFUSED_STARTS.items() if dotted(name).startswith(start)), None)
