"""FastAPI with Sparrow: a request becomes a job. Start it with

uvicorn fastapi_app:app
"""

import os
from typing import Annotated

from fastapi import FastAPI

from sparrow import Queue
from sparrow.integrations.fastapi import SparrowClient, SparrowLifespan, sparrow_queue

app = FastAPI(lifespan=SparrowLifespan(os.environ.get("SPARROW_URL", "sparrow://127.0.0.1:9094")))
Emails = Annotated[Queue, sparrow_queue("emails", policy={"delivery_limit": 3})]


@app.post("/emails/{to}", status_code=202)
async def send(to: str, emails: Emails) -> dict[str, int]:
    published = await emails.publish(f"to: {to}".encode(), key=to.encode())
    return {"partition": published.partition, "offset": published.offset}


@app.get("/emails")
async def waiting(client: SparrowClient) -> dict[str, int]:
    return {"unfinished": (await client.admin.describe_queue("emails")).statistics.unfinished}
