"""The machine while it is on: a server with all its frontends on real sockets, over a disk in
memory. Started by `host.MachineHost`.

Commands come as lines on the standard input: `power-off-after N`, `power-off`, `kill`, `fill N`,
`free`. When the input ends, the user of the machine is gone, and it ends, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading

from sparrow.server.ready import write_ready_file
from sparrow.server.run import loop_factory
from sparrow.server.server import Server
from sparrow.testing.running_broker import _config
from tests.crash.machine.disk import Disk
from tests.crash.machine.orders import KILLED, POWER_LOST, Orders
from tests.crash.machine.sqlite_vfs import sqlite_on
from tests.crash.machine.stores import stores_on


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        orders = Orders(**json.load(file))
    disk = _disk(orders)
    threading.Thread(target=_obey, args=(disk, orders), daemon=True).start()
    with sqlite_on(disk) as vfs, asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serve(orders, disk, vfs))
        finally:  # a broker that ends with an error leaves the disk as it is
            disk.save(orders.image_path)


def _disk(orders: Orders) -> Disk:
    disk = Disk(orders.seed, capacity_bytes=orders.capacity_bytes, longest_sync_s=orders.longest_sync_s)
    if os.path.exists(orders.image_path):
        with open(orders.image_path, "rb") as file:
            disk.load(file.read())
    if orders.is_freed:
        disk.taken_bytes = 0

    def power_off() -> None:
        disk.save(orders.image_path)
        os._exit(POWER_LOST)

    disk.at_power_off = power_off
    if orders.power_off_after is not None:
        disk.power_off_after(orders.power_off_after)
    return disk


async def _serve(orders: Orders, disk: Disk, vfs: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = Server(_config(orders.options), stores_on(disk, vfs))
    ready = await server.start()
    disk.stay_on()
    write_ready_file(orders.ready_path, ready)
    await stopped.wait()
    await server.stop()


def _obey(disk: Disk, orders: Orders) -> None:
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        if command == "power-off-after":
            disk.power_off_after(int(number))
        elif command == "power-off":
            disk.lose_power()
        elif command == "kill":
            _end_process(disk, orders)
        elif command == "fill":
            disk.fill(int(number))
        elif command == "free":
            disk.taken_bytes = 0
    os._exit(KILLED)


def _end_process(disk: Disk, orders: Orders) -> None:
    """End the process as kill -9 does: the kernel's cache, a part of the disk here, survives."""
    with disk._lock:
        disk.kill()
        disk.save(orders.image_path)
        os._exit(KILLED)


main()
