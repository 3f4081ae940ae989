"""Build hook of hatchling: compile the walker of records where a C compiler is at hand.

`src/sparrow/records/_walker.c` becomes `_walker.abi3.so` beside it. It uses the stable interface of
CPython 3.11, so one build serves all later versions. Without a compiler, without Python's headers,
or on another Python than CPython, the wheel is a pure one, and `walker.py` does the same work more
slowly. No failure here makes an installation fail.

SPARROW_COMPILE=0 does not try to compile. SPARROW_COMPILE=1 makes the build fail if it cannot
compile: set it when wheels are built for publication.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/sparrow/records/_walker.c")
SWITCH = "SPARROW_COMPILE"
_TIMEOUT_S = 120
BUILT = SOURCE.with_name("_walker.abi3.so")


class CannotCompile(Exception):
    """The walker was not compiled; the text says why."""


class WalkerBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the walker before a wheel is built, an editable one included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        built = Path(self.root) / BUILT
        reason = "SPARROW_COMPILE is 0" if os.environ.get(SWITCH) == "0" else self._failure(built)
        if reason:
            built.unlink(missing_ok=True)  # of an earlier source
            self.app.display_warning(
                f"sparrow: Python code instead of compiled code checks records: {reason}"
            )
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["artifacts"].append(str(BUILT))

    def _failure(self, built: Path) -> str:
        """Compile; return the reason if that failed, else an empty string."""
        try:
            compile_walker(Path(self.root) / SOURCE, built)
        except CannotCompile as error:
            if os.environ.get(SWITCH) == "1":
                raise
            return str(error)
        return ""

    def clean(self, versions: list[str]) -> None:  # noqa: ARG002 - hatchling's signature
        (Path(self.root) / BUILT).unlink(missing_ok=True)


def compile_walker(source: Path, target: Path) -> None:
    """Compile `source` into the extension module `target`.

    Raises:
        CannotCompile: no compiler, no headers, or they fail.
    """
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotCompile("the stable interface is that of CPython with its lock")
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise CannotCompile(f"there is no {include}/Python.h (on Debian it is in python3-dev)")
    links = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    made = target.with_suffix(f".{os.getpid()}.tmp")
    command = [
        *shlex.split(os.environ.get("CC") or _compiler()),
        *("-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", f"-I{include}"),
        *shlex.split(os.environ.get("CFLAGS", "")),
        *links,
        *(str(source), "-o", str(made)),
    ]
    try:
        subprocess.run(  # noqa: S603 - the compiler
            command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        made.replace(target)
    except OSError as error:
        raise CannotCompile(f"{command[0]} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CannotCompile(f"{command[0]} took longer than {_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise CannotCompile(f"{command[0]} failed: {said[0] if said else error.returncode}") from None
    finally:
        made.unlink(missing_ok=True)


def _compiler() -> str:
    """Return the compiler that built this Python if it is here, else the system's."""
    own = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return own if shutil.which(own) else "cc"
