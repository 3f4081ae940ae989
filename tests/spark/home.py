"""A home of Spark in which its Python modules are compiled.

The JVM starts several Python processes for each query, and has them import PySpark from an archive
of sources, which takes each of them more than a second of a core. In this home a directory of
links is in the archive's place, and Python keeps what it compiled.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path


def spark_home() -> str:
    """Return the home, which is made if it is missing; "" where PySpark is not installed."""
    found = util.find_spec("pyspark")
    if found is None or found.origin is None:
        return ""
    home = Path(sys.prefix, f"spark-home-{metadata.version('pyspark')}")
    if not home.exists():
        folder = Path(tempfile.mkdtemp(dir=sys.prefix))
        _link(Path(found.origin).parent, folder)
        try:
            folder.rename(home)
        except OSError:  # another process was quicker
            shutil.rmtree(folder)
    return str(home)


def _link(package: Path, home: Path) -> None:
    for name in ("bin", "jars", "sbin"):
        (home / name).symlink_to(package / name)
    for archive in (package / "python" / "lib").glob("*.zip"):
        name = archive.name.removesuffix(".zip").partition("-")[0]  # py4j's has a version
        folder = home / "python" / "lib" / archive.name
        folder.mkdir(parents=True)
        (folder / name).symlink_to(package.parent / name)
