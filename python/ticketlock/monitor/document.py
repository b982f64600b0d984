"""Snapshots as `ticketlock.snapshot/1` documents, and back without loss."""

from __future__ import annotations

import functools
import json
import math
import types
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from . import model, raw
from .model import LockRow, Snapshot, Waits, display_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Convert = Callable[[Any], Any]

SCHEMA = "ticketlock.snapshot/1"

# Fields that may be negative.
_SIGNED = ("spin_score",)
# Counters have 64 bits, sums of them a few more; what is larger was never counted, and might be no float.
_LIMIT = 1 << 128


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The document as plain objects. Keys are the fields of the rows; waits are under `wait_ns`.

    `label`, how a lock is called, is there for readers that do not know our rules and is not read back.
    """
    return {"schema": SCHEMA, **_writer(Snapshot)(snapshot)}


def dumps(snapshot: Snapshot) -> str:
    """The document as one line of strict JSON in ASCII, ending in a newline."""
    return json.dumps(to_json(snapshot), allow_nan=False) + "\n"


def from_json(document: Any) -> Snapshot:
    """The snapshot of a document; keys that are unknown here are ignored.

    ValueError if it is none, with the place in the document, or with both versions if it has another one.
    """
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise ValueError(f"not a {SCHEMA} document: it has no schema")
    if document["schema"] != SCHEMA:
        raise ValueError(f"a document of schema {document['schema'][:80]!a}, where only {SCHEMA} is understood")
    try:
        snapshot: Snapshot = _reader(Snapshot)(document)
    except _WrongError as wrong:
        raise ValueError(f"document{''.join(reversed(wrong.path))}: {wrong}") from None
    return snapshot


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Types of the fields or keys; the modules name them to type checkers only."""
    return get_type_hints(kind, {**vars(raw), **vars(model)})


@functools.cache
def _keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Fields of a row with their keys in the document."""
    hints = _hints(kind)
    return tuple((field.name, "wait_ns" if hints[field.name] is Waits else field.name) for field in fields(kind))


@functools.cache
def _writer(kind: Any) -> Convert:
    """A function that makes plain objects of a value of type `kind`."""
    if is_dataclass(kind):
        return _row_writer(kind)  # type: ignore[arg-type]
    if is_typeddict(kind) or get_origin(kind) is dict:
        return dict
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if item is int:
            return list
        one = _writer(item)
        return lambda values: [one(value) for value in values]
    raise TypeError(kind)


def _row_writer(kind: type) -> Convert:
    hints = _hints(kind)
    keys = _keys(kind)
    names = [key for _, key in keys]
    values = attrgetter(*(name for name, _ in keys))
    deep = [(key, _writer(hints[name])) for name, key in keys if not _simple(hints[name])]

    def write(row: Any) -> dict[str, Any]:
        plain = dict(zip(names, values(row), strict=True))
        for key, convert in deep:
            plain[key] = convert(plain[key])
        if kind is LockRow:
            plain["label"] = display_name(row)
        return plain

    return write


def _simple(kind: Any) -> bool:
    return kind in (int, float, bool, str) or get_origin(kind) in (types.UnionType, Union, Literal)


class _WrongError(Exception):
    """Something in a document is not what it should be; `path` leads to it from the inside out."""

    def __init__(self, expected: str, value: Any) -> None:
        shown = ascii(value) if isinstance(value, (str, bool, float, types.NoneType)) else type(value).__name__
        super().__init__(f"{expected} expected, not {shown[:80]}")
        self.path: list[str] = []


@functools.cache
def _reader(kind: Any) -> Convert:
    """A function that checks and converts what stands for a value of type `kind`."""
    if is_dataclass(kind):
        return _row_reader(kind)  # type: ignore[arg-type]
    if is_typeddict(kind):
        return _object_reader(kind, tuple((name, name) for name in _hints(kind)))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        one = _reader(arguments[0])
        return lambda value: None if value is None else one(value)
    if origin is Literal:
        return _choice(arguments)
    if origin is tuple:
        return _naturals if arguments[0] is int else _list(_reader(arguments[0]))
    if origin is dict:
        return _dict(_reader(arguments[1]))
    simple: dict[Any, Convert] = {int: _natural, float: _number, bool: _truth, str: _text}
    return simple[kind]


def _row_reader(kind: type) -> Convert:
    values = _object_reader(kind, _keys(kind))
    checks: dict[type, Convert] = {Waits: _check_waits, model.Cycle: _check_cycle}
    check = checks.get(kind)

    def read(value: Any) -> Any:
        row = kind(**values(value))
        if check is not None:
            check(row)
        return row

    return read


def _object_reader(kind: type, keys: tuple[tuple[str, str], ...]) -> Convert:
    hints = _hints(kind)
    readers = [(name, key, _integer if name in _SIGNED else _reader(hints[name])) for name, key in keys]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _WrongError("an object", value)
        values = {}
        for name, key, reader in readers:
            if key not in value:
                raise _WrongError(f"a key {key!r}", value)
            try:
                values[name] = reader(value[key])
            except _WrongError as wrong:
                wrong.path.append(f".{key}")
                raise
        return values

    return read


def _check_waits(waits: Waits) -> None:
    if len(waits.log2) > 64:
        raise _WrongError("at most 64 classes", list(waits.log2))


def _check_cycle(cycle: model.Cycle) -> None:
    if not len(cycle.threads) == len(cycle.locks) > 0:
        raise _WrongError("as many locks as threads", list(cycle.locks))


def _choice(choices: tuple[Any, ...]) -> Convert:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _WrongError("one of " + ", ".join(choices), value)
        return value

    return read


def _list(one: Convert) -> Convert:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _WrongError("a list", value)
        items = []
        for item in value:
            try:
                items.append(one(item))
            except _WrongError as wrong:
                wrong.path.append(f"[{len(items)}]")
                raise
        return tuple(items)

    return read


def _dict(one: Convert) -> Convert:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongError("an object", value)
        return {key: one(item) for key, item in value.items()}

    return read


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) >= _LIMIT:
        raise _WrongError("a whole number", value)
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LIMIT:
        raise _WrongError("a whole number from 0 on", value)
    return value


_naturals_one_by_one = _list(_natural)


def _naturals(value: Any) -> Any:
    if isinstance(value, list) and {*map(type, value)} <= {int} and (not value or (min(value) >= 0 and max(value) < _LIMIT)):
        return tuple(value)
    return _naturals_one_by_one(value)


def _number(value: Any) -> float:
    if type(value) is int and abs(value) < _LIMIT:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        raise _WrongError("a number", value)
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongError("true or false", value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongError("a text", value)
    return value
