"""docs/configuration.md agrees with the declarations."""

from __future__ import annotations

from pathlib import Path

from sparrow.base.settings import options_of
from sparrow.server.config import ServerConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
HEAD = "| key in the file | flag | environment | default | meaning |\n|---|---|---|---|---|\n"


def table() -> str:
    rows = [
        f"| `{o.key}` | {_code(o.flag)} | {_code(o.environment)} | {o.show} | {o.help} |"
        for o in options_of(ServerConfig)
    ]
    return HEAD + "\n".join(rows) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def test_the_table_of_options_is_that_of_the_declarations():
    text = DOCUMENT.read_text()
    documented = text[text.index(HEAD) : text.index("<!-- end -->")]
    assert documented == table()
