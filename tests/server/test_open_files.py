"""The limit of open files."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

PROBE = """
import resource
from sparrow.server.files import allow_open_files
allow_open_files(5000)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


CONNECTIONS_PROBE = """
from sparrow.frontends.listener_limits import ListenerLimits
from sparrow.server.config import ServerConfig
from sparrow.server.files import allow_connections, connection_room
config = ServerConfig(listeners=ListenerLimits(max_connections=100))
allow_connections(config)
print(connection_room(config))
"""


def printed_with(soft: int, hard: int, probe: str) -> int:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    done = subprocess.run([sys.executable, "-c", probe], preexec_fn=limit, check=True, capture_output=True)
    return int(done.stdout)


def soft_limit_after(soft: int, hard: int) -> int:
    return printed_with(soft, hard, PROBE)


def test_connections_leave_open_files_for_the_records_and_the_webhooks() -> None:
    assert printed_with(256, 256, CONNECTIONS_PROBE) == 128
    assert printed_with(256, 5000, CONNECTIONS_PROBE) >= 3 * 100


CROWD = """
import select, socket, sys, time
import sparrow, sparrow.testing
with sparrow.testing.broker(process=True) as broker, sparrow.sync.connect(broker.url) as client:
    client.publish("first", b"kept")
    crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(250)]
    deadline = time.monotonic() + 20
    while len(select.select(crowd, [], [], 0.05)[0]) < 50 and time.monotonic() < deadline:
        pass
    refused = len(select.select(crowd, [], [], 0)[0])
    for number in range(30):
        client.publish(f"topic-{number}", b"kept")
    print(int(refused >= 50))
"""


@pytest.mark.slow
def test_connections_beyond_the_limit_of_open_files_are_refused_and_new_logs_open() -> None:
    assert printed_with(400, 400, CROWD) == 1


def test_a_low_soft_limit_is_raised_as_far_as_the_hard_limit_lets_us() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 5000 if hard == resource.RLIM_INFINITY else min(5000, hard)
    assert soft_limit_after(256, hard) == most
    assert soft_limit_after(256, 1024) == 1024
