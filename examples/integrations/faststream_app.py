"""FastStream on Sparrow. Start it with

faststream run faststream_app:app
"""

import os

from faststream import FastStream
from faststream.exceptions import RejectMessage

from sparrow.integrations.faststream import QueueBroker

broker = QueueBroker(os.environ.get("SPARROW_URL", "sparrow://127.0.0.1:9094"), policy={"delivery_limit": 3})
app = FastStream(broker)
archived: list[int] = []
tried: list[int] = []


@broker.subscriber("orders", max_workers=4)
@broker.publisher("invoices")
async def invoice(amount: int) -> int:
    """Fail at the first attempt, refuse negative amounts, and invoice the double of others."""
    tried.append(amount)
    if amount < 0:
        raise RejectMessage
    if tried.count(amount) == 1:
        raise RuntimeError("not yet")
    return amount * 2


@broker.subscriber("invoices")
async def archive(amount: int) -> None:
    archived.append(amount)
