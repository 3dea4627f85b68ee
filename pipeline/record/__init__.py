"""A reverse proxy that records: any client's answers as recordings, transcripts and metrics (docs/record.md).

    async with record_proxy(upstream="https://api.anthropic.com", directory="recorded") as proxy:
        client = anthropic.AsyncAnthropic(base_url=proxy.url)

Bytes pass at once and unchanged; a recorder that is slow or fails never touches the client's stream. On the
command line it is ``turnstream record``.
"""

from turnstream.record.exchange import Exchange
from turnstream.record.proxy import RecordProxy, record_proxy
from turnstream.record.storing import DirectoryStore, Store, StoredFile

__all__ = ["DirectoryStore", "Exchange", "RecordProxy", "Store", "StoredFile", "record_proxy"]
