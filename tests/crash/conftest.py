"""Brokers that are restarted often reuse compiled modules, whatever the environment says about writing them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_modules(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("pyc")))
        yield
