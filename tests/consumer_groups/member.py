"""A member of a group in a process of its own, to be killed: reads a topic named as its group, and
prints what it read.
"""

import sys

from confluent_kafka import Consumer


def main(servers: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
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
