"""A broker with logins: an administrator whose users, rules and quotas survive a kill, and clients
with and without rights.

Every connection is over TLS with a password. Acknowledged changes hold; pending ones hold or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

from sparrow.base.errors import NotAuthenticated, NotAuthorized
from sparrow.client import Client
from sparrow.client.options import ClientOptions
from sparrow.client.results import AccessRule
from sparrow.client.session import Session
from sparrow.client.url import parse_url
from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import kept
from tests.crash.loads.kafka import EAGER
from tests.crash.loads.patience import AGAIN_S, TROUBLE
from tests.crash.loads.topic import BURST, PAUSE_S
from tests.crash.publisher import PARTITIONS, Ledger, check, publish_until

ROOT, ANN, EVE = ("root", "root-password"), ("ann", "ann-password"), ("eve", "eve-password")
USERS = dict([ROOT, ANN, EVE])
ITERATIONS = 4096
CLOSED = "closed"
"""A topic on which nobody but the super user has rights."""


async def connect_as(broker: RunningBroker, ca_file: str, who: tuple[str, str], **options: Any) -> Client:
    """Return a client that logs in over TLS, and looks for its broker five times a second."""
    user, password = who
    session = Session(
        parse_url(broker.url),
        ClientOptions(
            backoff_initial_s=0.02,
            backoff_max_s=0.2,
            ca_file=ca_file,
            user=user,
            password=password,
            **options,
        ),
    )
    await session.open()
    return Client(session)


@dataclass
class Register:
    """The values that were confirmed to an administrator: for each name the value in force, or two
    of which one is in force.
    """

    values: dict[Hashable, frozenset[Any]] = field(default_factory=dict)
    confirmed: int = 0

    def may_be(self, name: Hashable) -> frozenset[Any]:
        return self.values.get(name, frozenset([None]))

    async def change(self, name: Hashable, value: Any, act: Callable[[], Awaitable[object]]) -> None:
        """Make a change that gives `name` a value (None: removes it). An error leaves both
        possible.
        """
        before = self.may_be(name)
        self.values[name] = before | {value}
        await act()
        self.values[name] = frozenset([value])
        self.confirmed += 1

    def breaches(self, found: dict[Hashable, Any]) -> list[str]:
        """Return the differences from the confirmed values."""
        return [
            f"{name!r} is {found.get(name)!r}; confirmed was {sorted(map(repr, self.may_be(name)))}"
            for name in sorted({*self.values, *found}, key=repr)
            if found.get(name) not in self.may_be(name)
        ]


def rule_key(rule: AccessRule) -> Hashable:
    return ("rule", rule.name, rule.principal, rule.operation)


class Administrator:
    """An administrator that creates, changes and removes users, rules and quotas, one at a time."""

    name = "administrator"
    _NAMES = 5

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._register = Register()
        self._passwords: dict[str, frozenset[str]] = {}
        self._step = 0

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_as(broker, self._ca_file, ROOT) as client:
            await client.admin.create_topic(CLOSED, partitions=1)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                # A lost response is not asked for again: it would not show the effect of the first
                # try.
                async with await connect_as(
                    broker, self._ca_file, ROOT, reconnect_timeout_s=0.0, call_timeout_s=5.0
                ) as client:
                    while not stop.is_set():
                        await self._act(client)
                        await asyncio.sleep(PAUSE_S)
            except TROUBLE:
                await asyncio.sleep(AGAIN_S)

    async def _act(self, client: Client) -> None:
        step, self._step = self._step, self._step + 1
        number = step // 3 % self._NAMES
        await (self._user, self._rule, self._quota)[step % 3](client, number, step)

    async def _user(self, client: Client, number: int, step: int) -> None:
        user, register, admin = f"user-{number}", self._register, client.admin
        if len(register.may_be(("user", user))) > 1:  # existence is looked up, as an administrator would
            there = user in {each.name for each in await admin.list_users()}
            register.values["user", user] = frozenset([True if there else None])
        password = f"password-{step}"
        before = self._passwords.get(user, frozenset())
        if register.may_be(("user", user)) == {None}:
            self._passwords[user] = frozenset([password])
            await register.change(
                ("user", user), True, lambda: admin.create_user(user, password, iterations=ITERATIONS)
            )
        elif step // (3 * self._NAMES) % 3:
            self._passwords[user] = before | {password}
            await admin.set_password(user, password, iterations=ITERATIONS)
            self._passwords[user] = frozenset([password])
            register.confirmed += 1
        else:
            await register.change(("user", user), None, lambda: admin.delete_user(user))

    async def _rule(self, client: Client, number: int, step: int) -> None:
        rule = AccessRule("Topic", f"topic-{number}", f"User:user-{number}", "Read")
        key = rule_key(rule)
        if step // (3 * self._NAMES) % 2:
            await self._register.change(
                key,
                None,
                lambda: client.admin.delete_access_rules(name=rule.name, principal=rule.principal),
            )
        else:
            await self._register.change(key, "Allow", lambda: client.admin.create_access_rules([rule]))

    async def _quota(self, client: Client, number: int, step: int) -> None:
        value = None if step // (3 * self._NAMES) % 4 == 3 else float(1_000_000 + step)
        entity = {"user": f"user-{number}"}
        await self._register.change(
            ("quota", f"user-{number}"),
            value,
            lambda: client.admin.alter_quota(entity, {"producer_byte_rate": value}),
        )

    async def check(self, broker: RunningBroker) -> None:
        found: dict[Hashable, Any] = {}
        async with await connect_as(broker, self._ca_file, ROOT) as client:
            for user in await client.admin.list_users():
                if user.name.startswith("user-"):
                    found["user", user.name] = True
            for rule in await client.admin.list_access_rules():
                if rule.name.startswith("topic-"):
                    found[rule_key(rule)] = rule.permission
            for quota in await client.admin.list_quotas():
                name = quota.entity.get("user")
                if name and name.startswith("user-") and "producer_byte_rate" in quota.values:
                    found["quota", name] = quota.values["producer_byte_rate"]
        kept(self._register.breaches(found), await self._wrong_passwords(broker, found))

    async def _wrong_passwords(self, broker: RunningBroker, found: dict[Hashable, Any]) -> list[str]:
        wrong = []
        for user, passwords in self._passwords.items():
            if ("user", user) in found and not any(
                [await self._logs_in(broker, user, password) for password in sorted(passwords)]
            ):
                wrong.append(f"{user} cannot log in with {sorted(passwords)}")
            if await self._logs_in(broker, user, "password-of-nobody"):
                wrong.append(f"{user} logs in with any password")
        return wrong

    async def _logs_in(self, broker: RunningBroker, user: str, password: str) -> bool:
        try:
            async with await connect_as(broker, self._ca_file, (user, password)):
                return True
        except NotAuthenticated:
            return False

    @property
    def progress(self) -> int:
        return self._register.confirmed


class SecuredProducer:
    """An idempotent producer that has its rights by a rule alone; like `native.NativeProducer`, but
    slowed down by its quota.
    """

    name = "secured"

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._ledger = Ledger()

    async def prepare(self, broker: RunningBroker) -> None:
        async with await connect_as(broker, self._ca_file, ROOT) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)
            await client.admin.create_access_rules(
                [
                    AccessRule("Topic", self.name, "User:ann", operation)
                    for operation in ("Write", "Read", "Describe")
                ]
            )
            await client.admin.alter_quota({"user": "ann"}, {"producer_byte_rate": 20_000_000.0})

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with await connect_as(broker, self._ca_file, ANN) as client:
            await publish_until(stop, client, self.name, self._ledger, acks="all", pause_s=2 * PAUSE_S)

    async def check(self, broker: RunningBroker) -> None:
        assert len(self._ledger.acknowledged) == self._ledger.sent
        found = []
        async with await connect_as(broker, self._ca_file, ANN) as client:
            ends = {each.partition: each.offset for each in await client.admin.offsets(self.name, "end")}
            async with client.subscribe(self.name, start="beginning") as subscription:
                while sum(subscription.positions.values()) < sum(ends.values()):
                    found += await subscription.pull(1000, wait_s=1)
        check(self._ledger, found)

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)


class SecuredKafkaProducer(SecuredProducer):
    """The same by librdkafka over SASL_SSL."""

    name = "secured-kafka"

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        await asyncio.to_thread(self._work, broker.kafka, stop.is_set)

    def _work(self, servers: str, is_over: Callable[[], bool]) -> None:
        user, password = ANN
        producer = confluent_kafka.Producer(
            {
                **EAGER,
                "bootstrap.servers": servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": self._ca_file,
                "enable.idempotence": True,
                "linger.ms": 2,
            }
        )
        ledger = self._ledger

        def settled(number: int, error: object, message: Any) -> None:
            assert error is None, error
            ledger.acknowledged[number] = (message.partition(), message.offset())

        while not is_over():
            number, ledger.sent = ledger.sent, ledger.sent + 1
            producer.produce(
                self.name,
                b"%d %s" % (number, b"." * (number * 31 % 300)),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: settled(number, error, message),
            )
            producer.poll(PAUSE_S if number % BURST == 0 else 0)
        assert producer.flush(60) == 0


class Intruder:
    """A user without rights: whatever happens to the broker, it accepts none of his records, and
    shows him none.
    """

    name = "intruder"

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file
        self._refused = 0
        self._taken: list[str] = []

    async def prepare(self, broker: RunningBroker) -> None:
        """Create nothing: he has no rights."""

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with await connect_as(broker, self._ca_file, EVE) as client:
                    while not stop.is_set():
                        await self._try(client)
                        await asyncio.sleep(PAUSE_S)
            except TROUBLE:
                await asyncio.sleep(AGAIN_S)

    async def _try(self, client: Client) -> None:
        tries: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("published", lambda: client.publish(CLOSED, b"0")),
            (
                "made a user",
                lambda: client.admin.create_user("eve-2", "password-of-eve", iterations=ITERATIONS),
            ),
            (
                "made a rule",
                lambda: client.admin.create_access_rules([AccessRule("Topic", "*", "User:eve", "All")]),
            ),
            ("set a quota", lambda: client.admin.alter_quota({"user": "ann"}, {"producer_byte_rate": 1.0})),
        ]
        what, act = tries[self._refused % len(tries)]
        try:
            await act()
            self._taken.append(what)
        except NotAuthorized:
            self._refused += 1

    async def check(self, broker: RunningBroker) -> None:
        async with await connect_as(broker, self._ca_file, ROOT) as client:
            ends = await client.admin.offsets(CLOSED, "end")
            users = {each.name for each in await client.admin.list_users()}
            rules = await client.admin.list_access_rules()
        there = [f"{CLOSED} has a record" for each in ends if each.offset]
        there += [f"there is a user {each}" for each in users & {"eve-2"}]
        there += [f"there is a rule of {each.principal}" for each in rules if each.principal == "User:eve"]
        kept(self._taken, there)

    @property
    def progress(self) -> int:
        return self._refused
