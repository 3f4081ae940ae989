"""Programs in other languages: found, compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import jars as maven
from bench.peers.daemon import NotInstalled

HERE = Path(__file__).parent
TIMEOUT_S = 300


def tool(name: str) -> str:
    """Return the path of an executable. Raise NotInstalled if there is none."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is not installed")
    return found


def run(*command: str, directory: Path = HERE) -> str:
    """Return the standard output of a command that must succeed."""
    ended = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if ended.returncode:
        raise AssertionError(f"{command[0]} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


@dataclass(frozen=True)
class JavaPrograms:
    """Compiled programs that use Kafka's own jars."""

    executable: str
    jars: str
    classes: Path

    @classmethod
    def compiled(cls, sources: Sequence[Path], classes: Path) -> JavaPrograms:
        """Compile programs into a directory.

        Raises:
            NotInstalled: java, javac or Kafka's jars are missing.
        """
        executable, compiler = tool("java"), tool("javac")
        jars = ":".join(maven.fetched(maven.BROKER))
        run(compiler, "-cp", jars, "-d", str(classes), *map(str, sources))
        return cls(executable, jars, classes)

    def command(self, program: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Return the command that runs a program; `options` are those of the virtual machine."""
        return [self.executable, *options, "-cp", f"{self.classes}:{self.jars}", program, *arguments]
