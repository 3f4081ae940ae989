"""`python -m bench [--quick] [--only WORD]`: run the workloads, print a table, write bench/results/latest.json."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.results import Measurement, save, show
from bench.workloads import WORKLOADS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run of each instead of five")
    parser.add_argument("--only", default="", metavar="WORD", help="only workloads whose name has this word")
    parser.add_argument("--json", default="bench/results/latest.json", type=Path, help="where the figures go")
    options = parser.parse_args()
    measurements: list[Measurement] = []
    for name, workload in WORKLOADS.items():
        if options.only in name:
            print(f"… {name}", flush=True)
            measurements += workload(1 if options.quick else 5, 0.25 if options.quick else 1.0)
    show(measurements)
    save(measurements, options.json)
    print(f"figures written to {options.json}")


if __name__ == "__main__":
    main()
