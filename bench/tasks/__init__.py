"""Task systems of Python, each with the same tasks, for `bench/workloads/tasks.py`.

A module for each: `worker_command()` is that of one worker process. Run as `python -m
bench.tasks.NAME`, the module is the sender: it does what its command line asks for, and prints one
JSON object.
"""
