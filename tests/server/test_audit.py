"""`make audit`: its findings at an index, and that an unreachable index does not count as a
pass.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MIT = {"info": {"license_expression": "MIT"}, "vulnerabilities": []}
ADVISORY = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "fixed_in": ["2.0"],
    "summary": "A hole.",
    "withdrawn": None,
}


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit_script", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_script"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def index() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an index and its responses by path; other paths get 404."""
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


def ask(audit, index, capsys, **answers):
    for name, answer in answers.items():
        index[1][f"/pypi/{name}/1.0/json"] = answer
    code = audit.audit([audit.Package(name, "1.0") for name in answers], index[0])
    return code, capsys.readouterr()


def test_packages_without_a_finding_pass(audit, index, capsys):
    code, said = ask(audit, index, capsys, a=MIT, b=MIT)
    assert (code, said.out) == (0, "audit: 2 packages, 0 findings\n")


def test_an_advisory_is_a_finding_and_a_withdrawn_one_is_none(audit, index, capsys):
    code, said = ask(audit, index, capsys, a={**MIT, "vulnerabilities": [ADVISORY]}, b=MIT)
    assert code == 1
    assert "a 1.0: PYSEC-1, CVE-1 (mended in 2.0): A hole." in said.out
    withdrawn = {**ADVISORY, "withdrawn": "2026-01-01T00:00:00Z"}
    assert ask(audit, index, capsys, a={**MIT, "vulnerabilities": [withdrawn]})[0] == 0


def test_an_index_that_cannot_be_asked_is_no_pass(audit, index, capsys):
    code = audit.audit([audit.Package("missing", "1.0")], index[0])
    assert code == 69
    assert "cannot be asked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("info", "is_good"),
    [
        ({"license_expression": "MIT"}, True),
        ({"license_expression": "MIT OR Apache-2.0"}, True),
        ({"license_expression": "BSD-3-Clause AND GPL-3.0-only"}, False),
        ({"license_expression": "MIT-something"}, False),
        ({"classifiers": ["License :: OSI Approved :: BSD License"]}, True),
        ({"classifiers": ["License :: OSI Approved :: GNU Affero General Public License v3"]}, False),
        ({"license": "Apache 2"}, True),
        ({"license": "ask me"}, False),
        ({}, False),
    ],
)
def test_a_licence_is_on_the_list_or_a_finding(audit, info, is_good):
    assert (audit.licence_fault(audit.Package("a", "1"), info) == "") is is_good


def test_lock_file_gives_shipped_packages_without_those_of_development(audit):
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    names = {each.name for each in audit.shipped(lock)}
    assert {"cramjam", "kio", "websockets", "pyspark", "httptools"} <= names
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "sparrow-broker"}


def test_bill_of_materials_has_shipped_packages_with_versions(audit, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    bill = tmp_path / "bill.json"
    audit.write_bill(bill)
    found = json.loads(bill.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    listed = {(each["name"], each["version"]) for each in found["components"]}
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    assert set(map(tuple, audit.shipped(lock))) <= listed
