"""Parts in a temporary file: written by the process that read them, read back one at a time by the one that merges."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import IO

import msgspec
import numpy as np

from profiler.trace.read.part import Part
from profiler.trace.read.segment import MisfitError

Place = tuple[int, int, int]
"""Number of the segment; first byte and length in the file."""


def _pack(array: object) -> object:
    if not isinstance(array, np.ndarray):
        raise NotImplementedError
    return array.dtype.str, array.tobytes()


def _unpack(kind: type, packed: tuple[str, bytes]) -> object:
    return packed if kind is object else np.frombuffer(packed[1], packed[0])


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack)
_DECODER = msgspec.msgpack.Decoder(Part, dec_hook=_unpack)


def put(parts: Iterable[Part], file: IO[bytes]) -> list[Place]:
    """Writes the parts to the file, each as soon as it is there; where they stand. Raises OSError."""
    places: list[Place] = []
    at = 0
    for part in parts:
        data = _ENCODER.encode(part)
        file.write(data)
        places.append((part.number, at, len(data)))
        at += len(data)
    file.flush()
    return places


def get(file: IO[bytes], place: Place) -> Part:
    """The part at a place. Raises MisfitError where the file does not hold it."""
    _, at, size = place
    try:
        return _DECODER.decode(os.pread(file.fileno(), size, at))
    except (msgspec.MsgspecError, OSError) as broken:
        raise MisfitError from broken
