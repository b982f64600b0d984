"""A lock under everything at once: a program, started by test_lock_stress.py.

Threads take it with random timeouts, hold it for random times and let others release it, signals interrupt the main thread,
which forks in between, and the collector runs finalizers that take it too. Each critical section checks that it is alone.
A watchdog dumps all stacks and ends the program if anybody gets nowhere for a while.
"""

import faulthandler
import gc
import json
import os
import queue
import random
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager

import watchdog
from kinds import KINDS

# A free-threaded CPython 3.13 that forks while other threads run dies in its own semaphores or stands still, with its own
# locks too, about once in some thousand forks; newer ones were not at hand. The forks of test_lock_reports.py are few and calm.
FORKS = hasattr(os, "fork") and not sysconfig.get_config_var("Py_GIL_DISABLED")
WORKERS = 6
# A thread that has not got on for so long hangs: the longest legitimate wait is some milliseconds.
STALL_S = 30
SIGNAL_EVERY_S = 0.002
FORK_EVERY_S = 0.02


class InterruptedByHandlerError(Exception):
    """Raised by the signal handler."""


class Guarded:
    """What the lock protects: who is inside, and a count that loses nothing only if nobody else is."""

    def __init__(self):
        self.inside = None
        self.entries = 0

    def visit(self, who, linger_s=None):
        assert self.inside is None, f"{who} is inside together with {self.inside}"
        self.inside = who
        seen = self.entries
        if linger_s is not None:
            time.sleep(linger_s)
        self.entries = seen + 1
        assert self.inside == who, f"{self.inside} came to {who}"
        self.inside = None


class Stress:
    def __init__(self, kind, seed):
        self.lock = KINDS[kind]()
        self.reentrant = kind == "RLock"
        self.guarded = Guarded()
        self.random = random.Random(seed)
        self.stop = threading.Event()
        self.failures = []
        self.counts = [Counter() for _ in range(WORKERS + 3)]
        self.given_away = queue.SimpleQueue()
        self.may_raise = False

    # --- threads ---------------------------------------------------------------------------------------------------------

    def take(self, count, chance):
        """Try to take the lock in one of all ways; whether it was taken."""
        way = chance.random()
        start = time.monotonic()
        if way < 0.25:
            taken = self.lock.acquire()
            assert taken is True
        elif way < 0.3:
            taken = self.lock.__enter__()
            assert taken is True
        elif way < 0.75:
            timeout = chance.uniform(0, 0.003)
            taken = self.lock.acquire(timeout=timeout)
            if not taken:
                count["timeouts"] += 1
                assert time.monotonic() - start >= timeout, "gave up early"
        elif way < 0.85:
            taken = self.lock.acquire(timeout=0)
        else:
            taken = self.lock.acquire(False)
        count["taken" if taken else "refused"] += 1
        return taken

    def leave(self, count, chance):
        if not self.reentrant and chance.random() < 0.05:
            self.given_away.put(None)
            count["given away"] += 1
        elif chance.random() < 0.5:
            self.lock.release()
        else:
            self.lock.__exit__(None, None, None)

    def work(self, me, count, chance):
        while not self.stop.is_set():
            if self.take(count, chance):
                linger = chance.random()
                self.guarded.visit(me, None if linger < 0.7 else 0 if linger < 0.97 else chance.uniform(0, 0.002))
                count["visits"] += 1
                if self.reentrant and chance.random() < 0.3:
                    self.reenter(count, chance)
                self.leave(count, chance)
            count["rounds"] += 1
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0, 0.0005))

    def reenter(self, count, chance):
        depth = chance.randrange(1, 4)
        for _ in range(depth):
            assert self.lock.acquire(timeout=chance.choice([-1, 0, 0.01])), "an owner may always enter again"
        assert self.lock._recursion_count() == depth + 1
        for _ in range(depth):
            self.lock.release()
        count["reentries"] += depth

    def release_for_others(self, me, count, chance):
        while self.given_away.get() is not self:
            count["rounds"] += 1
            self.lock.release()

    def collect(self, me, count, chance):
        stress = self

        class Garbage:
            def __init__(self):
                self.itself = self
                self.lock = type(stress.lock)()

            def __del__(self):
                # In whichever thread the collector runs, which may be the one that holds the lock.
                with self.lock:
                    if stress.lock.acquire(timeout=0.0005):
                        count["taken by finalizers"] += 1
                        stress.lock.release()

        while not self.stop.is_set():
            for _ in range(3):
                Garbage()
            gc.collect()
            count["rounds"] += 1
            time.sleep(0.005)

    def guard(self, body, number, seed):
        try:
            body(number, self.counts[number], random.Random(seed))
        except BaseException:  # noqa: BLE001 - is reported at the end
            self.failures.append(f"thread {number}:\n{traceback.format_exc()}")
            self.stop.set()

    # --- the main thread -------------------------------------------------------------------------------------------------

    def handle(self, signum, frame):
        count = self.counts[-1]
        count["signals"] += 1
        if self.lock.acquire(False):
            self.lock.release()
        # Not out of what else runs in this thread: a finalizer, or this handler itself.
        if self.may_raise and frame.f_code is Stress.take_and_be_interrupted.__code__ and count["signals"] % 3 == 0:
            self.may_raise = False
            raise InterruptedByHandlerError

    def take_and_be_interrupted(self, count, chance):
        """Only a lock that knows its owner can tell whether the exception came before or after it was taken."""
        depth = self.lock._recursion_count()
        try:
            self.may_raise = True
            if self.lock.acquire(timeout=chance.uniform(0, 0.01)):
                self.may_raise = False
                self.guarded.visit("main")
                count["visits"] += 1
                self.lock.release()
            self.may_raise = False
        except InterruptedByHandlerError:
            count["interrupted"] += 1
            if self.lock._recursion_count() > depth:
                self.lock.release()
        assert self.lock._recursion_count() == depth

    @contextmanager
    def held_or_not(self, count, chance):
        if chance.random() < 0.5 and self.lock.acquire(timeout=1):
            yield True
            self.lock.release()
        else:
            yield False

    def fork(self, count, chance):
        with self.held_or_not(count, chance) as held:
            if held and chance.random() < 0.5:
                time.sleep(0.001)  # lets a line form
            child = os.fork()
            if child == 0:
                self.live_in_child(held)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the child failed or hangs: see stderr"
        count["forks"] += 1
        count["forks while held"] += held

    def live_in_child(self, held):
        status = 1
        try:
            watchdog.die_with_all_stacks_after(STALL_S)
            if held:
                self.lock.release()
            else:
                self.lock._at_fork_reinit()
            assert not self.lock.locked()
            guarded = Guarded()

            def visit():
                for number in range(20):
                    with self.lock:
                        guarded.visit(threading.get_ident(), 0 if number % 5 == 0 else None)

            others = [threading.Thread(target=visit) for _ in range(2)]
            for other in others:
                other.start()
            visit()
            for other in others:
                other.join()
            assert guarded.entries == 60
            assert not self.lock.locked()
            status = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent may go on in here
            traceback.print_exc()
        finally:
            os._exit(status)

    def run(self, seconds):
        count, chance = self.counts[-1], self.random
        bodies = [self.work] * WORKERS + [self.release_for_others, self.collect]
        threads = [
            threading.Thread(target=self.guard, args=(body, number, chance.random()), daemon=True)
            for number, body in enumerate(bodies)
        ]
        for thread in threads:
            thread.start()
        with self.signals():
            self.live(seconds, count, chance)
        self.stop.set()
        faulthandler.dump_traceback_later(STALL_S, exit=True)
        for thread in threads[:WORKERS]:
            thread.join()
        self.given_away.put(self)  # nothing more to release
        for thread in threads[WORKERS:]:
            thread.join()
        if self.failures:
            sys.exit("\n".join(self.failures))
        totals = sum(self.counts, Counter())
        assert self.guarded.entries == totals["visits"], f"{self.guarded.entries} entries counted, {totals['visits']} made"
        assert self.lock.acquire(False), "still held"
        return totals

    @contextmanager
    def signals(self):
        if not hasattr(signal, "setitimer"):
            yield
            return
        signal.signal(signal.SIGALRM, self.handle)
        signal.setitimer(signal.ITIMER_REAL, SIGNAL_EVERY_S, SIGNAL_EVERY_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def live(self, seconds, count, chance):
        begin = next_fork = time.monotonic()
        progress = {}
        while time.monotonic() - begin < seconds and not self.stop.is_set():
            if self.take(count, chance):
                self.guarded.visit("main")
                count["visits"] += 1
                self.lock.release()
            if self.reentrant:
                self.take_and_be_interrupted(count, chance)
            if FORKS and time.monotonic() >= next_fork:
                self.fork(count, chance)
                next_fork = time.monotonic() + FORK_EVERY_S
            self.watch(progress)

    def watch(self, progress):
        """Put the watchdog off as long as each worker gets on."""
        now = time.monotonic()
        for number, count in enumerate(self.counts[:WORKERS]):
            rounds, since = progress.get(number, (-1, now))
            if count["rounds"] != rounds:
                progress[number] = count["rounds"], now
            elif now - since > STALL_S:
                faulthandler.dump_traceback(all_threads=True)
                sys.exit(f"thread {number} got nowhere for {STALL_S} s")
        faulthandler.dump_traceback_later(STALL_S, exit=True)


def race_releases(kind, rounds):
    """Two threads release one acquisition at the same time: exactly one is told that the lock is not held."""
    lock = KINDS[kind]()
    waits = getattr(sys, "_is_gil_enabled", lambda: True)()
    turns, errors = [0, 0], [0, 0]

    def release(me):
        for turn in range(1, rounds + 1):
            if me == 0:
                assert lock.acquire(timeout=STALL_S)
            meet(me, turn)
            try:
                lock.release()
            except RuntimeError:
                errors[me] += 1
            # Nobody goes on before both are through.
            meet(me, turn + 0.5)
            if me == 0 and turn % 100 == 0:
                faulthandler.dump_traceback_later(STALL_S, exit=True)
            assert sum(errors) >= turn, "two threads released one acquisition, and neither was told"

    def meet(me, turn):
        turns[me] = turn
        while turns[1 - me] < turn:
            if waits:
                time.sleep(0)

    def guard(me):
        try:
            release(me)
        except BaseException:  # noqa: BLE001 - the other thread would go round for ever
            traceback.print_exc()
            os._exit(1)

    faulthandler.dump_traceback_later(STALL_S, exit=True)
    threads = [threading.Thread(target=guard, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(errors) == rounds, f"{sum(errors)} errors in {rounds} rounds"
    assert lock.acquire(False), "still held"
    return {"double releases": rounds, "told to the second thread": errors[1]}


def main(what, kind, amount, seed):
    warnings.simplefilter("error")
    # From 3.12 on for every fork of a process with threads, which is what is to be tested.
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    sys.setswitchinterval(1e-5)
    faulthandler.enable()
    counts = Stress(kind, int(seed)).run(float(amount)) if what == "all" else race_releases(kind, int(amount))
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
