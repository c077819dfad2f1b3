"""What `costate train --live` costs: the speed of one training run while somebody looks and while nobody does, in turns.

    python benchmarks/live_cost.py WalkerStand --rounds 4 --iterations 4

Who looks is a connection that receives everything and draws nothing: the cost of drawing is the browser's, on whatever machine that runs.
"""

import argparse
import asyncio
import contextlib
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import msgspec
import viser
import websockets


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def look(address: str, until: asyncio.Event, received: list[int]) -> None:
    """Be a browser to the server: say where the camera is, then take whatever comes."""
    camera = {
        "type": "ViewerCameraMessage", "wxyz": [1.0, 0.0, 0.0, 0.0], "position": [3.0, 3.0, 3.0], "fov": 1.0, "near": 0.1, "far": 100.0,
        "image_height": 600, "image_width": 800, "look_at": [0.0, 0.0, 0.0], "up_direction": [0.0, 0.0, 1.0],
    }  # fmt: skip
    protocol = websockets.Subprotocol(f"viser-v{viser.__version__}")
    async with websockets.connect(address.replace("http", "ws"), subprotocols=[protocol], max_size=None, compression=None) as connection:
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


def speeds(metrics: pathlib.Path) -> list[float]:
    return [json.loads(line)["training/sps"] for line in metrics.read_text().splitlines()] if metrics.exists() else []


def next_speeds(metrics: pathlib.Path, count: int) -> list[float]:
    """Of whole iterations from now on: the one under way is left out."""
    start = len(speeds(metrics)) + 1
    while len(found := speeds(metrics)) < start + count:
        time.sleep(0.2)
    return found[start : start + count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="WalkerStand")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [sys.executable, "-m", "costate.cli", "train", options.task, "--live", "--port", str(free_port()), "--out", str(run)]
        process = subprocess.Popen([*command, "--checkpoint-every", "5"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            address = next(found.group() for line in process.stdout if (found := re.search(r"http://\S+", line)))
            drain = threading.Thread(target=process.stdout.read, daemon=True)
            drain.start()
            next_speeds(run / "metrics.jsonl", 2)
            alone, watched, received = [], [], list[int]()
            for _ in range(options.rounds):
                alone.append(statistics.median(next_speeds(run / "metrics.jsonl", options.iterations)))
                with somebody_looks(address, received):
                    watched.append(statistics.median(next_speeds(run / "metrics.jsonl", options.iterations)))
        finally:
            process.terminate()
            process.wait()
    ratios = [1.0 - there / away for away, there in zip(alone, watched, strict=True)]
    print(f"{options.task}: {statistics.median(alone):,.0f} steps/s while nobody looks, {statistics.median(watched):,.0f} while somebody does")
    print(f"slower by {statistics.median(ratios):.1%} (median of {options.rounds} rounds: {', '.join(f'{ratio:.1%}' for ratio in ratios)})")
    print(f"{len(received):,} messages, {sum(received) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
