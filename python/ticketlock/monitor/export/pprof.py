"""pprof: a gzip of the profile.proto message, with as much of protobuf's encoding as it takes."""

from __future__ import annotations

import gzip
from typing import IO, TYPE_CHECKING

from ticketlock.monitor.model import display_name

from .stacks import charges, encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ticketlock.monitor.model import LockRow, Snapshot

    from .stacks import Charge

# Field numbers of profile.proto.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING_TABLE = 1, 2, 4, 5, 6
_DURATION_NANOS, _PERIOD_TYPE, _PERIOD, _COMMENT, _DEFAULT_SAMPLE_TYPE = 10, 11, 12, 13, 14

_WORD = (1 << 64) - 1
_INT64_MAX = (1 << 63) - 1


def write(snapshot: Snapshot, stream: IO[bytes]) -> None:
    """Contentions and delay by the line that waited, one sample for each line and lock, labelled with the lock.

    Labels: `lock`, how it is called, `kind`, `created`, its site, and `id`. No time stamp: the same snapshot gives the same
    bytes.
    """
    stream.write(gzip.compress(_Profile().encode(snapshot), mtime=0))


class _Profile:
    def __init__(self) -> None:
        self._strings = {"": 0}
        # Numbers of functions and of locations, from 1 on.
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[int, int], int] = {}

    def encode(self, snapshot: Snapshot) -> bytes:
        count = self._type("contentions", "count")
        delay = self._type("delay", "nanoseconds")
        samples = [self._sample(charge) for charge in charges(snapshot, "waiter")]
        process = snapshot.process
        comment = self._string(f"ticketlock {process['version']}, Python {process['python']}, pid {process['pid']}")
        functions, locations = self._function_table(), self._location_table()
        return b"".join(
            (
                _message(_SAMPLE_TYPE, count),
                _message(_SAMPLE_TYPE, delay),
                *(_message(_SAMPLE, sample) for sample in samples),
                *(_message(_LOCATION, location) for location in locations),
                *(_message(_FUNCTION, function) for function in functions),
                _number(_DURATION_NANOS, snapshot.interval_ns),
                _message(_PERIOD_TYPE, count),
                _number(_PERIOD, 1),
                _number(_COMMENT, comment),
                _number(_DEFAULT_SAMPLE_TYPE, self._string("delay")),
                # Last: all strings are known by now.
                *(_message(_STRING_TABLE, text.encode()) for text in self._strings),
            )
        )

    def _string(self, text: str) -> int:
        return self._strings.setdefault(encodable(text), len(self._strings))

    def _type(self, name: str, unit: str) -> bytes:
        return _number(1, self._string(name)) + _number(2, self._string(unit))

    def _sample(self, charge: Charge) -> bytes:
        function = self._functions.setdefault((charge.function, charge.path or ""), len(self._functions) + 1)
        location = self._locations.setdefault((function, charge.line or 0), len(self._locations) + 1)
        values = _varint(min(charge.contentions, _INT64_MAX)) + _varint(min(charge.delay_ns, _INT64_MAX))
        return b"".join((_message(1, _varint(location)), _message(2, values), *self._labels(charge.lock)))

    def _labels(self, lock: LockRow) -> Iterable[bytes]:
        texts = (("lock", display_name(lock)), ("kind", lock.kind), ("created", lock.site))
        for key, text in texts:
            if text is not None:
                yield _message(3, _number(1, self._string(key)) + _number(2, self._string(text)))
        if lock.id is not None:
            yield _message(3, _number(1, self._string("id")) + _number(3, min(lock.id, _INT64_MAX)))

    def _function_table(self) -> list[bytes]:
        table = []
        for (name, path), number in self._functions.items():
            text = self._string(name)
            table.append(b"".join((_number(1, number), _number(2, text), _number(3, text), _number(4, self._string(path)))))
        return table

    def _location_table(self) -> list[bytes]:
        return [
            _number(1, number) + _message(4, _number(1, function) + _number(2, line))
            for (function, line), number in self._locations.items()
        ]


def _varint(value: int) -> bytes:
    value &= _WORD
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    """A field of wire type 0; 0 is the default and left out."""
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    """A field of wire type 2."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content
