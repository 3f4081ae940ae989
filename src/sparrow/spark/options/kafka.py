"""Names of options that come along from Spark's Kafka connector: those that are left out with a
warning, and those that are refused with advice.

Left out is tuning of a Kafka client, which changes nothing of what is read or written. Refused are
options that would change it, or without which the job would be less safe.
"""

from __future__ import annotations

from typing import Final

_CLIENT = """
api.version.request auto.include.jmx.reporter broker.address.ttl client.dns.lookup client.rack
connections.max.idle.ms debug default.api.timeout.ms enable.metrics.push log_level metadata.max.age.ms
metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms
reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
socket.timeout.ms interceptor.classes
"""
_CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms check.crcs enable.auto.commit exclude.internal.topics
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes fetch.message.max.bytes group.id group.instance.id
group.protocol group.remote.assignor heartbeat.interval.ms max.partition.fetch.bytes max.poll.interval.ms
max.poll.records partition.assignment.strategy queued.max.messages.kbytes session.timeout.ms
key.deserializer value.deserializer
"""
_PRODUCER = """
acks batch.size buffer.memory compression.type compression.gzip.level compression.level
compression.lz4.level compression.zstd.level delivery.timeout.ms enable.idempotence linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size message.max.bytes metadata.max.idle.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys queue.buffering.max.messages transaction.timeout.ms key.serializer value.serializer
"""
_SECURITY = """
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms security.providers ssl.cipher.suites
ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.password
"""
_CONNECTOR = """
kafkaConsumer.pollTimeoutMs fetchOffset.retryIntervalMs useDeprecatedOffsetFetching
"""

IGNORED: Final = frozenset(
    [f"kafka.{name}" for name in f"{_CLIENT} {_CONSUMER} {_PRODUCER} {_SECURITY}".split()]
    + _CONNECTOR.split()
)
"""Tuning of Kafka clients."""

_PLAIN_KEY = (
    "a key with a password cannot be used; write the key to a PEM file without one, readable by Spark "
    "alone, and name it by keyFile"
)
_INLINE = "write the certificates to a PEM file that driver and executors can read, and name it by"
_NO_KERBEROS = "Sparrow logs in by user and password or by token; give these"

REFUSED: Final = {
    "kafka.auto.offset.reset": "say startingOffsets, and failOnDataLoss for what happens when "
    "offsets are gone",
    "kafka.transactional.id": "the sink's own sinkId says which writer this is; its writes are "
    "transactions without it",
    "kafka.sasl.kerberos.service.name": _NO_KERBEROS,
    "kafka.sasl.oauthbearer.token.endpoint.url": "get a token for the broker and give it as token "
    "or tokenFile",
    "kafka.sasl.client.callback.handler.class": _NO_KERBEROS,
    "kafka.sasl.login.callback.handler.class": _NO_KERBEROS,
    "kafka.ssl.key.password": _PLAIN_KEY,
    "kafka.ssl.keystore.password": _PLAIN_KEY,
    "kafka.ssl.keystore.key": f"{_INLINE} keyFile",
    "kafka.ssl.keystore.certificate.chain": f"{_INLINE} certificateFile",
    "kafka.ssl.truststore.certificates": f"{_INLINE} caFile",
    "kafka.ssl.endpoint.identification.algorithm": "the broker's name is always compared with its "
    "certificate; connect by a name that it has",
    "kafka.ssl.engine.factory.class": "it runs Java code; give PEM files by caFile, "
    "certificateFile and keyFile",
    "path": "load() and save() take no path; name the topic by subscribe (reading) or topic (writing)",
}
"""Name → what to do instead."""
