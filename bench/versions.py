"""Versions and settings of all that takes part in a run."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

from bench.peers import nats
from bench.peers.daemon import NotInstalled

ROOT = Path(__file__).parents[1]
LIBRARIES = (
    "uvloop",
    "msgspec",
    "confluent-kafka",
    "pika",
    "aio-pika",
    "redis",
    "hiredis",
    "nats-py",
    "pyspark",
    "pyarrow",
    "numba",
)
PEERS = {
    "RabbitMQ": "rabbitmq",
    "NATS": "nats",
    "Redis": "redis",
    "Kafka": "kafka",
    "spark-sql-kafka": "kafka_connector",
}
"""Name → module of `bench.peers`, which has `version()` and `SETTINGS`."""


def today() -> str:
    """The date and minute, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")


def commit() -> str:
    """Return git's short hash of the source, with `+` when files differ from it; "" outside a
    repository.
    """
    found = _said("git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD")
    changed = found and _said(
        "git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "src", "bench"
    )
    return found + "+" if changed else found


def versions() -> dict[str, str]:
    """Return the versions of Sparrow, Python, the relevant libraries and the installed peers."""
    found = {"sparrow": f"{metadata.version('sparrow-broker')} ({commit() or 'no git'})"}
    found["Python"] = platform.python_version()
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["Java"] = _java()
    return found | {peer: _version(module) for peer, module in PEERS.items()}


def missing_peers(found: Mapping[str, str]) -> list[str]:
    """Each peer that cannot be measured with these versions: its name, and how to get it."""
    missing = [f"{peer}: {found[peer]}" for peer in PEERS if found.get(peer, "").startswith("not installed")]
    release = found.get("NATS", "")
    if release[:1].isdigit() and not nats.can_sync(release):
        missing.append(nats.too_old(release))
    return missing


def settings() -> Mapping[str, str]:
    """Peer → settings of its server, where it says."""
    return {peer: text for peer, module in PEERS.items() if (text := _attribute(module, "SETTINGS"))}


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "not installed"
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr.split("\n")[
        0
    ]


def _version(module: str) -> str:
    ask = _attribute(module, "version")
    if not callable(ask):
        return "unknown"
    try:
        return str(ask())
    except NotInstalled as error:
        return f"not installed ({error})"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"unknown ({error})"


def _attribute(module: str, name: str) -> object:
    try:
        return getattr(import_module(f"bench.peers.{module}"), name, None)
    except ImportError:
        return None


def _said(*command: str) -> str:
    """Return the output of a command; "" if it failed or is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
