"""Sparrow's topics in Spark. Needs the extra `spark`."""
