"""`python -m sparrow` is the command `sparrow`."""

from __future__ import annotations

import sys

from sparrow.cli import main

if __name__ == "__main__":
    sys.exit(main())
