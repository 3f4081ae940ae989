"""Sparrow under other frameworks: a transport for Celery (kombu), a broker and a result backend for
taskiq, a backend for Django's tasks, a broker for FastStream, and dependencies for FastAPI.

Each module needs its framework, which no extra of Sparrow installs; `docs/integrations.md` is the
guide.
"""
