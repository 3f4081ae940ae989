"""The command `sparrow worker`: a supervisor (`supervisor.py`) and its worker processes
(`worker_process.py`).
"""
