"""Options of other clients, by their names with dots: what each is called here, or why it does not exist here. Pure tables.

There are four cases: another name (`RENAMED`; `mapping` reads the values), an option that can be left out without loss
(`IGNORED`: one warning in the log), an option of another program in the same file (`OF_OTHERS_STARTS` and the consumers'
options: one warning for all of them), or an option that the user relies on (`REFUSED`: an error that says what to use
instead). `settled` are values with which the other client does what aiokprod does anyway: no warning, no error.
docs/configuration.md shows all of them.
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
}

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

IGNORED: Final = {
    "debug": Absent(_LOG, ("",)),
    "log.level": Absent(_LOG),
    "log.queue": Absent(_LOG, _FALSE),
    "log.thread.name": Absent(_LOG),
    "log.connection.close": Absent(_LOG),
    "socket.keepalive.enable": Absent("TCP keepalive is always on", _TRUE),
    "socket.nagle.disable": Absent("Nagle's algorithm is always off", _TRUE),
    "socket.max.fails": Absent("a connection ends with its first failure"),
    "broker.address.family": Absent("addresses of both families are tried", ("any",)),
    "broker.address.ttl": Absent("names are resolved for each connection"),
    "sticky.partitioning.linger.ms": Absent("the sticky partition changes with each batch"),
    "queue.buffering.backpressure.threshold": Absent("a batch that is full or old enough is sent"),
    "topic.metadata.refresh.fast.interval.ms": Absent("retry_backoff_ms sets the pace"),
    "topic.metadata.refresh.sparse": Absent("only topics in use are asked for", _TRUE),
    "topic.metadata.propagation.max.ms": Absent("a new topic is waited for up to max_block_ms"),
    "reconnect.backoff.jitter.ms": Absent("backoffs are spread by 20 %"),
    "message.copy.max.bytes": Absent("records are never copied needlessly"),
    "delivery.report.only.error": Absent("on_delivery_error is called for errors only", _TRUE),
    "metrics.num.samples": Absent(_METRICS),
    "metrics.sample.window.ms": Absent(_METRICS),
    "metrics.recording.level": Absent(_METRICS),
    "api.version": Absent(_NEGOTIATED, ("auto",)),
    "api.version.request": Absent(_NEGOTIATED, _TRUE),
    "api.version.request.timeout.ms": Absent(_NEGOTIATED),
    "api.version.fallback.ms": Absent(_NEGOTIATED),
    "api.version.auto.timeout.ms": Absent(_NEGOTIATED),
    "broker.version.fallback": Absent(_NEGOTIATED),
    "auto.include.jmx.reporter": Absent(_METRICS),
    "loop": Absent("a producer uses the loop that starts it"),
}

REFUSED: Final = {
    "key.serializer": Absent(_JAVA + "pass key_serializer as a Python object"),
    "value.serializer": Absent(_JAVA + "pass value_serializer as a Python object"),
    "interceptor.classes": Absent(_JAVA + "pass interceptors as Python objects", ("", "[]")),
    "metric.reporters": Absent(_METRICS, ("", "[]")),
    "statistics.interval.ms": Absent(f"there are no reports at intervals: {_METRICS}", ("0",)),
    "stats.cb": Absent(_METRICS),
    "dr.cb": Absent(_CALLBACK),
    "dr.msg.cb": Absent(_CALLBACK),
    "on.delivery": Absent(_CALLBACK),
    "error.cb": Absent("errors are raised where they matter (start, send, deliveries); see producer.health()"),
    "throttle.cb": Absent(f"throttling is counted: {_METRICS}"),
    "log.cb": Absent(_LOG),
    "logger": Absent(_LOG),
    "background.event.cb": Absent("there are no background events: a producer lives in the event loop"),
    "socket.cb": Absent("pass a dialer"),
    "connect.cb": Absent("pass a dialer"),
    "closesocket.cb": Absent("pass a dialer"),
    "resolve.cb": Absent("pass a dialer, which resolves host names itself"),
    "socket.options": Absent("pass a dialer"),
    "socks5.proxy": Absent("pass a dialer that connects through the proxy"),
    "oauth.cb": Absent(_OAUTH_CB),
    "oauthbearer.token.refresh.cb": Absent(_OAUTH_CB),
    "sasl.oauthbearer.method": Absent(_TOKENS, ("default",)),
    "enable.sasl.oauthbearer.unsecure.jwt": Absent(_TOKENS, _FALSE),
    "ssl.keystore.location": Absent(_STORES),
    "ssl.keystore.password": Absent(f"{_STORES}; ssl_key_password opens an encrypted key"),
    "ssl.keystore.type": Absent(_STORES, ("pem",)),
    "ssl.truststore.location": Absent(_STORES),
    "ssl.truststore.password": Absent(_STORES),
    "ssl.truststore.type": Absent(_STORES, ("pem",)),
    "ssl.key.pem.password": Absent("set ssl_key_password"),
    "ssl.protocol": Absent(f"TLS is 1.2 or newer: {_TLS} to change that", ("tls", "tlsv1.3", "tlsv1.2")),
    "ssl.enabled.protocols": Absent(f"TLS is 1.2 or newer: {_TLS} to change that", ("tlsv1.2,tlsv1.3",)),
    "ssl.cipher.suites": Absent(_TLS),
    "ssl.curves.list": Absent(_TLS),
    "ssl.sigalgs.list": Absent(_TLS),
    "ssl.crl.location": Absent(_TLS),
    "ssl.crlfile": Absent(_TLS),
    "ssl.ciphers": Absent(_TLS),
    "ssl.provider": Absent(_TLS),
    "ssl.engine.factory.class": Absent(_JAVA + _TLS),
    "enable.ssl.certificate.verification": Absent(
        f"certificates are verified: name the authority in ssl_cafile, or {_TLS}", _TRUE
    ),
    "queue.buffering.max.messages": Absent("memory is bounded by bytes: set buffer_memory"),
    "batch.num.messages": Absent("batches are bounded by bytes: set batch_size"),
    "enable.gapless.guarantee": Absent("a record that failed does not stop those behind it", _FALSE),
    "queuing.strategy": Absent("records of a partition are sent in their order", ("fifo",)),
    "plugin.library.paths": Absent("pass interceptors as Python objects"),
}

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
OF_OTHERS_STARTS: Final = {
    "schema.registry.": "a client of a schema registry (give value_serializer a function that encodes)",
    "basic.auth.": "a client of a schema registry (give value_serializer a function that encodes)",
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
    "sasl.kerberos.": Absent(_SASL),
    "sasl.login.": Absent(f"Java classes log in with it: for OAUTHBEARER, {_TOKENS}"),
    "sasl.client.": Absent(f"Java classes log in with it: for OAUTHBEARER, {_TOKENS}"),
}


def dotted(name: str) -> str:
    """Return a name as the tables have it: "dr_cb" and "dr.cb" are the same."""
    return name.replace("_", ".")


def ignored(name: str) -> Absent | None:
    """Return why an option can be left out without loss; None if it is not such an option."""
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
    if found is not None:
        return found
    return next((absent for start, absent in REFUSED_STARTS.items() if dotted(name).startswith(start)), None)
