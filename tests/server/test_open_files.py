"""The limit of open files."""

from __future__ import annotations

import resource
import subprocess
import sys

PROBE = """
import resource
from sparrow.server.run import allow_open_files
allow_open_files(5000)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def soft_limit_after(soft: int, hard: int) -> int:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    done = subprocess.run([sys.executable, "-c", PROBE], preexec_fn=limit, check=True, capture_output=True)
    return int(done.stdout)


def test_a_low_soft_limit_is_raised_as_far_as_the_hard_limit_lets_us() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 5000 if hard == resource.RLIM_INFINITY else min(5000, hard)
    assert soft_limit_after(256, hard) == most
    assert soft_limit_after(256, 1024) == 1024
