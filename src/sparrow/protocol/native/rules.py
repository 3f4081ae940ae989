"""The rules of the native protocol: which side may send what, in which state of the connection and
of a channel.

The tables below define all of that; `connection.py` applies them.

A connection::

    AWAIT_HELLO ──HELLO──▶ AWAIT_WELCOME ──WELCOME──▶ OPEN
    OPEN ──GOODBYE of one side──▶ CLOSING ──GOODBYE of the other──▶ CLOSED
    any ──ERROR on channel 0, GOODBYE before OPEN, end of stream──▶ CLOSED

A channel (producer, subscription or queue; the number is free before and after)::

    ──OPEN_*──▶ OPENING ──*_OPENED──▶ OPEN ──CLOSE──▶ CLOSING ──CLOSED──▶
                   ├─────────────CLOSE──────────────▶ │
                   └───────────────────┴──────────────┴──ERROR on the channel──▶

OPEN_* is OPEN_PRODUCER, SUBSCRIBE or OPEN_QUEUE, *_OPENED is PRODUCER_OPENED, SUBSCRIBED or
QUEUE_OPENED.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from sparrow.protocol.native.messages import FrameType

MAX_CHANNELS = 256
MAX_CHANNEL_NUMBER = (1 << 32) - 1

T = FrameType


class Role(Enum):
    CLIENT = "client"
    BROKER = "broker"

    @property
    def peer(self) -> Role:
        return Role.BROKER if self is Role.CLIENT else Role.CLIENT


class State(Enum):
    """State of the connection."""

    AWAIT_HELLO = "await hello"
    AWAIT_WELCOME = "await welcome"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class ChannelKind(Enum):
    PRODUCER = "producer"
    SUBSCRIPTION = "subscription"
    QUEUE = "queue"


class ChannelState(Enum):
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


# ── the tables ────────────────────────────────────────────────────────────────────────────────────

Types: TypeAlias = frozenset[int]


def _types(*kinds: FrameType) -> Types:
    return frozenset(int(kind) for kind in kinds)


_NOTHING = _types()

_CLIENT_OPEN = _types(
    T.PING, T.PONG, T.GOODBYE, T.ERROR, T.REQUEST, T.FETCH,
    T.OPEN_PRODUCER, T.PUBLISH,
    T.SUBSCRIBE, T.CREDIT, T.PULL, T.UPDATE, T.REVOKED, T.COMMIT,
    T.OPEN_QUEUE, T.LEASE, T.SETTLE, T.QUEUE_CREDIT,
    T.CLOSE,
)  # fmt: skip
_BROKER_OPEN = _types(
    T.PING, T.PONG, T.GOODBYE, T.ERROR, T.RESPONSE, T.FETCHED,
    T.PRODUCER_OPENED, T.CONFIRM,
    T.SUBSCRIBED, T.PULLED, T.DELIVER, T.ASSIGNED, T.REVOKE,
    T.QUEUE_OPENED, T.LEASED, T.LEASE_DONE, T.SETTLED,
    T.CLOSED,
)  # fmt: skip

MAY_SEND: Final[dict[tuple[Role, State], Types]] = {
    (Role.CLIENT, State.AWAIT_HELLO): _types(T.HELLO, T.ERROR),
    (Role.CLIENT, State.AWAIT_WELCOME): _types(T.ERROR),
    (Role.CLIENT, State.OPEN): _CLIENT_OPEN,
    (Role.CLIENT, State.CLOSED): _NOTHING,
    (Role.BROKER, State.AWAIT_HELLO): _types(T.ERROR, T.GOODBYE),
    (Role.BROKER, State.AWAIT_WELCOME): _types(T.WELCOME, T.ERROR, T.GOODBYE),
    (Role.BROKER, State.OPEN): _BROKER_OPEN,
    (Role.BROKER, State.CLOSED): _NOTHING,
}
"""Types that a side may send in a state of the connection. CLOSING is in the two tables that
follow.
"""

AFTER_OWN_GOODBYE: Final[dict[Role, Types]] = {
    Role.CLIENT: _types(T.PING, T.PONG, T.ERROR),
    Role.BROKER: _BROKER_OPEN - _types(T.GOODBYE, T.PRODUCER_OPENED, T.SUBSCRIBED, T.QUEUE_OPENED),
}
"""After its own goodbye a side opens nothing any more; a broker still finishes running work."""

AFTER_PEERS_GOODBYE: Final[dict[Role, Types]] = {
    Role.CLIENT: _CLIENT_OPEN - _types(T.OPEN_PRODUCER, T.SUBSCRIBE, T.OPEN_QUEUE, T.PUBLISH),
    Role.BROKER: _BROKER_OPEN,
}
"""Binds the sender alone: frames that were under way before it read the goodbye are no
violation.
"""

ON_CONTROL_CHANNEL: Final[dict[Role, Types]] = {
    Role.CLIENT: _types(T.HELLO, T.PING, T.PONG, T.GOODBYE, T.ERROR, T.REQUEST, T.FETCH),
    Role.BROKER: _types(T.WELCOME, T.PING, T.PONG, T.GOODBYE, T.ERROR, T.RESPONSE, T.FETCHED),
}

OPENS: Final[dict[int, ChannelKind]] = {
    int(T.OPEN_PRODUCER): ChannelKind.PRODUCER,
    int(T.SUBSCRIBE): ChannelKind.SUBSCRIPTION,
    int(T.OPEN_QUEUE): ChannelKind.QUEUE,
}

ON_CHANNEL: Final[dict[tuple[Role, ChannelKind, ChannelState], Types]] = {
    (Role.CLIENT, ChannelKind.PRODUCER, ChannelState.OPENING): _types(T.CLOSE),
    (Role.CLIENT, ChannelKind.PRODUCER, ChannelState.OPEN): _types(T.PUBLISH, T.CLOSE),
    (Role.CLIENT, ChannelKind.PRODUCER, ChannelState.CLOSING): _NOTHING,
    (Role.BROKER, ChannelKind.PRODUCER, ChannelState.OPENING): _types(T.PRODUCER_OPENED, T.ERROR),
    (Role.BROKER, ChannelKind.PRODUCER, ChannelState.OPEN): _types(T.CONFIRM, T.ERROR),
    (Role.BROKER, ChannelKind.PRODUCER, ChannelState.CLOSING): _types(
        T.PRODUCER_OPENED, T.CONFIRM, T.ERROR, T.CLOSED
    ),
    (Role.CLIENT, ChannelKind.SUBSCRIPTION, ChannelState.OPENING): _types(T.CLOSE),
    (Role.CLIENT, ChannelKind.SUBSCRIPTION, ChannelState.OPEN): _types(
        T.CREDIT, T.PULL, T.UPDATE, T.REVOKED, T.COMMIT, T.CLOSE
    ),
    (Role.CLIENT, ChannelKind.SUBSCRIPTION, ChannelState.CLOSING): _NOTHING,
    (Role.BROKER, ChannelKind.SUBSCRIPTION, ChannelState.OPENING): _types(T.SUBSCRIBED, T.ERROR),
    (Role.BROKER, ChannelKind.SUBSCRIPTION, ChannelState.OPEN): _types(
        T.PULLED, T.DELIVER, T.ASSIGNED, T.REVOKE, T.RESPONSE, T.ERROR
    ),
    (Role.BROKER, ChannelKind.SUBSCRIPTION, ChannelState.CLOSING): _types(
        T.SUBSCRIBED, T.PULLED, T.DELIVER, T.ASSIGNED, T.REVOKE, T.RESPONSE, T.ERROR, T.CLOSED
    ),
    (Role.CLIENT, ChannelKind.QUEUE, ChannelState.OPENING): _types(T.CLOSE),
    (Role.CLIENT, ChannelKind.QUEUE, ChannelState.OPEN): _types(T.LEASE, T.SETTLE, T.QUEUE_CREDIT, T.CLOSE),
    (Role.CLIENT, ChannelKind.QUEUE, ChannelState.CLOSING): _NOTHING,
    (Role.BROKER, ChannelKind.QUEUE, ChannelState.OPENING): _types(T.QUEUE_OPENED, T.ERROR),
    (Role.BROKER, ChannelKind.QUEUE, ChannelState.OPEN): _types(T.LEASED, T.LEASE_DONE, T.SETTLED, T.ERROR),
    (Role.BROKER, ChannelKind.QUEUE, ChannelState.CLOSING): _types(
        T.QUEUE_OPENED, T.LEASED, T.LEASE_DONE, T.SETTLED, T.ERROR, T.CLOSED
    ),
}
"""Types that a side may send on a channel. In CLOSING the broker's frames from before it read CLOSE
are still under way.
"""

STATE_CHANGING: Final = _types(
    T.HELLO, T.WELCOME, T.PING, T.GOODBYE, T.ERROR, T.CLOSE, T.CLOSED,
    T.OPEN_PRODUCER, T.PRODUCER_OPENED, T.SUBSCRIBE, T.SUBSCRIBED, T.OPEN_QUEUE, T.QUEUE_OPENED,
)  # fmt: skip
"""The types that change a state; all others pass."""

MAX_PAYLOAD_BYTES: Final[dict[int, int]] = {int(T.SETTLE): 256 << 10}
"""Types with a limit of their own: a SETTLE of the size of a frame would decode to hundreds of
megabytes of small lists.
"""
