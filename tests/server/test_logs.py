"""Logs of the server."""

from __future__ import annotations

import io
import json
import logging

import pytest

from sparrow.server.logs import configure_logging


@pytest.fixture(autouse=True)
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_json_lines_where_there_is_no_terminal():
    stream = io.StringIO()
    configure_logging("info", "auto", stream)
    logging.getLogger("sparrow.x").info("hello", extra={"topic": "orders"})
    found = json.loads(stream.getvalue())
    assert (found["event"], found["level"], found["logger"], found["topic"]) == (
        "hello",
        "info",
        "sparrow.x",
        "orders",
    )


def test_readable_lines_on_a_terminal():
    stream = Terminal()
    configure_logging("info", "auto", stream)
    logging.getLogger("sparrow.x").warning("hello", extra={"topic": "orders"})
    assert "hello" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("style", ["text", "json"])
def test_traceback_is_logged(style):
    stream = io.StringIO()
    configure_logging("info", style, stream)
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("sparrow.x").exception("failed")
    assert "RuntimeError: broken" in stream.getvalue()


def test_less_important_messages_are_left_out():
    stream = io.StringIO()
    configure_logging("warning", "json", stream)
    logging.getLogger("sparrow.x").info("hello")
    assert stream.getvalue() == ""
