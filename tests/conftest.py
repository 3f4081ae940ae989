"""What holds for all tests."""

from __future__ import annotations

import os

# Brokers that tests start as commands take a free port for Kafka clients, so that they may run side by side.
os.environ.setdefault("SPARROW_KAFKA_PORT", "0")
