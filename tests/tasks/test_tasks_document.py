"""The programs of docs/tasks.md, results.md and from-celery.md run as they are printed."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sparrow.sync
import sparrow.testing
from sparrow.tasks.supervisor.loader import load

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"


def programs(document: str) -> dict[str, str]:
    """Return the Python blocks of a document by the word behind the fence."""
    text = (DOCS / document).read_text()
    return dict(re.findall(r"^```python (\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@pytest.fixture
def mailer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module of docs/tasks.md, with the tasks that the other programs use."""
    blocks = programs("tasks.md")
    code = (
        f"import time\n{blocks['app']}\n"
        "@app.task\ndef total(numbers: list[int]) -> int:\n    return sum(numbers)\n"
        f"{blocks['middleware']}\n{blocks['compositions']}\n{blocks['test']}\n"
        f"{programs('results.md')['results']}\n{programs('results.md')['read']}\n"
    )
    (tmp_path / "mailer.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield load("mailer:app") and sys.modules["mailer"]
    del sys.modules["mailer"]


async def test_the_programs_of_the_documents_print_the_results_in_their_comments(
    mailer: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mailer.app.testing(reserve_bytes=0) as run:
        for program in (mailer.compose, mailer.read):
            working = asyncio.create_task(mailer.app.run_worker(handle_signals=False))
            await asyncio.wait_for(program(), 60)
            working.cancel()
            await asyncio.wait([working])
        printed = capsys.readouterr().out
        for line in ("10", "[0, 2, 4]", "55", "34", "cat.png.64"):
            assert f"\n{line}\n" in f"\n{printed}"
        assert run.client.is_connected
    await mailer.test_welcome()


async def test_the_sending_program(mailer: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with sparrow.testing.broker(reserve_bytes=0) as broker:
        mailer.app.url = broker.url
        working = asyncio.create_task(mailer.app.run_worker(handle_signals=False))
        code = programs("tasks.md")["send"].replace("asyncio.run(main())", "")
        names: dict[str, Any] = {}
        exec(code, names)
        await asyncio.wait_for(
            asyncio.get_running_loop().run_in_executor(None, asyncio.run, names["main"]()), 60
        )
        assert "3\n" in capsys.readouterr().out
        working.cancel()
        await asyncio.wait([working])


def test_the_program_of_the_guide_from_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    with sparrow.testing.broker(reserve_bytes=0) as broker:
        monkeypatch.setenv("SPARROW_URL", broker.url)
        names: dict[str, Any] = {}
        exec(programs("from-celery.md")["tasks"], names)
        names["app"].close_sync()
        with sparrow.sync.connect(broker.url) as client:
            (record,) = client.admin.peek_queue("mailer", states=["delayed"])
            assert record.priority == 7
            assert client.admin.describe_queue("mailer").policy["delivery_limit"] == 6
