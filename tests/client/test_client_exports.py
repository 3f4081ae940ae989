"""The names that `import sparrow` provides, and its cost."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import sparrow


@pytest.mark.parametrize("name", sparrow.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(sparrow, name) is not None
    assert name in dir(sparrow)


def test_exports_are_the_very_objects() -> None:
    assert sparrow.connect is importlib.import_module("sparrow.client").connect
    assert sparrow.Message is importlib.import_module("sparrow.records.record").Record
    assert issubclass(sparrow.TimedOut, sparrow.SparrowError)
    assert sparrow.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'konnect'"):
        sparrow.konnect  # noqa: B018 - the access is the test


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_sparrow_loads_nothing_else() -> None:
    added = run(
        "import sys; before = set(sys.modules); import sparrow; "
        "print(' '.join(sorted(m for m in set(sys.modules) - before if not m.startswith('sparrow'))))"
    )
    assert set(added.split()) <= {
        "__future__",
        "importlib",
        "importlib._abc",
        "importlib.util",
        "typing",
        "warnings",
    } | set(
        run(
            "import sys; before = set(sys.modules); import importlib, typing; print(' "
            "'.join(set(sys.modules) - before))"
        ).split()
    )


def test_the_client_loads_nothing_of_the_broker_and_no_server_library() -> None:
    loaded = run("import sys, sparrow.client, sparrow.sync; print(' '.join(sys.modules))").split()
    strangers = {"typer", "rich", "yaml", "sqlite3", "pyarrow", "pyspark"}
    assert not strangers & set(loaded)
    assert not [
        m
        for m in loaded
        if m.startswith(("sparrow.broker", "sparrow.storage", "sparrow.meta", "sparrow.server"))
    ]


def test_a_broker_without_its_libraries_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'sparrow.broker.broker':\n"
        "            raise ModuleNotFoundError('no yaml', name='yaml')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import sparrow\n"
        "try: sparrow.Broker\n"
        "except ImportError as error: print(error)\n"
    )
    assert "pip install sparrow-broker[server]" in run(code)
