from tests.http_door.conftest import Http


async def test_a_broker_is_alive_and_ready(http: Http) -> None:
    alive = await http.get("/healthz")
    assert (alive.status, alive.json) == (200, {"status": "alive"})
    ready = await http.get("/readyz")
    assert (ready.status, ready.json) == (200, {"status": "ready", "reasons": []})
