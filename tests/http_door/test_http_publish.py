from tests.http_door.conftest import Http


async def test_a_raw_message_is_stored_and_read_back(http: Http) -> None:
    stored = await http.post(
        "/v1/topics/orders/messages", b"hello", content_type="text/plain", sparrow_key="k"
    )
    print(stored)
    assert stored.status == 200
    page = await http.get("/v1/topics/orders/messages")
    print(page)
    one = await http.get("/v1/topics/orders/messages/0/0")
    print(one)
    many = await http.post(
        "/v1/topics/orders/messages",
        b'{"messages":[{"value":"a"},{"value":"b","headers":{"x":"y"}}]}',
        content_type="application/json",
    )
    print(many)
    print(await http.get("/v1/topics/orders/messages?from=0:1"))
    print(await http.get("/v1/topics/orders/messages?from=0:9"))
    print(await http.get("/nothing"))
    print(await http.ask("DELETE", "/v1/topics/orders/messages"))
    print(await http.ask("OPTIONS", "/v1/topics/orders/messages"))
    doc = await http.get("/openapi.json")
    print(doc.status, len(doc.body), doc.body[:300])
