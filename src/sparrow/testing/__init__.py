"""A real broker in a test, in a few milliseconds and without containers.

    with sparrow.testing.broker() as broker:
        client = sparrow.sync.connect(broker.url)

With pytest the fixtures `sparrow_broker` and `sparrow_topic` are there as soon as the package is
installed. Nothing of the broker is imported before one is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sparrow.testing.running_broker import RunningBroker

__all__ = ["broker"]


def broker(
    *, process: bool = False, data_dir: str | None = None, **options: object
) -> AbstractContextManager[RunningBroker]:
    """Run a broker on a free port for the duration of a `with` block.

    Args:
        process: run it in a separate process, so that `kill()` is a real kill -9; otherwise in a
            thread of this process, which starts faster.
        data_dir: where the data is and stays; None: a temporary directory that is removed at the
            end.
        options: those of `sparrow serve`, by the names of `sparrow.server.config.ServerConfig`,
            such as `default_partitions=1` or `idle_timeout_ms="5s"`.

    Raises:
        InvalidConfig: an option that does not exist, or a wrong value.
        SparrowError: the broker did not start.
    """
    from sparrow.testing.running_broker import running

    return running(process=process, data_dir=data_dir, options=options)
