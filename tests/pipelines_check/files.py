"""Pipeline files for tests: a small correct one, to which each test makes its changes."""

from __future__ import annotations

from sparrow import pipelines
from sparrow.base.errors import InvalidConfig
from sparrow.pipelines.checks import faults

SCHEMA = "id bigint, amount double, at timestamp, name string, tags array<string>, place struct<city string>"
JSON = f'{{json: {{schema: "{SCHEMA}"}}}}'


def clean(
    *,
    source: str = "orders",
    decode: str | None = JSON,
    to: str = "{topic: clean}",
    more: dict[str, str] | None = None,
    steps: tuple[str, ...] = (),
    expect: tuple[str, ...] = (),
    top: tuple[str, ...] = (),
) -> str:
    """Return a pipeline file with the flow `clean`. Lines: 1 name, 2 flows, 3 clean, 4 from, 5 to,
    6 decode, then `more`, steps, expectations; `top` is at the end.
    """
    lines = ["name: orders", "flows:", "  clean:", f"    from: {source}", f"    to: {to}"]
    lines += [] if decode is None else [f"    decode: {decode}"]
    lines += [f"    {name}: {value}" for name, value in (more or {}).items()]
    lines += ["    steps:", *(f"      - {step}" for step in steps)] if steps else []
    lines += ["    expect:", *(f"      - {each}" for each in expect)] if expect else []
    return "\n".join((*lines, *top)) + "\n"


def sentences(path: object) -> list[str]:
    """Return every fault of a file, without the file's name: "4: flows.clean…"."""
    text = str(path)
    try:
        found = faults(pipelines.load(text))
    except InvalidConfig as error:
        found = error.text.splitlines()
    return [each.replace(f"{text}:", "").replace(text, "FILE") for each in found]
