"""What holds for all tests."""

from __future__ import annotations

import os
from pathlib import Path

# Brokers that tests start as commands take a free port for Kafka clients, so that they may run side by side.
os.environ.setdefault("SPARROW_KAFKA_PORT", "0")
os.environ.setdefault("SPARROW_HTTP_PORT", "0")
# kio's types load hypothesis where it is installed, which computes a table of characters for seconds unless it finds the one it kept;
# brokers in processes of their own run elsewhere and are to find it, too.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parents[1] / ".hypothesis"))
