"""A server that has just started is measured when it has come to rest: what it loads in the
background is not the work that is asked for.
"""

from __future__ import annotations

import time

import psutil

_LOOK_S = 0.25
_IDLE = 0.1
"""Share of one core."""
_PATIENCE_S = 20.0


def until_idle(pid: int) -> None:
    """Wait until the process, with its children, takes hardly any processor time; not for ever."""
    process = psutil.Process(pid)
    deadline = time.monotonic() + _PATIENCE_S
    used = _cpu_s(process)
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        now = _cpu_s(process)
        if now - used < _IDLE * _LOOK_S:
            return
        used = now


def _cpu_s(process: psutil.Process) -> float:
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)
