"""Kafka's internal topics, by which tools and clients recognise a cluster's coordinators.

Kafka keeps committed offsets and transactions in them; Sparrow has its meta store for that. The
topics exist, empty, from the moment when a client first asks for a coordinator, since user
interfaces, clients' test suites and regular expressions look for their names. Writing to them is
refused.
"""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
INTERNAL_CONFIG: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
"""Their configuration as Kafka sets it."""
