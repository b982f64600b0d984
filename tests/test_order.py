"""Locks that are taken in both orders."""

import json
import subprocess
import sys
import threading

import pytest
from threads import python

CHECKED = """
import threading
import ticketlock
from ticketlock import Lock, RLock, TicketLock, check_order, order_inversions
def elsewhere(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
"""


def run(source):
    return json.loads(python(CHECKED + source).splitlines()[-1])


@pytest.mark.parametrize("kind", ["Lock", "RLock", "TicketLock"])
def test_both_orders_are_found_with_the_lines_that_took_them(kind):
    found = run(f"""
ticketlock._lab.set_sites(True)
check_order()
a, b = {kind}(), {kind}()
def one():
    with a:
        with b: pass
def other():
    with b:
        with a: pass
one()
assert order_inversions() == []
elsewhere(other)
other()
found = order_inversions()
import json
print(json.dumps([[one.pair.first == b.id, one.pair.then == a.id, one.pair.first_site, one.pair.then_site,
    one.back.first == a.id, one.back.then == b.id, one.back.first_site, one.back.then_site] for one in found]))
""")
    [[first, then, *sites, back_first, back_then, back_site, back_then_site]] = found
    assert [first, then, back_first, back_then] == [True] * 4
    lines = [int(site.rpartition(":")[2]) for site in (back_site, back_then_site, *sites)]
    assert lines == [lines[0], lines[0] + 1, lines[0] + 3, lines[0] + 4]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("one order", "for _ in range(3):\n    with a, b, c: pass"),
        ("an acquire that leaves without", "with a:\n    with b: pass\nwith b:\n    assert a.acquire(False); a.release()"),
        ("a zero timeout", "with a:\n    with b: pass\nwith b:\n    assert a.acquire(timeout=0); a.release()"),
        ("released in between", "with a:\n    with b: pass\nb.acquire(); b.release()\nwith a: pass"),
        ("released in the other order", "a.acquire(); b.acquire(); a.release(); b.release()\nwith a, b: pass"),
        (
            "by another thread",
            "with a:\n    with b: pass\nb.acquire(); elsewhere(b.release)\nb.acquire(); b.release()\nwith a: pass",
        ),
    ],
)
def test_what_cannot_deadlock_is_not_reported(what, body):
    assert run(f"check_order()\na, b, c = Lock(), Lock(), Lock()\n{body}\nprint(len(order_inversions()))") == 0


def test_a_circle_of_three():
    source = """
check_order()
a, b, c = Lock(name="a"), Lock(name="b"), Lock(name="c")
for first, then in ((a, b), (b, c), (c, a)):
    with first:
        with then: pass
[found] = order_inversions()
print(str([found.pair.first == c.id, found.pair.then == a.id, found.back.first == a.id, found.back.then == b.id]).lower())
"""
    assert run(source) == [True, True, True, True]


def test_a_lock_that_was_waited_for_counts_too():
    source = """
check_order()
a, b = Lock(), Lock()
b.acquire()
def wait():
    with a:
        with b: pass
thread = threading.Thread(target=wait)
thread.start()
import time
while not b.stats()["acquisitions"] or not ticketlock.snapshot().locks: time.sleep(0.01)
time.sleep(0.05)
b.release()
thread.join()
with b:
    with a: pass
print(len(order_inversions()))
"""
    assert run(source) == 1


def test_locks_made_before_are_left_alone():
    assert run("a, b = Lock(), Lock()\ncheck_order()\nwith a, b: pass\nwith b, a: pass\nprint(len(order_inversions()))") == 0


def test_switched_off_it_costs_nothing_and_finds_nothing():
    assert run("a, b = Lock(), Lock()\nwith a, b: pass\nwith b, a: pass\nprint(len(order_inversions()))") == 0


def test_run_reports_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import threading\na, b = threading.Lock(), threading.Lock()\nwith a:\n    with b: pass\nwith b:\n    with a: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "ticketlock", "run", "--order", str(script)], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "TAKEN IN BOTH ORDERS" in told
    assert "program.py:5) and then" in told
    assert "program.py:3) and then" in told


def test_many_threads_at_once():
    source = """
check_order()
locks = [Lock() for _ in range(20)]
def work(seed):
    import random
    order = random.Random(seed)
    for _ in range(300):
        first, then = sorted(order.sample(range(20), 2))
        with locks[first]:
            with locks[then]: pass
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(order_inversions()))
"""
    assert run(source) == 0
    assert threading.active_count() >= 1


@pytest.mark.parametrize("timeout", ["", "timeout=0.01"])
def test_waiting_for_a_condition_is_no_inversion(timeout):
    """It takes again what it gave up, while it holds a lock that it made for this wait."""
    source = f"""
ticketlock.patch()
check_order()
for _ in range(50):
    event = threading.Event()
    setter = threading.Timer(0.005, event.set)
    setter.start()
    event.wait({timeout})
    setter.join()
a, b = threading.Lock(), threading.Lock()
with a:
    with b: pass
with b:
    with a: pass
print(len(order_inversions()))
"""
    assert run(source) == 1
