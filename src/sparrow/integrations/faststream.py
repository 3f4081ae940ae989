"""A broker for FastStream on queues.

    broker = QueueBroker("sparrow://127.0.0.1:9094")
    app = FastStream(broker)

    @broker.subscriber("orders", max_workers=4)
    @broker.publisher("invoices")
    async def invoice(order: Order) -> Invoice: ...

A subscriber takes the jobs of a queue. A handler that returns acknowledges its job; one that raises
has it delivered again, with the queue's backoff and up to its delivery limit (`AckPolicy` says
otherwise). `RejectMessage` makes a dead letter. Leases are extended while a handler runs.

FastStream has no public interface for brokers of others: parts of `faststream._internal` are used,
of the version that the tests have.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrow.client.client import Client, connect
from sparrow.integrations.lease_keeper import LeaseKeeper

try:
    from fast_depends import dependency_provider
    from faststream._internal.broker import BrokerUsecase
    from faststream._internal.broker.registrator import Registrator
    from faststream._internal.configs import (
        BrokerConfig,
        PublisherSpecificationConfig,
        PublisherUsecaseConfig,
        SubscriberSpecificationConfig,
        SubscriberUsecaseConfig,
    )
    from faststream._internal.constants import EMPTY
    from faststream._internal.context.repository import ContextRepo
    from faststream._internal.di import FastDependsConfig
    from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
    from faststream._internal.endpoint.publisher.fake import FakePublisher
    from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream._internal.endpoint.subscriber.mixins import ConcurrentMixin, TasksMixin
    from faststream._internal.endpoint.utils import ParserComposition, process_msg
    from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
    from faststream._internal.logger.logging import get_broker_logger
    from faststream._internal.parser import DefaultCodec
    from faststream._internal.producer import ProducerProto
    from faststream.exceptions import FeatureNotSupportedException, IncorrectState
    from faststream.message import StreamMessage, decode_message, gen_cor_id
    from faststream.middlewares import AckPolicy
    from faststream.response.publish_type import PublishType
    from faststream.response.response import PublishCommand
    from faststream.specification.asyncapi.utils import resolve_payloads
    from faststream.specification.schema import BrokerSpec, Message, Operation, PublisherSpec, SubscriberSpec
except ImportError as error:
    raise ImportError(
        "sparrow.integrations.faststream needs FastStream 0.7; install it: pip install faststream"
    ) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from sparrow.client.job import Job
    from sparrow.client.policy import Policy

_CONTENT_TYPE: Final = "content-type"
_CORRELATION_ID: Final = "correlation_id"
_REPLY_TO: Final = "reply_to"
_PREFETCH: Final = 100


class SparrowMessage(StreamMessage[Any]):
    """A job as FastStream has it; `raw_message` is the job."""

    async def ack(self) -> None:
        """Acknowledge the job."""
        if self.committed is None:
            await self.raw_message.ack()
        await super().ack()

    async def nack(self) -> None:
        """Have the job delivered again, as one that failed."""
        if self.committed is None:
            await self.raw_message.nack(error="the handler failed")
        await super().nack()

    async def reject(self) -> None:
        """Make a dead letter of the job."""
        if self.committed is None:
            await self.raw_message.reject("the handler rejected it")
        await super().reject()


async def parse_message(job: Job) -> SparrowMessage:
    """Return a job as a message of FastStream."""
    headers = {name: (value or b"").decode(errors="replace") for name, value in job.headers}
    return SparrowMessage(
        raw_message=job,
        body=job.value or b"",
        headers=headers,
        content_type=headers.get(_CONTENT_TYPE),
        reply_to=headers.get(_REPLY_TO, ""),
        correlation_id=headers.get(_CORRELATION_ID),
        message_id=f"{job.topic}/{job.partition}/{job.offset}",
    )


async def decode(message: StreamMessage[Any]) -> Any:
    """Return the content of a message."""
    return decode_message(message)


class SparrowPublishCommand(PublishCommand):
    """A message that is about to be published, with its options of delivery."""

    def __init__(
        self,
        message: Any,
        *,
        queue: str = "",
        correlation_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        reply_to: str = "",
        key: bytes | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            body=message,
            destination=queue,
            correlation_id=correlation_id,
            headers=dict(headers or {}),
            reply_to=reply_to,
            _publish_type=PublishType.PUBLISH,
        )
        self.key = key
        self.options = dict(options or {})

    @classmethod
    def of(cls, command: PublishCommand) -> SparrowPublishCommand:
        """Return any command as one of these."""
        if isinstance(command, cls):
            return command
        return cls(
            command.body,
            queue=command.destination,
            correlation_id=command.correlation_id,
            headers=command.headers,
            reply_to=command.reply_to,
        )


class SparrowProducer(ProducerProto[SparrowPublishCommand]):
    """Publishes through the client of a broker."""

    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode)
        self._client: Client | None = None
        self.serializer: Any = None
        self.codec: Any = DefaultCodec()

    def connect(self, client: Client, serializer: Any, codec: Any) -> None:
        """Use a client from now on."""
        self._client, self.serializer, self.codec = client, serializer, codec

    def disconnect(self) -> None:
        """Publish nothing any more."""
        self._client = None

    async def publish(self, cmd: SparrowPublishCommand) -> None:
        """Publish a message to a queue, durably."""
        if self._client is None:
            raise IncorrectState("the broker is not started: there is no connection to publish on")
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        own = {_CONTENT_TYPE: content_type, _CORRELATION_ID: cmd.correlation_id, _REPLY_TO: cmd.reply_to}
        headers = {**cmd.headers, **{name: value for name, value in own.items() if value}}
        await self._client.queue(cmd.destination).publish(
            body,
            key=cmd.key,
            headers=[(name, str(value).encode()) for name, value in headers.items()],
            **cmd.options,
        )

    async def request(self, cmd: SparrowPublishCommand) -> Any:  # noqa: ARG002 - FastStream's signature
        """Refuse: a job has no reply."""
        raise FeatureNotSupportedException("Sparrow's broker for FastStream has no requests")

    async def publish_batch(self, cmd: SparrowPublishCommand) -> None:  # noqa: ARG002 - FastStream's signature
        """Refuse: messages are published one by one, and sent together."""
        raise FeatureNotSupportedException("publish the messages one by one; they are sent together")


class _NoProducer(SparrowProducer):
    """The producer of a router that belongs to no broker yet."""


@dataclass(kw_only=True)
class SparrowBrokerConfig(BrokerConfig):
    """Configuration that a broker shares with its subscribers and publishers."""

    producer: SparrowProducer = field(default_factory=_NoProducer)
    client: Client | None = field(default=None, init=False, repr=False)
    keeper: LeaseKeeper = field(default_factory=LeaseKeeper, init=False, repr=False)
    policy: Policy | None = None

    def connect(self, client: Client) -> None:
        """Use a client from now on."""
        self.client = client
        codec = self.broker_codec or DefaultCodec()
        self.producer.connect(client, self.fd_config._serializer, codec)  # noqa: SLF001 - as its own brokers
        self.keeper.start()

    async def disconnect(self) -> None:
        """Use no client any more."""
        self.client = None
        self.producer.disconnect()
        await self.keeper.stop()


@dataclass(kw_only=True)
class _SubscriberConfig(SubscriberUsecaseConfig):
    _outer_config: SparrowBrokerConfig = field(default_factory=SparrowBrokerConfig)
    queue: str

    @property
    def ack_policy(self) -> AckPolicy:
        if self._ack_policy is not EMPTY:
            return self._ack_policy
        return (
            AckPolicy.NACK_ON_ERROR
            if self._outer_config.ack_policy is EMPTY
            else self._outer_config.ack_policy
        )


@dataclass(kw_only=True)
class _SubscriberSpecificationConfig(SubscriberSpecificationConfig):
    queue: str


@dataclass(kw_only=True)
class _PublisherConfig(PublisherUsecaseConfig):
    _outer_config: SparrowBrokerConfig = field(default_factory=SparrowBrokerConfig)
    queue: str


@dataclass(kw_only=True)
class _PublisherSpecificationConfig(PublisherSpecificationConfig):
    queue: str


class _SubscriberDocument(SubscriberSpecification[SparrowBrokerConfig, _SubscriberSpecificationConfig]):
    @property
    def address(self) -> str:
        return f"{self._outer_config.prefix}{self.config.queue}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.address]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        return {
            self.name: SubscriberSpec(
                address=self.address,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class _PublisherDocument(PublisherSpecification[SparrowBrokerConfig, _PublisherSpecificationConfig]):
    @property
    def address(self) -> str:
        return f"{self._outer_config.prefix}{self.config.queue}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.address}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payloads = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payloads)
        return {
            self.name: PublisherSpec(
                address=self.address,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }


class SparrowSubscriber(TasksMixin, SubscriberUsecase[Any]):
    """A handler that takes the jobs of a queue, one after the other."""

    _outer_config: SparrowBrokerConfig

    def __init__(self, config: _SubscriberConfig, specification: Any, calls: Any) -> None:
        config.parser, config.decoder = parse_message, decode
        super().__init__(config, specification, calls)
        self._name = config.queue

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return f"{self._outer_config.prefix}{self._name}"

    async def start(self) -> None:
        """Begin to take jobs."""
        await super().start()
        if self.calls:
            self.add_task(self._take)
        self._post_start()

    async def _take(self) -> None:
        async for job in self._jobs():
            await self._handle(job)

    async def _jobs(self) -> AsyncIterator[Job]:
        config = self._outer_config
        if config.client is None:
            raise IncorrectState("the broker is not started: there is no connection to take jobs from")
        async with config.client.queue(self.queue, prefetch=_PREFETCH, policy=config.policy) as jobs:
            async for job in jobs:
                config.keeper.keep(job)
                yield job

    async def _handle(self, job: Job) -> None:
        await self.consume(job)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[Any]:
        return (_ReplyPublisher(self._outer_config.producer, message.reply_to),)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """Return what a log line says of a message."""
        return {"queue": self.queue, "message_id": getattr(message, "message_id", "")}

    async def get_one(self, *, timeout: float = 5.0) -> SparrowMessage | None:
        """Return the next job, or None if none came."""
        async with asyncio.timeout(timeout + 1):
            async for job in self._jobs():
                return await self._processed(job)
        return None

    async def __aiter__(self) -> AsyncIterator[SparrowMessage]:
        async for job in self._jobs():
            yield await self._processed(job)

    async def _processed(self, job: Job) -> SparrowMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = (each(job, context=context) for each in self._broker_middlewares)
        message: Any = await process_msg(msg=job, middlewares=middlewares, parser=parser, decoder=decoder)
        return message  # type: ignore[no-any-return]


class SparrowConcurrentSubscriber(ConcurrentMixin[Any], SparrowSubscriber):
    """A handler that takes several jobs at a time."""

    async def start(self) -> None:
        """Begin to take jobs."""
        await super().start()
        self.start_consume_task()

    async def _handle(self, job: Job) -> None:
        await self._put_msg(job)


class _ReplyPublisher(FakePublisher):
    """Publishes what a handler returned to the queue that the message names."""

    def __init__(self, producer: SparrowProducer, queue: str) -> None:
        super().__init__(producer=producer)
        self._queue = queue

    def patch_command(self, cmd: PublishCommand) -> SparrowPublishCommand:
        command = SparrowPublishCommand.of(super().patch_command(cmd))
        command.destination = self._queue
        return command


class SparrowPublisher(PublisherUsecase):
    """Publishes to a queue."""

    _outer_config: SparrowBrokerConfig

    def __init__(self, config: _PublisherConfig, specification: Any) -> None:
        super().__init__(config, specification)
        self._name = config.queue

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return f"{self._outer_config.prefix}{self._name}"

    async def publish(
        self, message: Any, queue: str = "", *, correlation_id: str | None = None, **options: Any
    ) -> None:
        """Publish a message; `options` are those of `Queue.publish`, such as `delay_ms`."""
        command = SparrowPublishCommand(
            message,
            queue=queue or self.queue,
            correlation_id=correlation_id or self._outer_config.id_generator(),
            options=options,
        )
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        command = SparrowPublishCommand.of(cmd)
        command.destination = command.destination or self.queue
        await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )

    async def request(self, *_: Any, **__: Any) -> Any:
        """Refuse: a job has no reply."""
        raise FeatureNotSupportedException("Sparrow's broker for FastStream has no requests")


class SparrowRegistrator(Registrator[Any, SparrowBrokerConfig]):
    """Declarations of subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        queue: str,
        *,
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> Any:
        """Declare a handler of a queue, with so many jobs at a time."""
        config: Any = self.config
        calls: Any = CallsCollection()
        document = _SubscriberDocument(
            config,
            _SubscriberSpecificationConfig(
                queue=queue, title_=title, description_=description, include_in_schema=include_in_schema
            ),
            calls,
        )
        wanted = _SubscriberConfig(
            queue=queue, no_reply=no_reply, _outer_config=config, _ack_policy=ack_policy
        )
        made: SparrowSubscriber
        if max_workers > 1:
            made = SparrowConcurrentSubscriber(wanted, document, calls, max_workers=max_workers)
        else:
            made = SparrowSubscriber(wanted, document, calls)
        super().subscriber(made, persistent=True)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=None,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        queue: str,
        *,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> SparrowPublisher:
        """Declare a publisher to a queue."""
        config: Any = self.config
        document = _PublisherDocument(
            config,
            _PublisherSpecificationConfig(
                queue=queue,
                schema_=schema,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
        )
        made = SparrowPublisher(_PublisherConfig(queue=queue, _outer_config=config), document)
        super().publisher(made, persistent=True)
        return made


class _LoggerStorage(DefaultLoggerStorage):
    """The logger of the access log."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Do nothing: the columns have no widths."""

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def get_logger(self, *, context: Any) -> Any:
        logger = self._get_logger_ref()
        if not logger:
            logger = get_broker_logger(
                name="sparrow",
                default_context={"queue": ""},
                message_id_ln=10,
                fmt="%(asctime)s %(levelname)-8s - %(queue)s | %(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


class QueueBroker(SparrowRegistrator, BrokerUsecase[Any, Client, SparrowBrokerConfig]):
    """A broker of FastStream on queues.

    Args:
        url: of the Sparrow broker.
        policy: settings of the queues that subscribers take from.
        options: of `sparrow.connect`, such as `token`.
    """

    def __init__(
        self,
        url: str = "sparrow://127.0.0.1:9094",
        *,
        policy: Policy | None = None,
        graceful_timeout: float | None = 15.0,
        middlewares: Sequence[Any] = (),
        dependencies: Sequence[Any] = (),
        ack_policy: AckPolicy = EMPTY,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        description: str | None = None,
        **options: Any,
    ) -> None:
        self._url = url
        self._options = options
        storage = make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_LoggerStorage)
        super().__init__(
            routers=(),
            config=SparrowBrokerConfig(
                producer=SparrowProducer(),
                policy=policy,
                broker_middlewares=middlewares,
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=gen_cor_id,
                logger=storage,
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=EMPTY,
                    provider=dependency_provider,
                    context=ContextRepo(),
                ),
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[url],
                protocol="sparrow",
                protocol_version="1",
                tags=(),
                security=None,
            ),
        )

    async def _connect(self) -> Client:
        client = await connect(self._url, **self._options)
        self._own_config.connect(client)
        return client

    @property
    def _own_config(self) -> SparrowBrokerConfig:
        config: Any = self.config  # a composition, which has the attributes of its parts
        return config  # type: ignore[no-any-return]

    async def start(self) -> None:
        """Connect, and start the subscribers."""
        await self.connect()
        await super().start()

    async def stop(self, exc_type: Any = None, exc_val: Any = None, exc_tb: Any = None) -> None:
        """End the subscribers, release what they have not begun, and disconnect."""
        await super().stop(exc_type, exc_val, exc_tb)
        await self._own_config.disconnect()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - FastStream's signature
        """Return True if the broker is connected."""
        return self._connection is not None and self._connection.is_connected

    async def publish(
        self,
        message: Any = None,
        queue: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: bytes | None = None,
        **options: Any,
    ) -> None:
        """Publish a message to a queue; `options` are those of `Queue.publish`, such as
        `delay_ms`.
        """
        command = SparrowPublishCommand(
            message,
            queue=queue,
            correlation_id=correlation_id or self.config.id_generator(),
            headers=headers,
            reply_to=reply_to,
            key=key,
            options=options,
        )
        await self._basic_publish(command, producer=self.config.producer)

    async def request(self, *_: Any, **__: Any) -> Any:
        """Refuse: a job has no reply."""
        raise FeatureNotSupportedException("Sparrow's broker for FastStream has no requests")
