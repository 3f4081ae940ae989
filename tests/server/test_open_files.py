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


CONNECTIONS_PROBE = """
from sparrow.server.config import ServerConfig
from sparrow.server.run import fit_connections
print(fit_connections(ServerConfig(max_connections=100)).max_connections)
"""


def printed_with(soft: int, hard: int, probe: str) -> int:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    done = subprocess.run([sys.executable, "-c", probe], preexec_fn=limit, check=True, capture_output=True)
    return int(done.stdout)


def soft_limit_after(soft: int, hard: int) -> int:
    return printed_with(soft, hard, PROBE)


def test_connections_leave_open_files_for_the_records() -> None:
    three_doors = (256 - 128) // 3
    assert printed_with(256, 256, CONNECTIONS_PROBE) == three_doors
    assert printed_with(256, 1300, CONNECTIONS_PROBE) == 100


def test_a_low_soft_limit_is_raised_as_far_as_the_hard_limit_lets_us() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 5000 if hard == resource.RLIM_INFINITY else min(5000, hard)
    assert soft_limit_after(256, hard) == most
    assert soft_limit_after(256, 1024) == 1024
