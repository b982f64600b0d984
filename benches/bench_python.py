"""What a Python program pays for a lock: pytest-benchmark over TicketLock and threading.Lock, in one run.

    pytest benches --benchmark-columns=min,median,ops

Single times depend on the machine and its load: read the ratios inside a group. `--benchmark-disable` runs each body once.
"""

import threading

import pytest
from ticketlock import TicketLock, _lab

LOCKS = {
    "ticketlock.TicketLock": TicketLock,
    "threading.Lock": threading.Lock,
    "threading.RLock": threading.RLock,
}


@pytest.fixture(autouse=True)
def second_thread():
    """A process with one thread is a special case for some C libraries."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


def pair(lock):
    acquire, release = lock.acquire, lock.release

    def body():
        acquire()
        release()

    return body


def context(lock):
    def body():
        with lock:
            pass

    return body


def failed_try(lock):
    # Held by another thread, so that a reentrant lock fails too.
    holder = threading.Thread(target=lock.acquire)
    holder.start()
    holder.join()

    def body():
        lock.acquire(False)

    return body


TURNS = 20_000
OPERATIONS = {"acquire, release": pair, "with": context, "failed try": failed_try}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("lock", LOCKS)
def bench_uncontended(benchmark, operation, lock):
    benchmark.group = operation
    benchmark(OPERATIONS[operation](LOCKS[lock]()))


@pytest.mark.parametrize("lock", LOCKS)
def bench_create(benchmark, lock):
    benchmark.group = "create"
    benchmark(LOCKS[lock])


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("lock", LOCKS)
def bench_contended(benchmark, lock, threads):
    """Threads share a short section; one round is `TURNS` turns of each."""

    def run():
        shared = LOCKS[lock]()
        start = threading.Barrier(threads)

        def work():
            start.wait()
            for _ in range(TURNS):
                with shared:
                    pass

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    benchmark.group = f"{threads} threads, {TURNS:,} turns each"
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("call", ["delays", "machine"])
def bench_lab(benchmark, call):
    """What a live display pays for one look."""
    benchmark.group = "observe"
    benchmark(getattr(_lab, call))
