"""A replay server that speaks the Messages API, and misbehaves on request: for tests, demos, and other clients.

    async with serve_recordings(["answer.sse"], fault="overloaded,times=1") as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="none")

On the command line it is ``turnstream serve``; docs/serve.md has the faults.
"""

from turnstream.serve.faults import FaultSpec, parse_faults
from turnstream.serve.recordings import Recording, read_recordings
from turnstream.serve.server import FAULT_HEADER, RECORDING_HEADER, ReplayServer, ServedRequest, serve_recordings

__all__ = [
    "FAULT_HEADER",
    "RECORDING_HEADER",
    "FaultSpec",
    "Recording",
    "ReplayServer",
    "ServedRequest",
    "parse_faults",
    "read_recordings",
    "serve_recordings",
]
