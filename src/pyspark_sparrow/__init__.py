"""The package by which PySpark finds `format("sparrow")` without an import: it looks for packages
named `pyspark_*` and takes their `DefaultSource`.

One package that cannot be loaded would hide all data sources from PySpark, so where the extra is
not installed this one has no class and says why.
"""

import logging

try:
    from sparrow.spark.datasource import SparrowDataSource as DefaultSource
except ImportError as error:
    logging.getLogger("sparrow.spark").warning(
        "format('sparrow') is not there: %s; install what it needs by pip install 'sparrow-broker[spark]'",
        error,
    )
else:
    __all__ = ["DefaultSource"]
