"""The composition root: options in, a running broker with its doors out. See `server.py` of this package first."""
