"""Simulate a viewer of the live view: a connection that receives everything and draws nothing."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import msgspec
import viser
import websockets


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def look(address: str, until: asyncio.Event, received: list[int]) -> None:
    """Act like a browser: send the position of the camera, then receive everything."""
    camera = {
        "type": "ViewerCameraMessage",
        "wxyz": [1.0, 0.0, 0.0, 0.0],
        "position": [3.0, 3.0, 3.0],
        "fov": 1.0,
        "near": 0.1,
        "far": 100.0,
        "image_height": 600,
        "image_width": 800,
        "look_at": [0.0, 0.0, 0.0],
        "up_direction": [0.0, 0.0, 1.0],
    }
    protocol = websockets.Subprotocol(f"viser-v{viser.__version__}")
    async with websockets.connect(
        address.replace("http", "ws"), subprotocols=[protocol], max_size=None, compression=None
    ) as connection:
        await connection.send(msgspec.msgpack.encode(camera))
        while not until.is_set():
            with contextlib.suppress(TimeoutError):
                received.append(len(await asyncio.wait_for(connection.recv(), 0.5)))


@contextlib.contextmanager
def somebody_looks(address: str, received: list[int]) -> Iterator[None]:
    loop, until = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(look(address, until, received)))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join()
