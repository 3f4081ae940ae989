"""Settings of a site whose tasks run on Sparrow. Start a worker with

DJANGO_SETTINGS_MODULE=django_site.settings python -m sparrow.integrations.django
"""

import os

import django

SECRET_KEY = "only-an-example"  # noqa: S105 - as it says
USE_TZ = True
DATABASES: dict[str, dict[str, str]] = {}
INSTALLED_APPS = [] if django.VERSION >= (6,) else ["django_tasks"]  # 6 has django.tasks
TASKS = {
    "default": {
        "BACKEND": "sparrow.integrations.django.SparrowBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {
            "url": os.environ.get("SPARROW_URL", "sparrow://127.0.0.1:9094"),
            "prefix": "django-",
            "policy": {"lease": "30s"},
        },
    }
}
