"""Option values: what is taken, and that a refusal names option, value and what is accepted."""

from __future__ import annotations

import fake_lab
import pytest
from ticketlock.bench import values
from ticketlock.bench.values import BadValueError


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("0", 0), ("5", 5), ("250ns", 250), ("1.5us", 1500), ("2ms", 2_000_000), ("1s", 1_000_000_000), (40, 40), (" 7 ", 7)],
)
def test_durations(text: object, nanoseconds: int) -> None:
    assert values.duration_ns("hold", text) == nanoseconds


@pytest.mark.parametrize("text", ["-5", "", "x", "1.5", "1m", "2s", "nan", "inf", "1e3", "٣", True, -1, float("nan")])
def test_refused_durations(text: object) -> None:
    with pytest.raises(BadValueError) as refused:
        values.duration_ns("hold", text)
    assert refused.value.option == "hold"
    assert str(text) in str(refused.value)
    assert "1.5us" in refused.value.accepted


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ("4", (4,)),
        ("1,2,4", (1, 2, 4)),
        ("1-4", (1, 2, 3, 4)),
        ("8,1-2,2", (8, 1, 2)),
        (3, (3,)),
        ([2, 1], (2, 1)),
        ("1024", (1024,)),
    ],
)
def test_thread_counts(value: object, counts: tuple[int, ...]) -> None:
    assert values.thread_counts("threads", value) == counts


@pytest.mark.parametrize(
    "value", ["0", "-1", "", "1,", "4-1", "1025", "1-99999999999", "two", "²", 0, 2.5, [], [0], [True], None]
)
def test_refused_thread_counts(value: object) -> None:
    with pytest.raises(BadValueError, match=r"threads: .* is not accepted; give thread counts from 1 to 1024"):
        values.thread_counts("threads", value)


@pytest.mark.parametrize(("value", "expected"), [("0.5", 0.5), ("500ms", 0.5), (2, 2.0), ("3600", 3600.0), ("1s", 1.0)])
def test_seconds(value: object, expected: float) -> None:
    assert values.seconds("seconds", value) == expected


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "0.0001", "3601", "fast", "", float("nan"), float("inf")])
def test_refused_seconds(value: object) -> None:
    with pytest.raises(BadValueError, match=r"seconds: .* is not accepted"):
        values.seconds("seconds", value)


@pytest.mark.parametrize("value", ["0", "11", "-3", "x", "", 1.5, True, "1.0"])
def test_refused_counts(value: object) -> None:
    with pytest.raises(BadValueError, match="rounds from 1 to 10"):
        values.count("rounds", value, 1, 10, "rounds")


def test_caps() -> None:
    assert values.caps("cap", "16,native,machine,16") == (16, 16_000, None)
    assert values.caps("cap", 5) == (5,)
    for wrong in ("0", "65001", "", "big"):
        with pytest.raises(BadValueError, match="'native'"):
            values.caps("cap", wrong)


def test_locks() -> None:
    class Parser:
        parse_lock = staticmethod(fake_lab.bench_parse_lock)

    assert values.locks("locks", "auto, std,auto,proportional:7", Parser()) == ("auto", "std", "proportional:7")
    with pytest.raises(BadValueError, match=r"locks: 'nosuch' is not accepted; .*choose one of: lock"):
        values.locks("locks", "auto,nosuch", Parser())
    with pytest.raises(BadValueError, match="'std' is not accepted; give locks of the ticket family"):
        values.locks("locks", "auto,std", Parser(), "ticket")
    with pytest.raises(BadValueError):
        values.locks("locks", [], Parser())
