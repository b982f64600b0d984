"""What a lock is called in the source."""

import os

import pytest
from ticketlock.monitor.names import guess

CASES = [
    ("    self.lock = threading.Lock()", "Cache.__init__", "Cache.lock"),
    ("    self._lock: Lock = Lock()", "app.<locals>.Pool.__init__", "Pool._lock"),
    ("lock = Lock()", "<module>", "lock"),
    ("    lock = Lock()", "Registry", "Registry.lock"),
    ("        cls.guard = Lock()", "Base.make", "Base.guard"),
    ("pool.lock = Lock()", "setup", "pool.lock"),
    ("    done = Event()", "worker", "done"),
    ("    größe = Lock()", "f", "größe"),
    ("a, b = Lock(), Lock()", "<module>", None),
    ("    return Lock()", "f", None),
    ("with Lock():", "f", None),
    ("locks[key] = Lock()", "f", None),
    ("if lock == Lock():", "f", None),
    ("if (lock := Lock()):", "f", None),
    ("", "f", None),
]


@pytest.mark.parametrize(("line", "function", "name"), CASES)
def test_the_target_of_the_assignment(tmp_path, line, function, name):
    source = tmp_path / "source.py"
    source.write_text(f"first\n{line}\nlast", encoding="utf-8")
    assert guess(str(source), 2, function) == name


def test_what_is_not_there_or_no_file(tmp_path):
    assert guess(str(tmp_path / "missing.py"), 1, "f") is None
    assert guess(str(tmp_path), 1, "f") is None
    assert guess("<string>", 1, "f") is None
    assert guess("a\0b", 1, "f") is None
    source = tmp_path / "source.py"
    source.write_bytes(b"\xff\xfe lock = Lock()\nlock = Lock()" + b" " * 5_000)
    assert [guess(str(source), line, "f") for line in (0, 2, 3, 10**9)] == [None, "lock", None, None]
    assert guess("/source.py", 2, "f", root=str(tmp_path)) == "lock"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert guess(str(tmp_path / "pipe"), 1, "f") is None
