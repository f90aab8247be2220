"""What an open stream takes of memory, with 500 of them open at once in one process.

    python -m benchmarks.open_streams

How much the resident memory of a server grows until 500 streams have sent half of a message of 200 words: with the
middleware and without, and of the proxy with tracing on and off. A few streams before load what is loaded once.
"""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.load import Server, agent, proxy, receiver

STREAMS = 500
WARMING = 20


async def _open(port: int, number: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"threadId": f"t{number}", "runId": f"r{number}", "messages": []}).encode()
    head = "POST /half/200 HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    received = b""
    while b"word 99 " not in received:
        received = received[-20:] + await reader.read(65536)
    return writer


async def _grown(server: Server, streams: int) -> int:
    """How many bytes the server grows while so many streams are open."""
    before = server.memory()
    writers = await asyncio.gather(*(_open(server.port, number) for number in range(streams)))
    grown = server.memory() - before
    for writer in writers:
        writer.close()
    return grown


def stream_kib(server: Server) -> float:
    """KiB an open stream takes."""
    asyncio.run(_grown(server, WARMING))
    time.sleep(3)
    return asyncio.run(_grown(server, STREAMS)) / STREAMS / 1024


def main() -> None:
    """Measure all."""
    with receiver() as received:
        found = {}
        for way in ("bare", "middleware"):
            with agent(way, received) as server:
                found[way] = stream_kib(server)
        with agent("bare", received) as upstream:
            for traced in (False, True):
                with proxy(upstream, received, traced=traced) as server:
                    found[f"proxy, tracing {'on' if traced else 'off'}"] = stream_kib(server)
    for way, kib in found.items():
        print(f"{way:24} {kib:6.1f} KiB an open stream")


if __name__ == "__main__":
    main()
