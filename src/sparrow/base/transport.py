"""Writing to asyncio transports, with the back-pressure that they promise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

_NEVER_PAUSES: Final = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
"""True where `writelines` of asyncio's own transports never calls `pause_writing`
(CVE-2024-12254).
"""


def write_pieces(transport: asyncio.Transport, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
    """Write pieces in order; call the protocol's `pause_writing` when more waits than the
    transport's limit.
    """
    if _NEVER_PAUSES and type(transport).__module__.startswith("asyncio."):
        transport.write(b"".join(pieces))
    else:
        transport.writelines(pieces)
