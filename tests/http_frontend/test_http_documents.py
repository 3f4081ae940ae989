"""/openapi.json and /docs."""

from pathlib import Path
from typing import Any

import sparrow.frontends.http
from tests.http_frontend.conftest import Http


async def test_the_document_names_security_schemes_and_problems(http: Http) -> None:
    document = (await http.get("/openapi.json")).json
    assert document["openapi"].startswith("3.1")
    assert set(document["components"]["securitySchemes"]) == {"bearer", "basic"}
    publish = document["paths"]["/v1/topics/{topic}/messages"]["post"]
    problem = publish["responses"]["404"]["content"]["application/problem+json"]["schema"]
    assert problem == {"$ref": "#/components/schemas/Problem"}
    assert "code" in document["components"]["schemas"]["Problem"]["required"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_every_parameter_of_a_path_is_described(http: Http) -> None:
    document = (await http.get("/openapi.json")).json
    for path, operations in document["paths"].items():
        named = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for operation in operations.values():
            described = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert described == named, path
            assert operation["summary"], path


async def test_names_in_the_document_suit_programs_that_make_a_client_of_it(http: Http) -> None:
    document = (await http.get("/openapi.json")).json
    operations = [each for path in document["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert {"messages_publish", "queues_lease", "dead_letters_redrive"} <= set(names)
    assert not [name for name in [*names, *document["components"]["schemas"]] if "__" in name]
    one = document["paths"]["/v1/topics/{topic}/messages/{partition}/{offset}"]["get"]
    assert list(one["responses"]["200"]["content"]) == ["*/*"]


async def test_numbers_in_the_document_have_room_for_offsets_and_times(http: Http) -> None:
    def formats(part: Any) -> list[Any]:
        if isinstance(part, list):
            return [found for each in part for found in formats(each)]
        if not isinstance(part, dict):
            return []
        is_integer = part.get("type") == "integer" or part.get("type") == ["integer", "null"]
        return [part.get("format")] * is_integer + formats(list(part.values()))

    assert set(formats((await http.get("/openapi.json")).json)) == {"int64"}


async def test_a_browser_is_led_from_the_root_to_the_console_and_a_program_to_the_document(
    http: Http,
) -> None:
    for accept, location in (("text/html,application/xhtml+xml", "/ui/"), ("*/*", "/docs")):
        led = await http.get("/", Accept=accept)
        assert (led.status, led.headers["location"]) == (307, location)
        assert (await http.get(location)).status == 200


async def test_browsers_find_an_icon(http: Http) -> None:
    icon = await http.get("/favicon.ico")
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.body.startswith(b"<svg ")
    assert b"/favicon.ico" in (await http.get("/docs")).body


async def test_the_page_loads_nothing_from_another_host(http: Http) -> None:
    page = await http.get("/docs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"https://" not in page.body
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert f"/docs/{name}".encode() in page.body
        assert (await http.get(f"/docs/{name}")).status == 200


async def test_the_page_serves_no_other_file(http: Http) -> None:
    for name in ("redoc.standalone.js", "..%2F__init__.py", "%00"):
        assert (await http.get(f"/docs/{name}")).code == "NO_SUCH_PAGE"


def test_the_licence_of_the_page_is_beside_its_files() -> None:
    files = Path(sparrow.frontends.http.__file__).parent / "viewer"
    assert "Apache License" in (files / "LICENSE").read_text("utf-8")
    assert {each.name for each in files.iterdir()} == {
        "LICENSE",
        "NOTICE",
        "README.md",
        "swagger-ui-bundle.js",
        "swagger-ui-bundle.js.LICENSE.txt",
        "swagger-ui.css",
    }
