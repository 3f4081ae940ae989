"""A member of a classic group in its own process, to be killed: reads a topic named as its group,
and prints its records.
"""

import sys

from confluent_kafka import Consumer


def main(servers: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 3_000,
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([group])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            sys.stdout.write((message.value() or b"").decode() + "\n")
            sys.stdout.flush()
            consumer.commit(message, asynchronous=False)


main(*sys.argv[1:])
