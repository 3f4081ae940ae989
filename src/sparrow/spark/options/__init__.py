"""Options of `.option(...)`: declared once, read on the driver, all faults reported at once.

`declare` reads, `connection` has the options that source and sink share, `source` and `sink` their
own.
"""
