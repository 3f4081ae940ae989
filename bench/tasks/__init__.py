"""Task systems of Python, each with the same tasks, for `bench/workloads/tasks.py`.

A module for each: `worker_command()` is that of one worker process, `run(what, count)` sends jobs
(`send.py`).
"""
