"""docs/telemetry-format.md: its example reads what a process reports, and its tables say what the source says."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from segments import descriptors, eventually, needs_memfd, reader_of
from targets import WAIT, Target
from ticketlock import _lab

if TYPE_CHECKING:
    from collections.abc import Callable

    from ticketlock.monitor.raw import RawLock

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "telemetry-format.md"
SOURCES = ROOT / "rust" / "core" / "src" / "telemetry"

pytestmark = pytest.mark.skipif(not DOCUMENT.is_file(), reason="this is no source tree")

# --- the example -------------------------------------------------------------------------------------------------------------

# Contended locks: one that counted by itself before, one that is held and waited for all the time, and one that is gone.
QUARREL = f"""\
import threading, time, ticketlock
from ticketlock import _lab
plain = ticketlock.Lock()
for _ in range(5):
    with plain:
        pass
_lab.set_sites(True)
hot = ticketlock.Lock(name="häuser.lock")
cold = ticketlock.RLock(name="x" * 70)
def work(lock):
    for _ in range(20):
        with lock:
            time.sleep(0.0005)
def quarrel(lock):
    threads = [threading.Thread(target=work, args=(lock,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
quarrel(plain)
quarrel(hot)
quarrel(cold)
quarrel(ticketlock.TicketLock())
with cold:
    given_up = threading.Thread(target=cold.acquire, kwargs={{"timeout": 0.02}})
    given_up.start()
    given_up.join()
hot.acquire()
threading.Thread(target=work, args=(hot,), daemon=True).start()
time.sleep(0.05)
{WAIT}
"""

# Two threads that go on quarrelling.
BUSY = f"""\
import threading, time, ticketlock
busy = ticketlock.Lock(name="busy")
def work():
    while True:
        with busy:
            time.sleep(0.0002)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
{WAIT}
"""

KINDS = {1: "Lock", 2: "RLock", 3: "TicketLock"}


def example() -> str:
    """The document's one program."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert isinstance(program, str)
    return program


def printed(program: str, pid: int) -> list[dict[str, Any]]:
    """What the program prints about a process. It finds nothing but the standard library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(pid)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def ours(pid: int) -> list[dict[str, Any]]:
    """The same by our own reader."""
    with reader_of(pid) as reader:
        raw = reader.sample(100_000)

    def row(lock: RawLock) -> dict[str, Any]:
        site = raw["sites"][lock["site"]] if lock["site"] else None
        counters = dict(lock["counters"])
        classes = counters.pop("wait_ns_log2")
        assert isinstance(classes, list)
        return {
            "id": lock["id"],
            # The example shows no sign that a name was cut.
            "name": (lock["name"] or "").removesuffix("…"),
            "kind": lock["kind"],
            "made_at": site and f"{site['path']}:{site['line']}",
            "owner": lock["owner"] or 0,
            "waiters": lock["waiters"],
            "waiters_max": lock["waiters_max"],
            "wait_ns": counters.pop("wait_ns_sum"),
            "wait_ns_log2": classes + [0] * (40 - len(classes)),
            **counters,
        }

    return sorted(map(row, raw["locks"]), key=lambda row: int(row["id"]))


def theirs(program: str, pid: int) -> list[dict[str, Any]]:
    rows = printed(program, pid)
    return sorted(({**row, "kind": KINDS[row["kind"]]} for row in rows), key=lambda row: int(row["id"]))


@needs_memfd
def test_the_example_reads_what_our_reader_reads() -> None:
    with Target(QUARREL) as target:

        def waited_for() -> bool:
            return any(row["waiters"] == 1 for row in ours(target.pid))

        eventually(waited_for, "the waiter")
        mine = ours(target.pid)
        assert theirs(example(), target.pid) == mine
        # It went through the motions.
        rows = {row["name"]: row for row in mine}
        hot, cold = rows["häuser.lock"], rows["x" * 63]
        assert (hot["made_at"], hot["acquisitions"], hot["waiters"], hot["kind"]) == ("<string>:8", 61, 1, "Lock")
        assert hot["owner"] != 0
        assert min(hot["contended"], hot["wait_ns"], hot["wait_ns_max"], hot["waiters_max"]) > 0
        assert (cold["acquisitions"], cold["timeouts"], cold["owner"], cold["kind"]) == (61, 1, 0, "RLock")
        assert (rows[""]["made_at"], rows[""]["acquisitions"]) == (None, 65)
        assert sum(cold["wait_ns_log2"]) == cold["contended"] > 0


@needs_memfd
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("count[3] + lock[7]", "count[3]"),
        ("count[8:48]", "count[9:49]"),
        ("lock[2] + lock[0]", "lock[0]"),
        ("lock[8:16]", "lock[9:17]"),
        ("lock[5] >> 32)", "(lock[5] >> 32) - 1)"),
        ('"owner": lock[1]', '"owner": lock[2]'),
    ],
)
def test_an_example_that_is_wrong_is_found(right: str, wrong: str) -> None:
    assert example().count(right) == 1
    with Target(QUARREL) as target:
        assert theirs(example().replace(right, wrong), target.pid) != ours(target.pid)


@needs_memfd
def test_the_example_reads_a_process_that_goes_on() -> None:
    counted = ("acquisitions", "contended", "wait_ns", "wait_ns_max", "parks")
    with Target(BUSY) as target:
        for _ in range(3):
            before, between, after = (read() for read in (ours_of(target), theirs_of(target), ours_of(target)))
            ((one,), (two,), (three,)) = before, between, after
            assert one["name"] == two["name"] == three["name"] == "busy"
            for key in counted:
                assert one[key] <= two[key] <= three[key], key
            assert one["contended"] < three["contended"], "nothing went on"


def ours_of(target: Target) -> Callable[[], list[dict[str, Any]]]:
    return lambda: ours(target.pid)


def theirs_of(target: Target) -> Callable[[], list[dict[str, Any]]]:
    return lambda: theirs(example(), target.pid)


def put(word: int, value: int) -> Callable[[bytearray], None]:
    def change(head: bytearray) -> None:
        struct.pack_into("=Q", head, word * 8, value & (1 << 64) - 1)

    return change


# Entry n of the section table begins at word 64 + 8 n: kind, offset, stride, capacity, used.
@needs_memfd
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(put(0, 0), id="magic"),
        pytest.param(put(1, 2 << 32), id="major"),
        pytest.param(put(2, 0x0807060504030201), id="order"),
        pytest.param(put(3, 8), id="length"),
        pytest.param(put(4, 1 << 40), id="size"),
        pytest.param(put(5, 0), id="no sections"),
        pytest.param(put(65, 0), id="offset in the header"),
        pytest.param(put(73, 4097), id="odd offset"),
        pytest.param(put(73, -8), id="offset that overflows"),
        pytest.param(put(74, 8), id="short records"),
        pytest.param(put(74, 1 << 20), id="long records"),
        pytest.param(put(74, 113 * 8 - 4), id="odd records"),
        pytest.param(put(75, 1 << 60), id="capacity"),
        pytest.param(put(72, 99), id="no locks"),
        pytest.param(put(98, 8), id="wide strings"),
    ],
)
def test_what_our_reader_refuses_the_example_refuses(change: Callable[[bytearray], None], tmp_path: Path) -> None:
    (own,) = descriptors()
    with open(own, "rb") as segment:
        head, length = bytearray(segment.read(4096)), os.fstat(segment.fileno()).st_size
    program: dict[str, Any] = {"__name__": "example"}
    exec(example(), program)
    copy = tmp_path / "segment"

    def written() -> int:
        copy.write_bytes(head)
        os.truncate(copy, length)
        return os.open(copy, os.O_RDONLY)

    descriptor = written()
    try:
        # Without locks, as everything after the header is zero: good so far.
        assert program["locks"](descriptor) == _lab.SegmentReader(descriptor).sample()["locks"] == []
        # Numbers that are too large are cut.
        put(76, 1 << 63)(head)
        put(5, 1 << 63)(head)
        os.close(descriptor)
        descriptor = written()
        _lab.SegmentReader(descriptor)
        program["sections"](descriptor)
        change(head)
        os.close(descriptor)
        descriptor = written()
        with pytest.raises(ValueError):  # noqa: PT011 - any
            _lab.SegmentReader(descriptor)
        with pytest.raises(ValueError):  # noqa: PT011 - any
            program["locks"](descriptor)
    finally:
        os.close(descriptor)


# --- the tables --------------------------------------------------------------------------------------------------------------

# Names by where they stand: a module or an enum, "" for the file itself.
Names = dict[str, dict[str, int]]

needs_sources = pytest.mark.skipif(not SOURCES.is_dir(), reason="this is no source tree")

CONSTANT = re.compile(r"pub const (\w+): (?:usize|u32|u64) = (.+);")
VARIANT = re.compile(r"(\w+) = (\d+),")


def value_of(expression: str, known: dict[str, int]) -> int:
    """Of a constant: numbers, sums, products, shifts, and constants above it."""
    if text := re.fullmatch(r'u64::from_ne_bytes\(\*b"(.{8})"\)', expression):
        return int.from_bytes(text[1].encode(), sys.byteorder)
    expression = re.sub(r"\b(\d\w*)", lambda number: number[1].replace("_", ""), expression)
    expression = re.sub(r"\b[A-Za-z_]\w*", lambda name: str(known[name[0]]), expression)
    assert re.fullmatch(r"[\dxA-Fa-f+*<() ]+", expression), expression
    value: int = eval(expression, {"__builtins__": {}})
    return value


def declared(source: str) -> Names:
    """The public constants and the numbered variants of a file, comments and tests left out."""
    found: Names = {"": {}}
    later: list[tuple[str, str, str]] = []
    scope = ""
    for line in source.partition("#[cfg(test)]")[0].splitlines():
        code = line.split("//")[0].strip()
        if opened := re.match(r"pub (?:mod|enum) (\w+) \{", line):
            scope = opened[1]
        elif line == "}":
            scope = ""
        elif constant := CONSTANT.fullmatch(code):
            later.append((scope, constant[1], constant[2]))
        elif variant := VARIANT.fullmatch(code):
            later.append((scope, variant[1], variant[2]))
        else:
            # `SECTIONS` is a list, functions are no constants; anything else is a form that this does not know.
            assert not code.startswith("pub const ") or code.startswith(("pub const SECTIONS: [", "pub const fn")), line
    for _ in range(len(later)):
        # Constants may stand before those that they are made of.
        for scope, name, expression in later:
            known = found.setdefault(scope, {})
            try:
                known[name] = value_of(expression, {**found[""], **known})
            except KeyError:
                continue
    assert sum(map(len, found.values())) == len(later), "a constant is made of something unknown"
    return {scope: names for scope, names in found.items() if names}


def in_source(layout: str | None = None) -> Names:
    """All that the document's tables are about."""
    names = declared(layout or (SOURCES / "layout.rs").read_text(encoding="utf-8"))
    for file, enum in (("threads.rs", "Doing"), ("events.rs", "Outcome")):
        (text,) = re.findall(
            rf"^pub enum {enum} \{{$.*?^\}}$", (SOURCES / file).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
        names |= declared(text)
    return names


ROW = re.compile(r"\| (0x[0-9A-Fa-f]+|\d+) \| `(\w+)` \|.*")


def in_document(text: str) -> Names:
    """The tables whose columns begin with a number and a name.

    A heading or the line above a table says whose they are: "## Locks: `lock`", "Kinds (`Kind`):".
    """
    found: Names = {}
    scope, section, table = "", "", False
    for line in text.partition("## A reader")[0].splitlines():
        if heading := re.fullmatch(r"##+ .*", line):
            named = re.search(r": `(\w+)`$", heading[0])
            scope = section = named[1] if named else ""
        elif named := re.fullmatch(r"[^|]*\(`(\w+)`\):", line):
            scope = named[1]
        elif line.startswith(("| word | name |", "| value | name |")):
            table = True
        elif not line.startswith("|"):
            # A table's end ends its own name, not that of the section.
            scope, table = section if table else scope, False
        elif table and not line.startswith("|---"):
            row = ROW.fullmatch(line)
            assert row, f"not a number and a name: {line}"
            names = found.setdefault(scope, {})
            assert row[2] not in names, f"{scope} has two {row[2]}"
            names[row[2]] = int(row[1], 0)
    return found


# Constants of the file itself, which the document has among the header's; and a word that is a text.
TOP = ("MAJOR", "MINOR", "HEADER_BYTES", "NAME_WORDS")


def differences(document: str, layout: str | None = None) -> list[str]:
    """What the tables and the source do not agree about."""
    source, tables = in_source(layout), in_document(document)
    top = source.pop("")
    header = tables.get("header", {})
    found = [f"{name}: {header.pop(name, None)} and {top[name]}" for name in TOP if header.get(name) != top[name]]
    for name in TOP:
        header.pop(name, None)
    if top.keys() != {*TOP, "MAGIC", "BYTE_ORDER"}:
        found.append(f"constants of the file: {sorted(top)}")
    values = (f"`{top['MAGIC'].to_bytes(8, sys.byteorder).decode()}`", f"`{top['BYTE_ORDER']:#018x}`")
    found += [f"{value} is not in the document" for value in values if value not in document]
    for scope in sorted(source.keys() | tables.keys()):
        of_source, of_tables = source.get(scope, {}), tables.get(scope, {})
        found += [
            f"{scope}::{name}: {of_tables.get(name)} in the document, {of_source.get(name)} in the source"
            for name in sorted(of_source.keys() | of_tables.keys())
            if of_source.get(name) != of_tables.get(name)
        ]
    return found


@needs_sources
def test_the_tables_say_what_the_source_says() -> None:
    assert differences(DOCUMENT.read_text(encoding="utf-8")) == []


@needs_sources
def test_all_is_compared() -> None:
    modules = {"header", "flags", "counters", "lock", "site", "thread", "event"}
    assert in_source().keys() == modules | {"", "Section", "Kind", "Doing", "Outcome"}
    assert all(len(names) > 1 for names in in_source().values())


@needs_sources
@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("| 7 | `VAIN_NS` | ns | length", "| 8 | `VAIN_NS` | ns | length", "lock::VAIN_NS"),
        ("| 206 | `FLAGS` |", "| 206 | `FLAG` |", "thread::FLAG"),
        ("| 3 | `Interrupted` | by a signal's handler |\n", "", "Outcome::Interrupted"),
        ("| 9 | `Queue` |", "| 10 | `Queue` |", "Kind::Queue"),
        ("| 0x200 | `UNCOUNTED`", "| 0x400 | `UNCOUNTED`", "lock::UNCOUNTED"),
        ("| 0 | `MINOR`", "| 1 | `MINOR`", "MINOR"),
        ("`TKTLOCK1`", "`TKTLOCK2`", "`TKTLOCK1`"),
        ("| 8 | `BLAMES`", "| 9 | `BLAMES`", "counters::BLAMES"),
    ],
)
def test_a_document_that_drifts_is_found(right: str, wrong: str, what: str) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert right in document
    found = differences(document.replace(right, wrong))
    assert any(difference.startswith(what) for difference in found), found


@needs_sources
@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("pub const BASE: usize = 2;", "pub const BASE: usize = 3;", "lock::BASE"),
        ("pub const CLASSES: usize = 40;", "pub const CLASSES: usize = 41;", "counters::CLASSES"),
        ("pub const MINOR: u32 = 0;", "pub const MINOR: u32 = 1;", "MINOR"),
        ("pub const OUTCOME: usize = 5;", "pub const OUTCOME: usize = 5;\n    pub const LINE: usize = 6;", "event::LINE"),
        ("    Queue = 9,", "    Queue = 9,\n    Stack = 10,", "Kind::Stack"),
        ("pub const INTERNAL: u64 = 1 << 32;", "pub const INTERNAL: u64 = 1 << 33;", "site::INTERNAL"),
        ("pub const MAJOR: u32 = 1;", "pub const MAJOR: u32 = 1;\npub const MICRO: u32 = 1;", "constants of the file"),
    ],
)
def test_a_source_that_drifts_is_found(right: str, wrong: str, what: str) -> None:
    layout = (SOURCES / "layout.rs").read_text(encoding="utf-8")
    assert layout.count(right) == 1
    found = differences(DOCUMENT.read_text(encoding="utf-8"), layout.replace(right, wrong))
    assert any(difference.startswith(what) for difference in found), found


@needs_sources
def test_a_form_of_constants_that_is_new_is_found() -> None:
    with pytest.raises(AssertionError, match="pub const WORDS"):
        declared("pub mod lock {\n    pub const WORDS: u16 = 1;\n}\n")


@needs_sources
def test_the_shortest_event_is_as_said() -> None:
    shortest = declared((SOURCES / "events.rs").read_text(encoding="utf-8"))[""]["SHORTEST_NS"]
    assert f"waits of {shortest:,} ns (`SHORTEST_NS`)" in DOCUMENT.read_text(encoding="utf-8")
