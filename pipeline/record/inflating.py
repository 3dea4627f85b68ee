"""Decompression for the recorder alone: the client gets what the upstream sent."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

__all__ = ["Inflater", "UnknownEncoding"]

_PIECE: Final = 64 * 1024
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS  # gzip or zlib


class UnknownEncoding(ValueError):
    """A content encoding that can't be read here."""


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Zlib:
    """gzip, zlib, or deflate without a header; members may follow one another."""

    def __init__(self) -> None:
        self._decoder: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decoder is None:
                # A zlib header's low nibble says deflate, gzip's first byte is 1F; else there is no header.
                plain = data[0] & 0x0F != 8 and data[0] != 0x1F
                self._decoder = zlib.decompressobj(-zlib.MAX_WBITS if plain else _ANY_HEADER)
            decoder = self._decoder
            while True:
                out = decoder.decompress(data, _PIECE)
                if out:
                    yield out
                data = decoder.unconsumed_tail
                if not data and len(out) < _PIECE:
                    break
            data = decoder.unused_data if decoder.eof else b""
            if decoder.eof:
                self._decoder = None


class _Brotli:
    def __init__(self) -> None:
        try:
            import brotli  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise UnknownEncoding("br needs the package brotli") from None
        self._decoder: Any = brotli.Decompressor()
        self._bounded = hasattr(self._decoder, "can_accept_more_data")  # from 1.2 on

    def feed(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        if not self._bounded:
            out = self._processed(data)
            if out:
                yield out
            return
        out = self._processed(data, output_buffer_limit=_PIECE)
        while out:
            yield out
            out = b"" if decoder.is_finished() else self._processed(b"", output_buffer_limit=_PIECE)

    def _processed(self, data: bytes, **limit: int) -> bytes:
        try:
            out: bytes = self._decoder.process(data, **limit)
        except Exception as error:  # noqa: BLE001 - its own class has changed its name
            raise zlib.error(str(error)) from None
        return out


_DECODERS: Final[dict[str, type[_Zlib | _Brotli]]] = {
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Zlib,
    "br": _Brotli,
}


class Inflater:
    """The bytes of a body without its content encodings.

    Args:
        encoding: the header ``content-encoding``, None without.

    Raises:
        UnknownEncoding: one of them can't be read.
    """

    def __init__(self, encoding: str | None) -> None:
        words = [word.strip().lower() for word in (encoding or "").split(",")]
        names = [word for word in words if word and word != "identity"]
        self._decoders: list[_Decoder] = []
        for name in reversed(names):
            make = _DECODERS.get(name)
            if make is None:
                raise UnknownEncoding("an unknown content encoding")
            self._decoders.append(make())

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decompressed bytes, in pieces of about 64 KiB at most: a small chunk may hold a lot.

        Raises:
            zlib.error: it isn't what its encoding says.
        """
        return self._through(0, data)

    def _through(self, number: int, data: bytes) -> Iterator[bytes]:
        if number == len(self._decoders):
            yield data
            return
        for piece in self._decoders[number].feed(data):
            yield from self._through(number + 1, piece)
