"""Files for other tools, read back by readers that share nothing with what wrote them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import monitor_fakes as fakes
import pytest
from monitor_fakes import counters, ident, lock, reading
from ticketlock.monitor.build import build
from ticketlock.monitor.export import FORMATS, chrome, collapsed, csv_export, pprof, prometheus, speedscope
from ticketlock.monitor.export.stacks import UNKNOWN, charges

if TYPE_CHECKING:
    from ticketlock.monitor.model import Snapshot

SNAPSHOTS = {
    "empty": build(fakes.empty(), None),
    "few": build(fakes.few(6), fakes.few(4)),
    "many": build(fakes.many(tick=4), fakes.many(tick=2)),
    "hostile": build(fakes.hostile(), None),
    "deadlock": build(fakes.deadlock(), None),
    **{f"rubbish-{seed}": build(fakes.rubbish(seed), None) for seed in range(40)},
}


@pytest.fixture(params=SNAPSHOTS.values(), ids=SNAPSHOTS.keys())
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    return request.param


def text_of(write: Any, *arguments: Any) -> str:
    stream = io.StringIO()
    write(*arguments, stream)
    # Every text fits into UTF-8.
    stream.getvalue().encode()
    return stream.getvalue()


def bytes_of(snapshot: Snapshot) -> bytes:
    stream = io.BytesIO()
    pprof.write(snapshot, stream)
    return stream.getvalue()


# The registry


def test_every_format_writes_every_snapshot(snapshot: Snapshot) -> None:
    for name, one in FORMATS.items():
        stream: Any = io.BytesIO() if one.binary else io.StringIO()
        assert one.write(snapshot, fakes.events(10), stream) is None, name
        assert one.needs in ("interval", "total", "events")
        assert one.suffix.startswith(".")
    assert set(FORMATS) == {"pprof", "speedscope", "collapsed", "chrome", "prometheus", "csv"}


# Charging waits to lines


@pytest.mark.parametrize("role", ["waiter", "holder"])
def test_charges_add_up(snapshot: Snapshot, role: Any) -> None:
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for charge in charges(snapshot, role):
        assert charge.contentions >= 0
        assert charge.delay_ns >= 0
        found[id(charge.lock)][0] += charge.contentions
        found[id(charge.lock)][1] += charge.delay_ns
    for one in snapshot.locks:
        assert found[id(one)] == [one.waits.count, one.waits.sum]


def test_waits_without_a_line_are_not_lost() -> None:
    few = SNAPSHOTS["few"]
    unknown = [charge for charge in charges(few, "waiter") if charge.function == UNKNOWN]
    assert {charge.lock.name for charge in unknown} == {"native.table", None}


# pprof


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            assert value < 1 << 64
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """A protobuf message as pairs of field number and number or bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key >> 3, "fields are numbered from 1 on"
        if key & 7 == 0:
            value: Any
            value, at = varint(data, at)
        else:
            assert key & 7 == 2, "no other wire type is in this message"
            size, at = varint(data, at)
            value = data[at : at + size]
            assert len(value) == size
            at += size
        found.append((key >> 3, value))
    return found


def packed(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def decoded(data: bytes) -> dict[str, Any]:
    """The profile, with all references looked up."""
    message: dict[int, list[Any]] = defaultdict(list)
    for number, value in fields(gzip.decompress(data)):
        message[number].append(value)
    assert set(message) <= {1, 2, 4, 5, 6, 10, 11, 12, 13, 14}
    strings = [text.decode("utf-8", "strict") for text in message[6]]
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)

    def kind(value: bytes) -> tuple[str, str]:
        parts = dict(fields(value))
        return strings[parts[1]], strings[parts[2]]

    functions = {}
    for value in message[5]:
        parts = dict(fields(value))
        functions[parts[1]] = (strings[parts.get(2, 0)], strings[parts.get(4, 0)])
    locations = {}
    for value in message[4]:
        parts = dict(fields(value))
        line = dict(fields(parts[4]))
        locations[parts[1]] = (*functions[line[1]], line.get(2, 0))
    assert 0 not in functions
    assert 0 not in locations
    samples = []
    for value in message[2]:
        one: dict[str, Any] = {"labels": {}}
        for number, part in fields(value):
            if number == 1:
                one["stack"] = [locations[location] for location in packed(part)]
            elif number == 2:
                one["values"] = packed(part)
            else:
                assert number == 3
                label = dict(fields(part))
                one["labels"][strings[label[1]]] = label[3] if 3 in label else strings[label.get(2, 0)]
        samples.append(one)
    return {
        "types": [kind(value) for value in message[1]],
        "samples": samples,
        "duration": message[10][0] if message[10] else 0,
        "period": (kind(message[11][0]), message[12][0]),
        "default": strings[message[14][0]],
        "comment": strings[message[13][0]],
    }


def test_pprof_decodes(snapshot: Snapshot) -> None:
    profile = decoded(bytes_of(snapshot))
    assert profile["types"] == [("contentions", "count"), ("delay", "nanoseconds")]
    assert profile["default"] == "delay"
    assert profile["period"] == (("contentions", "count"), 1)
    assert profile["duration"] == snapshot.interval_ns
    expected = list(charges(snapshot, "waiter"))
    assert len(profile["samples"]) == len(expected)
    for sample, charge in zip(profile["samples"], expected, strict=True):
        assert len(sample["stack"]) == 1
        assert sample["values"] == [min(charge.contentions, (1 << 63) - 1), min(charge.delay_ns, (1 << 63) - 1)]


def test_pprof_says_who_waited_for_what() -> None:
    profile = decoded(bytes_of(SNAPSHOTS["few"]))
    hot = [sample for sample in profile["samples"] if sample["labels"]["lock"] == "cache.lock"]
    assert [sample["stack"][0] for sample in hot] == [("get", "/srv/app/views.py", 120), ("put", "/srv/app/views.py", 171)]
    assert hot[0]["labels"] == {"lock": "cache.lock", "kind": "Lock", "created": "/srv/app/cache.py:88", "id": 1}
    assert sum(sample["values"][0] for sample in hot) == 8_000
    assert hot[0]["values"][1] / (hot[0]["values"][1] + hot[1]["values"][1]) == pytest.approx(120 / 164, rel=1e-6)
    assert "pid 4242" in profile["comment"]


def test_pprof_is_repeatable() -> None:
    data = bytes_of(SNAPSHOTS["many"])
    assert data == bytes_of(build(fakes.many(tick=4), fakes.many(tick=2)))
    assert data[4:8] == bytes(4), "gzip's time stamp"


# speedscope


def test_speedscope_is_as_its_format_demands(snapshot: Snapshot) -> None:
    document = json.loads(text_of(speedscope.write, snapshot))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
    assert len({json.dumps(frame, sort_keys=True) for frame in frames}) == len(frames)
    for profile, role in zip(document["profiles"], ("waiter", "holder"), strict=True):
        assert profile["type"] == "sampled"
        assert profile["unit"] == "nanoseconds"
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= index < len(frames) for stack in profile["samples"] for index in stack)
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert sum(profile["weights"]) == sum(charge.delay_ns for charge in charges(snapshot, role))


def test_speedscope_shows_holders_too() -> None:
    document = json.loads(text_of(speedscope.write, SNAPSHOTS["few"]))
    frames = document["shared"]["frames"]
    waiters, holders = ([[frames[index] for index in stack] for stack in one["samples"]] for one in document["profiles"])
    assert waiters[0] == [
        {"name": "cache.lock", "file": "/srv/app/cache.py", "line": 88},
        {"name": "get", "file": "/srv/app/views.py", "line": 120},
    ]
    assert holders[0][1] == {"name": "refresh", "file": "/srv/app/cache.py", "line": 140}


# Collapsed stacks


def test_collapsed_stacks_have_two_frames_and_a_number(snapshot: Snapshot) -> None:
    text = text_of(collapsed.write, snapshot)
    total = 0
    seen = set()
    for line in text.split("\n")[:-1]:
        stack, _, number = line.rpartition(" ")
        frames = stack.split(";")
        assert len(frames) == 2
        assert all(frame.strip() for frame in frames)
        assert all(character.isprintable() for character in line)
        assert stack not in seen
        seen.add(stack)
        total += int(number)
    assert text == "" or text.endswith("\n")
    assert total == sum(one.waits.sum for one in snapshot.locks)


def test_collapsed_stacks_read_well() -> None:
    assert text_of(collapsed.write, SNAPSHOTS["few"]).splitlines()[0] == "cache.lock;get (/srv/app/views.py:120) 276000000"


# Chrome trace


def trace(snapshot: Snapshot, events: Any) -> tuple[dict[str, Any], str | None]:
    stream = io.StringIO()
    note = chrome.write(snapshot, events, stream)
    return json.loads(stream.getvalue(), parse_constant=pytest.fail), note


def test_chrome_traces_have_the_entries_that_viewers_read(snapshot: Snapshot) -> None:
    document, _ = trace(snapshot, fakes.events(100))
    for entry in document["traceEvents"]:
        assert {"ph", "name", "pid", "ts"} <= set(entry)
        assert entry["ph"] in "XCM"
        assert math.isfinite(entry["ts"])
        if entry["ph"] == "X":
            assert entry["dur"] >= 0
            assert isinstance(entry["tid"], int)
        if entry["ph"] == "C":
            assert entry["args"]["threads"] >= 0
    assert sum(entry["ph"] == "X" and entry["args"]["outcome"] != "waiting" for entry in document["traceEvents"]) == 100


def test_a_trace_has_waits_by_thread() -> None:
    events = fakes.events(8)
    document, note = trace(SNAPSHOTS["few"], events)
    assert note is None
    waits = [entry for entry in document["traceEvents"] if entry["ph"] == "X" and "sequence" in entry["args"]]
    names = {entry["tid"]: entry["args"]["name"] for entry in document["traceEvents"] if entry["name"] == "thread_name"}
    for entry in waits:
        event = events[entry["args"]["sequence"]]
        assert entry["ts"] == pytest.approx(event["started_ns"] / 1000, abs=1e-3)
        assert entry["dur"] == pytest.approx(event["duration_ns"] / 1000)
        assert entry["args"]["outcome"] == event["outcome"]
        assert entry["name"] == {1: "cache.lock", 2: "<Lock> pool.py:31", 3: "<RLock> __init__.py:233"}[event["lock"]]
    assert names[fakes.PID] == "MainThread"
    assert names[fakes.PID + 1] == "worker-7"
    assert f"thread {ident(3):#x}" in names.values(), "a thread without a record"
    assert "ticketlock: pid 4242" in [
        entry["args"]["name"] for entry in document["traceEvents"] if entry["name"] == "process_name"
    ]


def test_waits_that_go_on_are_shown() -> None:
    document, _ = trace(SNAPSHOTS["deadlock"], [])
    waiting = [entry for entry in document["traceEvents"] if entry["ph"] == "X"]
    assert [entry["args"]["outcome"] for entry in waiting] == ["waiting"] * 5
    assert {entry["dur"] for entry in waiting} == {3 * fakes.TICK_NS / 1000}


def test_lines_have_the_length_that_the_waits_give() -> None:
    events = fakes.events(200)
    document, _ = trace(SNAPSHOTS["empty"], events)
    for entry in document["traceEvents"]:
        if entry["ph"] == "C":
            at = round(entry["ts"] * 1000)
            waiting = sum(
                event["lock"] == entry["id"] and event["started_ns"] <= at < event["started_ns"] + event["duration_ns"]
                for event in events
            )
            assert entry["args"]["threads"] == waiting
            assert entry["name"] == f"waiting for #{entry['id']}"


def test_traces_are_capped_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MAX_ENTRIES", 100)
    document, note = trace(SNAPSHOTS["few"], fakes.events(1000))
    assert len(document["traceEvents"]) <= 100
    kept = document["otherData"]["waits"]
    assert document["otherData"]["capped"] is True
    assert kept + document["otherData"]["waits_left_out"] == 1000 + 2
    assert note is not None
    assert "capped at 100 entries" in note
    sequences = [entry["args"].get("sequence") for entry in document["traceEvents"] if entry["ph"] == "X"]
    assert 999 in sequences, "the latest are kept"
    assert 0 not in sequences


def test_the_whole_ring_stays_below_the_cap() -> None:
    document, note = trace(SNAPSHOTS["few"], fakes.events(65_536, threads=64))
    assert note is None
    assert document["otherData"]["capped"] is False
    assert 65_536 < len(document["traceEvents"]) <= chrome.MAX_ENTRIES == 200_000


def test_lost_waits_are_counted() -> None:
    events = [*fakes.events(5), *fakes.events(5, first=12)]
    document, note = trace(SNAPSHOTS["few"], events)
    assert document["otherData"]["waits_lost"] == 7
    assert note == "7 waits are missing: they ended faster than they were read"


# Prometheus

SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"(?:,(?=[a-zA-Z_])|(?=\})))*)\})? '
    r"(?P<value>\+Inf|-?\d+(?:\.\d+)?(?:e[+-]\d+)?)",
    re.ASCII,
)
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"', re.ASCII)


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels, of text that keeps to every rule of the format."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    types: dict[str, str] = {}
    helped = set()
    family = None
    assert text == "" or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# "):
            _, keyword, name, rest = line.split(" ", 3)
            if keyword == "HELP":
                assert name not in helped
                helped.add(name)
            else:
                assert keyword == "TYPE"
                assert name not in types
                assert rest in ("counter", "gauge", "histogram")
                types[name] = rest
                family = name
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        name = found["name"]
        assert family is not None
        allowed = {family} if types[family] != "histogram" else {f"{family}_{part}" for part in ("bucket", "sum", "count")}
        assert name in allowed, "samples of one family stand together, under its type"
        if types[family] == "counter":
            assert name.endswith("_total")
        labels = tuple((key, value) for key, value in LABEL.findall(found["labels"] or ""))
        assert len({key for key, _ in labels}) == len(labels)
        assert labels not in samples[name], "no series twice"
        value = float(found["value"])
        assert value >= 0
        samples[name][labels] = value
    assert helped == set(types)
    histograms(samples, [name for name, kind in types.items() if kind == "histogram"])
    return samples


def histograms(samples: Any, names: list[str]) -> None:
    for name in names:
        buckets: dict[Any, list[tuple[float, float]]] = defaultdict(list)
        for labels, value in samples[f"{name}_bucket"].items():
            rest = tuple((key, text) for key, text in labels if key != "le")
            assert len(rest) == len(labels) - 1
            buckets[rest].append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
        assert set(buckets) == set(samples[f"{name}_count"]) == set(samples[f"{name}_sum"])
        for rest, steps in buckets.items():
            assert steps == sorted(steps)
            assert [value for _, value in steps] == sorted(value for _, value in steps)
            assert steps[-1] == (math.inf, samples[f"{name}_count"][rest])


def test_prometheus_text_keeps_to_the_grammar(snapshot: Snapshot) -> None:
    parsed(text_of(prometheus.write, snapshot))


def test_the_parser_of_this_test_is_strict() -> None:
    head = "# HELP a_total x\n# TYPE a_total counter\n"
    parsed(head + 'a_total{b="c"} 1\n')
    for bad in (
        'a_total{b="c} 1',
        'a_total{b="c"} NaN',
        'a_total{b="\\x"} 1',
        'a_total{b="c",} 1',
        "b_total 1",
        "a_total  1",
        "a-b 1",
    ):
        with pytest.raises(AssertionError):
            parsed(f"{head}{bad}\n")


def test_prometheus_totals() -> None:
    samples = parsed(text_of(prometheus.write, build(fakes.few(6), None)))
    hot = (("lock", "cache.lock"), ("site", "/srv/app/cache.py:88"))
    assert samples["ticketlock_lock_acquisitions_total"][hot] == 6 * 90_000
    assert samples["ticketlock_lock_contentions_total"][hot] == 24_000
    waited = (24_000 - 240) * 41e-6 + 240 * 16 * 41e-6
    assert samples["ticketlock_lock_wait_seconds_total"][hot] == pytest.approx(waited)
    assert samples["ticketlock_lock_wait_seconds_sum"][hot] == pytest.approx(waited)
    assert samples["ticketlock_lock_wait_seconds_count"][hot] == 24_000
    # 41 us are in the class up to 65.536 us.
    assert samples["ticketlock_lock_wait_seconds_bucket"][(*hot, ("le", "6.5536e-05"))] == 24_000 - 240
    assert samples["ticketlock_lock_wait_seconds_bucket"][(*hot, ("le", "1.6384e-05"))] == 0
    assert samples["ticketlock_lock_waiters"][hot] == 2
    native = (("lock", "native.table"), ("site", ""))
    assert native not in samples["ticketlock_lock_acquisitions_total"], "not counted is not 0"
    assert samples["ticketlock_lock_contentions_total"][native] == 12
    pool = (("lock", "pool.py:31"), ("site", "/srv/app/pool.py:31"))
    assert samples["ticketlock_lock_acquisitions_total"][pool] == 6 * 700 + 6 * 400, "those that are gone, too"
    assert samples["ticketlock_locks"][()] == 5


def test_only_the_locks_with_most_waiting_have_series() -> None:
    whole = build(fakes.many(500), None)
    samples = parsed(text_of(prometheus.write, whole))
    for name in ("acquisitions_total", "contentions_total", "wait_seconds_total", "wait_seconds_count"):
        assert len(samples[f"ticketlock_lock_{name}"]) == prometheus.MAX_LOCKS + 1
    other = (("lock", "(other)"), ("site", ""))
    waits = samples["ticketlock_lock_wait_seconds_total"]
    assert list(waits)[-1] == other
    assert sum(waits.values()) == pytest.approx(sum(one.waits.sum for one in whole.locks) / 1e9)
    assert sum(samples["ticketlock_lock_contentions_total"].values()) == sum(one.contended for one in whole.locks)
    top = list(waits.values())[:-1]
    assert top == sorted(top, reverse=True)
    assert len(text_of(prometheus.write, whole)) < 250_000


def test_names_cannot_break_out_of_their_labels() -> None:
    names = ['quote " and \\', "two\nlines", 'x"} 1\nevil_total 1', "(other)", "same", "same", "\x1b[31m", "y" * 10_000]
    raw = reading(1, [lock(1 + number, name, None, counters(1)) for number, name in enumerate(names)])
    samples = parsed(text_of(prometheus.write, build(raw, None)))
    series = samples["ticketlock_lock_acquisitions_total"]
    shown = {dict(labels)["lock"]: value for labels, value in series.items()}
    assert shown['quote \\" and \\\\'] == 1
    assert shown["two?lines"] == 1
    assert shown["(other)"] == 1
    assert shown["same"] == 2
    assert shown["?[31m"] == 1
    assert shown["y" * 197 + "..."] == 1
    assert sum(shown.values()) == len(names)


def test_a_lock_called_other_is_counted_with_the_others() -> None:
    locks = [lock(1 + number, f"{number}", None, counters(1, [1000 + number])) for number in range(60)]
    locks.append(lock(99, "(other)", None, counters(1, [1 << 40])))
    series = parsed(text_of(prometheus.write, build(reading(1, locks), None)))["ticketlock_lock_acquisitions_total"]
    assert series[(("lock", "(other)"), ("site", ""))] == 11


# CSV


def test_csv_reads_back(snapshot: Snapshot) -> None:
    text = text_of(csv_export.write, [snapshot, snapshot])
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert tuple(rows[0]) == csv_export.COLUMNS
    assert len(rows) == 1 + 2 * len(snapshot.locks)
    for fields_of_row, one in zip(rows[1:], snapshot.locks * 2, strict=True):
        read = dict(zip(rows[0], fields_of_row, strict=True))
        name = one.name or ""
        assert read["name"] == name.encode("utf-8", "backslashreplace").decode()
        assert read["id"] == ("" if one.id is None else str(one.id))
        assert read["contended"] == str(one.contended)
        assert read["acquisitions"] == ("" if one.acquisitions is None else str(one.acquisitions))
        assert read["wait_ns_p99"] == ("" if one.waits.p99 is None else str(one.waits.p99))
        assert float(read["wait_share"]) == one.wait_share
        assert read["internal"] in ("0", "1")
        assert read["waiter_function"] == (
            one.waiter_sites[0].function.encode("utf-8", "backslashreplace").decode() if one.waiter_sites else ""
        )


def test_csv_changes_no_text() -> None:
    names = ["=1+1", "a,b", 'a"b', "a\r\nb", "a\rb", "@x", "\x1b[1m", " a "]
    raw = reading(1, [lock(1 + number, name) for number, name in enumerate(names)])
    rows = list(csv.DictReader(io.StringIO(text_of(csv_export.write, [build(raw, None)]), newline=""), strict=True))
    assert sorted(row["name"] for row in rows) == sorted(names)


def test_the_header_can_be_left_out() -> None:
    stream = io.StringIO()
    csv_export.write([SNAPSHOTS["few"]], stream, header=False)
    assert stream.getvalue().startswith(f"{SNAPSHOTS['few'].at_ns},")


def test_exports_need_neither_rich_nor_argparse() -> None:
    import subprocess

    code = "import sys, ticketlock.monitor.export; sys.exit(any(m in sys.modules for m in ('rich', 'argparse')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 0
