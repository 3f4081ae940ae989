"""What holds for all tests."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path

import sparrow.frontends

# Brokers that tests start as commands take a free port for Kafka clients, so that they may run side by side.
os.environ.setdefault("SPARROW_KAFKA_PORT", "0")
os.environ.setdefault("SPARROW_HTTP_PORT", "0")
# kio's types load hypothesis where it is installed, which computes a table of characters for seconds unless it finds the one it kept;
# brokers in processes of their own run elsewhere and are to find it, too.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parents[1] / ".hypothesis"))

# Brokers that tests run in a thread load some doors when the first client comes. pytest parses such modules to rewrite their asserts, and
# CPython 3.11 counts the depth of trees for all threads together: two at it at once raise SystemError. So they are loaded here, by one.
for found in pkgutil.walk_packages(sparrow.frontends.__path__, "sparrow.frontends."):
    importlib.import_module(found.name)
