"""Errors of the cluster's engines and of ownership. All of them may pass when the call is
repeated, here or at another broker.
"""

from __future__ import annotations

from sparrow.base.errors import Draining, StorageFailed, Unavailable


class NotOwner(Draining):
    """Another broker owns the shard, or may own it by now; clients go there."""


class LedgerUnavailable(Unavailable):
    """The ledger does not answer, and nothing was changed."""


class LedgerMissing(LedgerUnavailable):
    """The database has no tables of a cluster, or those of an earlier version."""


class OutcomeUnknown(LedgerUnavailable):
    """The connection ended while the ledger worked: the change happened, will happen, or never
    will.

    Only `Ledger.take` of the own shard tells.
    """


class LedgerRefused(StorageFailed):
    """The ledger refused a change, and nothing of it was applied."""


class ObjectsUnavailable(Unavailable):
    """The object store does not answer, or refused a call that may succeed later."""


class ObjectMissing(StorageFailed):
    """An object that the ledger names is not in the object store."""
