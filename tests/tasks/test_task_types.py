"""mypy knows the arguments and results of tasks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
from datetime import timedelta

import sparrow
from sparrow.tasks import Result

app = sparrow.Tasks("types")


@app.task(queue="emails", retries=5)
async def send(to: str, body: str, *, job: sparrow.Job) -> int:
    return len(body)


@app.task
def add(first: int, second: int = 1) -> int:
    return first + second


@app.task(results=True)
async def greet(job: sparrow.TaskJob, name: str) -> str:
    job.progress(0.5)
    return name


async def good() -> None:
    one: Result[int] = await send.send("alice", body="hello", delay="10m", priority=7, unique="welcome")
    two: Result[int] = await add.send(1, second=2)
    three: str = await (await greet.options(delay=timedelta(hours=1), key="k").send("bob")).get(timeout=5)
    message = add.message(1)
    print(one, two, three, message.queue, add.send_sync(1).get().bit_length())


async def bad() -> None:
    await send.send("alice", 7, delay="10m")  # line a
    await send.send("alice")  # line b
    await send.send("alice", "hello", delays="10m")  # line c
    await add.send("one")  # line d
    await add.options(delai="10m").send(1)  # line e
    text: str = await (await add.send(1)).get()  # line f
    await greet.send("bob", priority="high")  # line g
"""


def test_arguments_options_and_results_are_checked(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = sparrow.tasks.mypy_plugin\nstrict = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    found = {
        int(number): text
        for number, text in re.findall(r"^program.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    }
    marked = {
        number: line[-1]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if re.search(r"# line \w$", line)
    }
    assert found.keys() == marked.keys(), done.stdout + done.stderr
    by_name = {marked[number]: text for number, text in found.items()}
    assert 'has incompatible type "int"; expected "str"' in by_name["a"]
    assert 'Missing positional argument "body"' in by_name["b"]
    assert 'Unexpected keyword argument "delays"' in by_name["c"]
    assert 'has incompatible type "str"; expected "int"' in by_name["d"]
    assert 'Unexpected keyword argument "delai"' in by_name["e"]
    assert 'has type "int", variable has type "str"' in by_name["f"]
    assert 'has incompatible type "str"; expected "int | None"' in by_name["g"]
