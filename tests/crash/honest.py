"""An honest producer in a process of its own, so that it can be killed: `python -m
tests.crash.honest KIND ADDRESS USER TOKEN TOPIC FIRST`.

Publishes numbered messages until its standard input ends, then waits for what is open. Each line of
its output is a number that was confirmed, or "failed NUMBER why". KIND is `kafka` (librdkafka,
idempotent), `native` (Sparrow's client) or `http` (idempotency keys; each request is sent again
until it is answered).
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

PAUSE_S = 0.002


class Task(NamedTuple):
    address: str
    user: str
    token: str
    topic: str
    first: int


def tell(number: int, error: object = None) -> None:
    print(number if error is None else f"failed {number} {error}", flush=True)


def kafka(task: Task, is_over: Callable[[], bool]) -> None:
    import confluent_kafka

    from tests.crash.loads.kafka import EAGER

    producer = confluent_kafka.Producer(
        {
            **EAGER,
            "bootstrap.servers": task.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": task.user,
            "sasl.password": task.token,
            "enable.idempotence": True,
            "linger.ms": 2,
        }
    )

    def settled(number: int, error: object, message: Any) -> None:
        tell(number, error)

    for number in itertools.count(task.first):
        if is_over():
            break
        producer.produce(task.topic, b"%d" % number, partition=0, on_delivery=partial(settled, number))
        producer.poll(PAUSE_S)
    producer.flush(30)


def native(task: Task, is_over: Callable[[], bool]) -> None:
    from sparrow.client import connect

    async def settle(number: int, delivery: Any) -> None:
        try:
            await delivery
        except Exception as error:
            tell(number, repr(error))
        else:
            tell(number)

    async def run() -> None:
        async with (
            connect(task.address, token=task.token) as client,
            client.producer(linger_ms=1) as producer,
            asyncio.TaskGroup() as group,
        ):
            for number in itertools.count(task.first):
                if is_over():
                    break
                delivery = await producer.send(task.topic, b"%d" % number, partition=0)
                group.create_task(settle(number, delivery))
                await asyncio.sleep(PAUSE_S)

    asyncio.run(run())


def http(task: Task, is_over: Callable[[], bool]) -> None:
    import aiohttp

    async def publish(session: aiohttp.ClientSession, number: int) -> None:
        url = f"{task.address}/v1/topics/{task.topic}/messages?partition=0"
        headers = {"Idempotency-Key": f"key-{number}", "Authorization": f"Bearer {task.token}"}
        while True:
            try:
                async with session.post(url, data=b"%d" % number, headers=headers) as answer:
                    if answer.status in {200, 201}:
                        tell(number)
                        return
                    if answer.status not in {409, 425, 429, 500, 503}:
                        tell(number, await answer.text())
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            for number in itertools.count(task.first):
                if is_over():
                    break
                await publish(session, number)
                await asyncio.sleep(PAUSE_S)

    asyncio.run(run())


def main() -> None:
    kind, *fields, first = sys.argv[1:]
    over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    time.sleep(0)
    {"kafka": kafka, "native": native, "http": http}[kind](Task(*fields, int(first)), over.is_set)


if __name__ == "__main__":
    main()
