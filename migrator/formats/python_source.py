"""Python source as bytes and as text: preserves encoding cookie, BOM and line ends."""

from __future__ import annotations

import codecs
import io
import tokenize
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceText:
    """Decoded source text with the information needed to encode it again."""

    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)


def encode(text: str) -> bytes:
    """The bytes of a file with this text: in the encoding that it declares, otherwise in UTF-8."""
    content = text.encode("utf-8", "replace")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content if encoding == "utf-8-sig" else text.encode(encoding)
    except (SyntaxError, UnicodeEncodeError):
        return content


def decode(source: bytes) -> SourceText:
    """Decode as Python would.

    Raises:
        SyntaxError: unknown or contradictory encoding, or NUL bytes, which no source has.
        UnicodeDecodeError: bytes that the encoding does not allow.
    """
    if b"\0" in source:
        raise SyntaxError("NUL bytes: UTF-16, or not text")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    bom = source.startswith(codecs.BOM_UTF8)
    if bom:
        source = source[len(codecs.BOM_UTF8) :]
        encoding = "utf-8"
    try:
        text = source.decode(encoding)
        kept = encoding == "utf-8" or text.encode(encoding) == source
    except LookupError:  # rot13 and others map text to text, or bytes to bytes
        raise SyntaxError(f"{encoding} is not an encoding for source code") from None
    if not kept:
        raise SyntaxError(
            f"the text does not survive a round trip through its encoding, {encoding}"
        )
    return SourceText(text, encoding, bom)
