"""The machine that figures are of."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

SYNCS = 200
"""The number of syncs that are timed."""


def machine() -> dict[str, Any]:
    """Processor, memory, system, and the disk under the brokers' data: all of them keep it where
    temporary files go.
    """
    directory = tempfile.gettempdir()
    device, file_system = _mounted(directory)
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": file_system,
        "disk": _disk_kind(device),
        "fdatasync_p50_ms": round(statistics.median(bare_fdatasync_ms(SYNCS)), 3),
    }


def bare_fdatasync_ms(count: int) -> list[float]:
    """Milliseconds of append + fdatasync of 200 bytes to a file in the directory that the brokers
    use.
    """
    times = []
    with tempfile.TemporaryFile(prefix="sparrow-bench-") as file:
        for _ in range(count):
            os.write(file.fileno(), b"x" * 200)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return times


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _mounted(directory: str) -> tuple[str, str]:
    """Device and type of the file system that has the directory."""
    path = Path(directory).resolve()
    mounts = [each for each in psutil.disk_partitions(all=True) if path.is_relative_to(each.mountpoint)]
    if not mounts:
        return "", "unknown"
    found = max(mounts, key=lambda each: len(each.mountpoint))
    return found.device, found.fstype


def _disk_kind(device: str) -> str:
    """Return the kernel's description of a disk."""
    name = Path(device).name
    blocks = [each for each in Path("/sys/block").glob("*") if name == each.name or (each / name).exists()]
    if not blocks:
        return "unknown"
    turns = (blocks[0] / "queue/rotational").read_text().strip() == "1"
    words = ["rotating or virtual" if turns else "not rotating"]
    if blocks[0].name.startswith("vd"):
        words.append("virtio")
    cache = blocks[0] / "queue/write_cache"
    if cache.exists():
        words.append(f"cache: {cache.read_text().strip()}")
    return ", ".join(words)
