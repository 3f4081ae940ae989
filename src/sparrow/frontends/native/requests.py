"""The handling of REQUEST: the operations of `frontends/admin/operations.py`, by their names.
`docs/protocol.md` describes arguments and results.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.frontends.admin.operation import OperationContext
from sparrow.frontends.admin.operations import OPERATIONS

if TYPE_CHECKING:
    from sparrow.broker.access.authz import Principal
    from sparrow.frontends.native.context import NativeContext
    from sparrow.protocol.native.messages import Request

HANDLERS: Final = {each.name: each for each in OPERATIONS if each.is_native}
RECORDS_SHARE_OF_FRAME: Final = 0.5
"""The share of a frame that the records of one response may fill; the rest is for everything else
in it.
"""


async def handle_request(frontend: NativeContext, principal: Principal, request: Request) -> Any:
    """Return the result of a request.

    Raises:
        InvalidArgument: there is no such verb, or its arguments are wrong.
        SparrowError: the operation failed.
    """
    operation = HANDLERS.get(request.verb)
    if operation is None:
        raise InvalidArgument(f"There is no verb {request.verb[:80]!r}; there are {', '.join(HANDLERS)}.")
    try:
        arguments = msgspec.convert(request.arguments, operation.arguments)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidArgument(f"The arguments of {request.verb} are wrong: {error}.") from None
    context = OperationContext(
        frontend.broker,
        principal,
        frontend.connections,
        frontend.is_stopping,
        int(frontend.limits.max_frame_bytes * RECORDS_SHARE_OF_FRAME),
    )
    measures, started = frontend.measures, perf_counter()
    try:
        result = await operation.function(context, arguments)
    except SparrowError:
        measures.failed(request.verb)
        raise
    finally:
        measures.observe(request.verb, perf_counter() - started)
    return {} if result is None else result
