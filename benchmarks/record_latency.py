"""What ``turnstream record`` adds to the way of an event over loopback; upstream, proxy and client are three processes.

    python benchmarks/record_latency.py [EVENTS]

An upstream sends small events, one every 5 ms, each with the time in it; the client notes how old each is when it
comes, directly and through the proxy, in turn. All are on one machine, so there is one clock. Also the time from
the request to the answer's first byte.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlsplit

ROUNDS = 6
INTERVAL = 0.005
REQUEST = b"POST /v1/messages HTTP/1.1\r\nhost: bench\r\ncontent-length: 2\r\n\r\n{}"


async def upstream(events: int) -> None:
    """Answer every request with the same number of events; print the URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for _ in range(events):
                    event = b'event: ping\ndata: {"type":"ping","at":%d}\n\n' % time.perf_counter_ns()
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                    await writer.drain()
                    await asyncio.sleep(INTERVAL)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def ages(url: str) -> tuple[list[float], float]:
    """Of one answer: how old each event was, and how long the headers took; milliseconds."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    start = time.perf_counter_ns()
    writer.write(REQUEST)
    await reader.readuntil(b"\r\n\r\n")
    first = (time.perf_counter_ns() - start) / 1e6
    out: list[float] = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        chunk = await reader.readexactly(size + 2)
        now = time.perf_counter_ns()
        out += [(now - int(line.rpartition(b":")[2][:-1])) / 1e6 for line in chunk.split(b"\n") if b'"at":' in line]
    await reader.readexactly(2)
    writer.close()
    return out, first


async def measure(direct: str, proxied: str) -> None:
    """Print both ways beside each other."""
    found: dict[str, tuple[list[float], list[float]]] = {"direct": ([], []), "record": ([], [])}
    for number in range(ROUNDS + 1):
        for name, url in (("direct", direct), ("record", proxied)):
            each, first = await ages(url)
            if number:  # the first is to warm up
                found[name][0].extend(each)
                found[name][1].append(first)
    print("           p50     p99   first byte (ms)")
    for name, (each, firsts) in found.items():
        cuts = statistics.quantiles(each, n=100)
        print(f"{name:8} {cuts[49]:6.3f}  {cuts[98]:6.3f}  {statistics.median(firsts):6.3f}")


def main() -> None:
    """Run the three processes."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--upstream"]:
        asyncio.run(upstream(int(arguments[1])))
        return
    events = arguments[0] if arguments else "400"
    processes: list[subprocess.Popen[str]] = []

    def started(*command: str) -> str:
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    with tempfile.TemporaryDirectory() as folder:
        try:
            direct = started(__file__, "--upstream", events)
            options = ("--upstream", direct, "--dir", folder, "--quiet")
            proxied = started("-m", "turnstream", "record", *options)
            asyncio.run(measure(direct, proxied))
        finally:
            for process in processes:
                process.terminate()
                process.communicate()


if __name__ == "__main__":
    main()
