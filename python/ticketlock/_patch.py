"""Puts our locks where Python and its standard library look for theirs, and takes them away again.

What stands there afterwards is the native type itself, no wrapper and no function: unions, subclasses, `isinstance`, weak
references and errors are those of a type. Only patterns of files need somebody who looks at the caller (`Chooser`).
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
from typing import TYPE_CHECKING, Any

from ._core import Lock, RLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    Namespace = dict[str, Any]

# `threading` takes all of its locks from these; newer versions have more of them.
_LOCK_NAMES = ("allocate_lock", "allocate", "lock", "LockType")

# Not through `threading.Lock`, which this module replaces.
_change = _thread.allocate_lock()


class Patch:
    """A patch in place: which names were replaced, and what stood there."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self.include = include
        self.exclude = exclude
        # Standard locks that were there before, whose waits nobody sees.
        self.unseen = _standard_locks()
        self.replaced: list[tuple[Namespace, str, object, object]] = []

    def replace(self) -> None:
        """Replace the originals wherever a module of the standard library holds one, itself included."""
        originals = {id(value): value for value in (getattr(_thread, name, None) for name in _LOCK_NAMES) if value is not None}
        ours = {key: self._instead(Lock, value) for key, value in originals.items()}
        originals[id(_thread.RLock)] = _thread.RLock
        ours[id(_thread.RLock)] = self._instead(RLock, _thread.RLock)
        self._replace_in(vars(_thread), originals, ours)
        # Imported only now, it makes its own locks of ours.
        import threading

        # Before 3.15 a function of its own, which allows neither unions nor subclasses.
        if _plain(threading.RLock):
            originals[id(threading.RLock)] = threading.RLock
            ours[id(threading.RLock)] = self._instead(RLock, threading.RLock)
        for namespace in list(_standard_namespaces()):
            self._replace_in(namespace, originals, ours)

    def _instead(self, ours: type, standard: Any) -> object:
        return ours if not (self.include or self.exclude) else Chooser(ours, standard, _files(self.include, self.exclude))

    def _replace_in(self, namespace: Namespace, originals: dict[int, object], ours: dict[int, object]) -> None:
        for name, value in list(namespace.items()):
            if id(value) in originals:
                self.replaced.append((namespace, name, value, ours[id(value)]))
                namespace[name] = ours[id(value)]

    def undo(self) -> None:
        """Give every name back what it had, unless somebody else has replaced it since."""
        # By name, for modules that have taken ours since: what they would have taken then.
        usual: dict[str, object] = {}
        for namespace, name, original, ours in self.replaced:
            usual[name] = original
            if namespace.get(name) is ours:
                namespace[name] = original
        kinds = {id(ours) for _, _, _, ours in self.replaced}
        for namespace in list(_standard_namespaces()):
            for name, value in list(namespace.items()):
                if id(value) in kinds:
                    namespace[name] = usual.get(name) or usual["RLock" if _is_rlock(value) else "allocate_lock"]


_current: Patch | None = None
# Who has taken the place of a patch of ours since.
_successor: str | None = None


def patch(include: Sequence[str] | str = (), exclude: Sequence[str] | str = ()) -> bool:
    """Have locks made from now on be ours: `threading.Lock` and `RLock`, those of `_thread`, and in the standard library.

    `include` and `exclude` are patterns of files as in `fnmatch`; one without a slash means the file's name. Only locks that a
    file of `include` creates, and none of `exclude`, are ours then. A lock that the standard library makes (an Event's, a
    Queue's) belongs to its own file as well as to the file that asked for it.

    Returns whether locks are replaced now: not if TICKETLOCK_PATCH=0. Again with the same patterns, it does nothing.

    Raises RuntimeError if locks are replaced already with other patterns, or by gevent or eventlet.
    """
    global _current  # noqa: PLW0603
    if os.environ.get("TICKETLOCK_PATCH") == "0":
        return False
    wanted = (_patterns(include), _patterns(exclude))
    with _change:
        if _current is not None:
            if wanted == (_current.include, _current.exclude):
                return True
            raise RuntimeError(
                f"locks are replaced already, with include={_current.include} and exclude={_current.exclude}; "
                "call ticketlock.unpatch() first"
            )
        _refuse_green_threads()
        fresh = Patch(*wanted)
        try:
            fresh.replace()
        except BaseException:
            fresh.undo()
            raise
        _current = fresh
    return True


def unpatch() -> None:
    """Give all names back what they had. Locks made meanwhile go on working. Without a patch, it does nothing."""
    global _current  # noqa: PLW0603
    with _change:
        if _current is not None:
            _current.undo()
            _current = None


class Patched:
    """What `patched()` returns."""

    def __init__(self, include: Sequence[str] | str, exclude: Sequence[str] | str) -> None:
        self._patterns = (include, exclude)
        self._mine = False

    def __enter__(self) -> None:
        mine = _current is None
        self._mine = patch(*self._patterns) and mine

    def __exit__(self, *exc_info: object) -> None:
        if self._mine:
            unpatch()


def patched(include: Sequence[str] | str = (), exclude: Sequence[str] | str = ()) -> Patched:
    """A context in which locks are replaced, as `patch()` does it. A patch that is in place already stays when it ends."""
    return Patched(include, exclude)


def make_way(who: str) -> None:
    """Undo the patch for somebody who is about to replace locks too."""
    global _successor  # noqa: PLW0603
    if _current is not None:
        _successor = who
        unpatch()


def successor() -> str | None:
    """Who a patch has made way for, if it has."""
    return _successor


def unseen() -> int:
    """How many standard locks were there before the patch now in place; 0 without one."""
    return 0 if _current is None else _current.unseen


class Chooser:
    """Stands in for a lock type and makes ours or a standard one, by the file that asks.

    No type itself, so that it can answer for both: to `isinstance`, `|` and `class Mine(threading.RLock)`.
    """

    __slots__ = ("_files", "_ours", "_standard")

    def __init__(self, ours: type, standard: Any, files: Files) -> None:
        self._ours = ours
        self._standard = standard
        self._files = files

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = self._ours if self._files.chosen(sys._getframe(1)) else self._standard
        return kind(*args, **kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, (self._ours, _STANDARD_TYPES[self._ours is RLock]))

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, (self._ours, _STANDARD_TYPES[self._ours is RLock]))

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        return (self._ours,)

    def __or__(self, other: Any) -> Any:
        return self._ours | other

    def __ror__(self, other: Any) -> Any:
        return other | self._ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_named, ("RLock" if self._ours is RLock else "allocate_lock",))

    def __repr__(self) -> str:
        return f"<{self._ours.__module__}.{self._ours.__qualname__} or {self._standard!r}, by the file that asks>"


def _named(name: str) -> object:
    """What stands there now, where a pickled `Chooser` is loaded."""
    return getattr(_thread, name)


_STANDARD_TYPES: tuple[type, type] = (type(_thread.allocate_lock()), type(_thread.RLock()))


class Files:
    """Patterns of files, and what they say of those seen so far."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        # Here, where no lock of ours is being made.
        from fnmatch import fnmatch

        self._fnmatch = fnmatch
        self._include = include
        self._exclude = exclude
        self._seen: dict[str, tuple[bool, bool, bool]] = {}

    def chosen(self, frame: FrameType | None) -> bool:
        """Whether the lock that this frame creates is to be ours. Looks as far out as the standard library goes."""
        included = not self._include
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self._seen:
                self._seen[file] = (_matches(self._fnmatch, file, self._include), self._excluded(file), is_internal(file))
            asked_for, excluded, internal = self._seen[file]
            if excluded:
                return False
            included = included or asked_for
            if not internal:
                break
            frame = frame.f_back
        return included

    def _excluded(self, file: str) -> bool:
        return _matches(self._fnmatch, file, self._exclude)


_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def is_internal(file: str) -> bool:
    """Whether a file is of the standard library, or ours."""
    if file.startswith(("<frozen ", _OURS)):
        return True
    return file.startswith(_LIBRARY) and not file.startswith((_LIBRARY + "site-packages", _LIBRARY + "dist-packages"))


def _matches(fnmatch: Any, file: str, patterns: tuple[str, ...]) -> bool:
    # A file may be known by a path relative to a working folder.
    path = os.path.abspath(file) if not file.startswith("<") else file
    return any(fnmatch(path if "/" in pattern else os.path.basename(path), _absolute(pattern)) for pattern in patterns)


def _absolute(pattern: str) -> str:
    return pattern if "/" not in pattern or pattern.startswith(("/", "*")) else "*/" + pattern.removeprefix("./")


def _files(include: tuple[str, ...], exclude: tuple[str, ...]) -> Files:
    return Files(include, exclude)


def _patterns(given: Sequence[str] | str) -> tuple[str, ...]:
    patterns = (given,) if isinstance(given, str) else tuple(given)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"patterns of files are strings, not {type(pattern).__name__}")
    return patterns


def _plain(value: object) -> bool:
    """Whether this is `threading`'s own function, not what somebody else has put there."""
    return getattr(value, "__module__", None) == "threading" and type(value).__name__ == "function"


def _is_rlock(value: object) -> bool:
    return value is RLock or (type(value) is Chooser and value._ours is RLock)


def _standard_namespaces() -> Iterator[Namespace]:
    """The globals of all modules of the standard library that are loaded. Others may hold an original on purpose."""
    standard = sys.stdlib_module_names
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in standard and isinstance(module, type(sys)):
            yield vars(module)


def _standard_locks() -> int:
    return sum(type(thing) in _STANDARD_TYPES for thing in gc.get_objects())


def _refuse_green_threads() -> None:
    gevent = sys.modules.get("gevent.monkey")
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None and any(gevent.is_module_patched(name) for name in ("threading", "_thread", "thread")):
        who = "gevent"
    elif eventlet is not None and eventlet.is_monkey_patched("thread"):
        who = "eventlet"
    else:
        return
    raise RuntimeError(
        f"{who} has replaced the locks of `threading` by ones for its green threads, which cannot wait for ticketlock's: "
        f"all of them share one thread. Run the program without {who}'s patch of threads, or without ticketlock's."
    )
