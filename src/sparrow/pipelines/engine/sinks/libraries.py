"""Libraries of table formats, loaded when a pipeline needs them; if one is missing, the error says
what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrow.base.errors import InvalidConfig, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def deltalake() -> ModuleType:
    """Import the package `deltalake`.

    Raises:
        InvalidConfig: it is not installed.
    """
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise _missing("Delta Lake", "deltalake", "delta", error) from None
    return deltalake


def load_catalog(name: str, properties: Mapping[str, str]) -> Any:
    """Load a catalog of Iceberg.

    Raises:
        InvalidConfig: pyiceberg is not installed, or the catalog cannot be loaded.
    """
    try:
        from pyiceberg.catalog import load_catalog as load
    except ImportError as error:
        raise _missing("Iceberg", "pyiceberg", "iceberg", error) from None
    try:
        return load(name, **properties)
    except Exception as error:
        raise InvalidConfig(f"the catalog {name} of Iceberg cannot be used: {error}") from error


def load_iceberg(catalog: str, table: str, properties: Mapping[str, str]) -> Any:
    """Load a table of Iceberg.

    Raises:
        InvalidConfig: as `load_catalog`.
        NotFound: the catalog has no such table.
    """
    found = load_catalog(catalog, properties)
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return found.load_table(table)
    except NoSuchTableError:
        raise NotFound(f"the catalog {catalog} of Iceberg has no table {table}") from None


def _missing(what: str, package: str, extra: str, error: ImportError) -> InvalidConfig:
    return InvalidConfig(
        f"{what} needs the package {package}, which cannot be loaded ({error}); install it by pip "
        f"install 'sparrow-broker[{extra}]'"
    )
