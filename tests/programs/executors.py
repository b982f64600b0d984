"""`concurrent.futures` on our locks: pools of threads, and pools of processes, each task of which uses threads again."""

import concurrent.futures as futures
import multiprocessing
import sys
import threading
from collections import Counter

import standard_locks

counter_lock = threading.Lock()
counter = Counter()


def count(number):
    with counter_lock:
        counter["tasks"] += 1
    return number * number


def count_in_threads(number):
    standard_locks.check_replaced()
    with futures.ThreadPoolExecutor(3) as pool:
        return sum(pool.map(count, range(number)))


def check_threads():
    with futures.ThreadPoolExecutor(4, initializer=standard_locks.check_replaced) as pool:
        submitted = [pool.submit(count, number) for number in range(300)]
        found = {future.result(30) for future in futures.as_completed(submitted, timeout=30)}
        assert found == {number * number for number in range(300)}
        done, pending = futures.wait([pool.submit(count, 2), pool.submit(count, 3)], 30, futures.FIRST_EXCEPTION)
        assert len(done) == 2
        assert not pending
    assert counter["tasks"] == 302

    started, go_on = threading.Event(), threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: (started.set(), go_on.wait(30)))
        assert started.wait(30)
        waiting = pool.submit(count, 1)
        assert waiting.cancel()
        assert not running.cancel()
        try:
            running.result(0.05)
        except (TimeoutError, futures.TimeoutError):
            pass
        else:
            raise AssertionError("no timeout")
        go_on.set()
        assert running.result(30) == (None, True)


def check_processes(method):
    context = multiprocessing.get_context(method)
    with futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        expected = [sum(n * n for n in range(number)) for number in range(12)]
        assert list(pool.map(count_in_threads, range(12), timeout=60)) == expected


if __name__ == "__main__":
    standard_locks.check_replaced()
    if sys.argv[1] == "threads":
        check_threads()
    else:
        check_processes(sys.argv[1])
    print("ok")
