"""The former path of `sparrow.pipelines`: importing it gives that package."""

import importlib
import sys

sys.modules[__name__] = importlib.import_module("sparrow.pipelines")
