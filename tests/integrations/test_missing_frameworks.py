"""A module whose framework is not installed says which one, and how to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{each}}.") for each in {blocked!r}):
            raise ImportError(f"No module named {{name}}")
sys.meta_path.insert(0, Missing())
try:
    import sparrow.integrations.{module}
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "blocked", "package"),
    [
        ("kombu", ["kombu"], "celery"),
        ("taskiq", ["taskiq"], "taskiq"),
        ("fastapi", ["fastapi"], "fastapi"),
        ("faststream", ["faststream"], "faststream"),
        ("django", ["django"], "django-tasks"),
        ("django", ["django.tasks", "django_tasks"], "django-tasks"),
    ],
)
def test_the_error_names_the_package(module: str, blocked: list[str], package: str) -> None:
    code = BLOCKED.format(blocked=blocked, module=module)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"sparrow.integrations.{module} needs ")
    assert said.strip().endswith(package)
