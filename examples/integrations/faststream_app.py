"""FastStream on Sparrow, through its listener for Kafka clients: no module of Sparrow is needed.
Start it with

    faststream run faststream_app:app
"""

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ.get("SPARROW_KAFKA", "127.0.0.1:9092"))
app = FastStream(broker)
seen: list[int] = []


@broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
@broker.publisher("invoices")
async def invoice(amount: int) -> int:
    return amount * 2


@broker.subscriber("invoices", group_id="archive", auto_offset_reset="earliest")
async def archive(amount: int) -> None:
    seen.append(amount)
