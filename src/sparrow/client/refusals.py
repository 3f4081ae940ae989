"""Reports that a broker takes no messages for now, while the producer retries.

Without them a full disk looks like a program that hangs until the delivery timeout is over. A full
disk is reported at once, as it seldom passes by itself. Other reasons (the broker is overloaded or
starts) are usual and pass, so they are reported when they last. Each reason is reported once, until
the broker takes messages again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparrow.base.errors import DiskFull

if TYPE_CHECKING:
    from sparrow.base.errors import SparrowError
    from sparrow.client.options import ProducerOptions
    from sparrow.client.url import Address

PATIENCE_S = 5.0
"""Time after which a reason that usually passes is reported."""

_logger = logging.getLogger("sparrow.client")


class Refusals:
    """The refusals of one producer. Loop thread only. `last` is the broker's latest refusal; None:
    it took the last batch.
    """

    def __init__(self, address: Address, options: ProducerOptions) -> None:
        self.last: SparrowError | None = None
        self._address = address
        self._options = options
        self._since = 0.0
        self._reported: str | None = None

    def refused(self, error: SparrowError, now: float) -> None:
        """Record that the broker refused a batch for now. `now` is monotonic, in seconds."""
        if self.last is None:
            self._since = now
        self.last = error
        is_due = isinstance(error, DiskFull) or now - self._since >= PATIENCE_S
        if is_due and self._reported != error.code:
            self._reported = error.code
            self._report(error)

    def ended(self) -> None:
        """Record that the broker took a batch."""
        self.last = None
        if self._reported is not None:
            self._reported = None
            if self._options.on_refused is None:
                _logger.warning("the broker at %s takes messages again", self._address)

    def _report(self, error: SparrowError) -> None:
        if self._options.on_refused is None:
            _logger.warning(
                "the broker at %s takes no messages for now: %s (%s); trying for %g s",
                self._address,
                error.text,
                error.code,
                self._options.delivery_timeout_s,
            )
            return
        try:
            self._options.on_refused(error)
        except Exception:
            _logger.exception("on_refused of a producer failed")
