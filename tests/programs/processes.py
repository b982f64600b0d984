"""`multiprocessing` on our locks: what it does with threads of its own, in the parent and in the children.

Started by fork, the children inherit locks that threads hold and wait for.
"""

import multiprocessing
import queue
import sys
import threading
import time
from multiprocessing import util
from multiprocessing.dummy import Pool as ThreadPool

import standard_locks

STARTED = time.monotonic()
module_lock = threading.RLock()


def square(number):
    standard_locks.check_replaced()
    with module_lock:
        return number * number


def echo(requests, replies):
    standard_locks.check_replaced()
    # The feeder thread of a queue waits on a Condition; a second thread competes with this one for the same end.
    other = threading.Thread(target=lambda: replies.put("from a thread"))
    other.start()
    for item in iter(requests.get, None):
        replies.put(item)
    other.join()


def hold_for_a_while(lock, condition, held):
    with lock:
        condition.acquire()
        condition.notify_all()
        condition.release()
        held.set()
        time.sleep(1)


def check(method):
    context = multiprocessing.get_context(method)

    # What a fork copies: an own lock held by one thread, two more in line for it, and one on a condition.
    lock, condition, held = threading.Lock(), threading.Condition(), threading.Event()
    threads = [threading.Thread(target=hold_for_a_while, args=(lock, condition, held))]
    threads += [threading.Thread(target=lambda: (lock.acquire(), lock.release())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert held.wait(30)

    with context.Pool(2) as pool:
        assert pool.map(square, range(50), chunksize=5) == [n * n for n in range(50)]
        assert sorted(pool.imap_unordered(square, range(20))) == sorted(n * n for n in range(20))
        assert pool.apply_async(square, (7,)).get(30) == 49

    requests, replies = context.Queue(), context.Queue()
    child = context.Process(target=echo, args=(requests, replies))
    child.start()
    for number in range(200):
        requests.put(number)
    requests.put(None)
    received = [replies.get(timeout=30) for _ in range(201)]
    assert [item for item in received if item != "from a thread"] == list(range(200))
    child.join(30)
    assert child.exitcode == 0
    try:
        replies.get(timeout=0.05)
    except queue.Empty:
        pass
    else:
        raise AssertionError("not empty")

    # A server process with a thread for each client, whose locks are those of `threading` there.
    with context.Manager() as manager:
        shared_lock, total = manager.Lock(), manager.Value("i", 0)
        members = [threading.Thread(target=add, args=(shared_lock, total)) for _ in range(3)]
        for member in members:
            member.start()
        for member in members:
            member.join(60)
        assert total.value == 3 * 20

    with ThreadPool(4) as pool:
        assert pool.map(square, range(100)) == [n * n for n in range(100)]

    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not lock.locked()
    util._run_finalizers()


def add(shared_lock, total):
    for _ in range(20):
        with shared_lock:
            total.value += 1


if __name__ == "__main__":
    standard_locks.check_replaced()
    check(sys.argv[1])
    print("ok")
