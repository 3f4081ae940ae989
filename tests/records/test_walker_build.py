"""The build hook: its result with a compiler and without one."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = Path("src/sparrow/records/_walker.c")
BUILT = Path("src/sparrow/records/_walker.abi3.so")

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not (Path(sysconfig.get_path("include")) / "Python.h").exists(),
    reason="no C compiler, or no headers of Python here",
)


class BuildHook:
    """A stand-in for hatchling's class, which is not installed where the package is used."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.warnings: list[str] = []
        self.app = types.SimpleNamespace(display_warning=self.warnings.append)


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the hook in a copy of the tree, with the files of an earlier build."""
    interface: Any = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = BuildHook
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / SOURCE).parent.mkdir(parents=True)
    shutil.copy(ROOT / SOURCE, tmp_path / SOURCE)
    (tmp_path / BUILT).write_bytes(b"of an earlier source")
    monkeypatch.delenv("SPARROW_COMPILE", raising=False)
    return module.WalkerBuildHook(tmp_path)


def built(hook: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"artifacts": [], "pure_python": True}
    hook.initialize("standard", data)
    return data


@needs_compiler
def test_with_a_compiler_the_wheel_has_the_module_and_the_tag_of_the_stable_interface(
    hook: Any, tmp_path: Path
) -> None:
    data = built(hook)
    assert data["artifacts"] == [str(BUILT)]
    assert data["pure_python"] is False
    assert data["tag"].startswith("cp311-abi3-")
    assert not hook.warnings
    spec = importlib.util.spec_from_file_location("_walker", tmp_path / BUILT)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert module.walk(b"", 0, 0, 0, 0, 0, 0, False, False) == (0, 0, 0, -1, (), ())
    hook.clean([])
    assert not (tmp_path / BUILT).exists()


@pytest.mark.parametrize("way", ["no compiler", "a compiler that fails", "not wanted", "no headers"])
def test_without_a_compiler_the_wheel_is_a_pure_one(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "no compiler":
        monkeypatch.setenv("CC", str(tmp_path / "cc"))
    elif way == "a compiler that fails":
        monkeypatch.setenv("CC", "false")
    elif way == "not wanted":
        monkeypatch.setenv("SPARROW_COMPILE", "0")
    else:
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    data = built(hook)
    assert data == {"artifacts": [], "pure_python": True}
    (warning,) = hook.warnings
    assert "Python code" in warning
    assert not list((tmp_path / BUILT).parent.glob("*.so"))
    assert not list((tmp_path / BUILT).parent.glob("*.tmp"))


def test_a_build_that_has_to_compile_fails_if_it_cannot(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("SPARROW_COMPILE", "1")
    with pytest.raises(Exception, match="cannot be run"):
        built(hook)
