"""Commands start a Spark that prints nothing by itself."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sparrow.spark.daemon import _ends_quietly
from sparrow.spark.quiet_loggers import quiet_settings

OPTIONS = "SPARK_SUBMIT_OPTS"


def test_the_jvm_is_told_of_a_logging_configuration_that_is_there() -> None:
    environment = {OPTIONS: "-Xss4m"}
    quiet_settings(environment)
    first, _, url = environment[OPTIONS].partition(" -Dlog4j2.configurationFile=")
    assert first == "-Xss4m"
    lines = Path(urlsplit(url).path).read_text().splitlines()
    assert "appender.none.type = Null" in lines
    before = dict(environment)
    quiet_settings(environment)
    assert environment == before


def test_a_configuration_of_the_users_wins() -> None:
    environment = {OPTIONS: "-Dlog4j2.configurationFile=mine.xml"}
    quiet_settings(environment)
    assert environment == {OPTIONS: "-Dlog4j2.configurationFile=mine.xml"}


def test_a_worker_that_nobody_listens_to_any_more_ends_without_a_stack_trace() -> None:
    def hung_up(*_: object) -> int:
        raise BrokenPipeError

    def fails(*_: object) -> int:
        raise OSError("something else")

    assert _ends_quietly(hung_up)(1, True) == 1
    assert _ends_quietly(lambda *_: 0)(1, True) == 0
    with pytest.raises(OSError, match="something else"):
        _ends_quietly(fails)(1, True)
