"""Choice of the implementation, and the moment at which numba is loaded."""

from __future__ import annotations

import subprocess
import sys

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument
from sparrow.spark.kernels import DecodeOptions, Decoder, compiled, selection, warm

ROUND_TRIP = """
import pyarrow, sys
from sparrow.spark.kernels import *
encoder, decoder = Encoder(EncodeOptions(1)), Decoder("t", 0)
(batch,) = encoder.encode(pyarrow.record_batch({"value": pyarrow.array([b"x"])}), timestamp_ms=0)
(block,) = [*decoder.feed(batch.data), *decoder.finish()]
assert block.column("value").to_pylist() == [b"x"]
"""


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_importing_the_kernels_does_not_load_numba() -> None:
    run(
        "import sys, sparrow.spark.kernels; assert 'numba' not in sys.modules and 'llvmlite' not "
        "in sys.modules"
    )


@pytest.mark.slow
def test_without_numba_the_other_kernels_do_the_work() -> None:
    run("import sys; sys.modules['numba'] = None" + ROUND_TRIP + "assert warm().endswith('vectors')")


def test_cache_that_cannot_be_written_is_said_and_does_not_stop_anybody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load = selection._load

    def refuse(module: str) -> object:
        if module == "compiled":
            raise RuntimeError("cannot cache function '_decode': no locator available")
        return load(module)

    monkeypatch.setattr(selection, "_load", refuse)
    selection._automatic.cache_clear()
    try:
        assert warm().endswith("vectors")
    finally:
        selection._automatic.cache_clear()
    assert "no locator available" in caplog.text
    assert "set NUMBA_CACHE_DIR" in caplog.text
    with pytest.raises(InvalidArgument, match="no locator available"):
        selection.select("numba")


@given(st.binary(max_size=100), st.data())
def test_sums_are_those_of_the_library(content: bytes, data: st.DataObject) -> None:
    """At any position, of any length; on processors without the instruction this is the library
    itself.
    """
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    found = compiled.crcs(np.frombuffer(content + b".", np.uint8), np.array([start, 0]), np.array([end, 0]))
    assert found.tolist() == [google_crc32c.value(content[start:end]), 0]


def test_numba_is_used_where_it_is_installed() -> None:
    assert warm().endswith("compiled")


@pytest.mark.parametrize("name", ["_decode", "_encode", "_murmur2"])
def test_nothing_is_compiled_late(name: str) -> None:
    dispatcher = getattr(compiled, name)
    assert len(dispatcher.signatures) == 1
    assert not dispatcher._can_compile


def test_unknown_implementation_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="use auto, numba or numpy"):
        Decoder("orders", 3, DecodeOptions(implementation="cuda"))  # type: ignore[arg-type]
