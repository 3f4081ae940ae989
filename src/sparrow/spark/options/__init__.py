"""What `.option(...)` may say: declared once, read on the driver, all faults told at once.

`declare` reads, `connection` has what source and sink share, `source` and `sink` what is theirs.
"""
