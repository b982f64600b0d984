"""A program with a lock that everybody waits for, and one that nobody does: `ticketlock run examples/contended.py [SECONDS]`."""

import sys
import threading
import time


class Cache:
    def __init__(self):
        self.lock = threading.Lock()
        self.entries = {}

    def get(self, key):
        with self.lock:
            if key not in self.entries:
                time.sleep(0.001)  # a query, with the lock held
                self.entries[key] = key
            return self.entries.pop(key)


class Counter:
    def __init__(self):
        self.lock = threading.Lock()
        self.value = 0

    def add(self):
        with self.lock:
            self.value += 1


def work(cache, counter, until):
    while time.monotonic() < until:
        cache.get(1)
        for _ in range(20):
            counter.add()


def main():
    cache, counter = Cache(), Counter()
    until = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 3)
    workers = [threading.Thread(target=work, args=(cache, counter, until), name=f"worker-{n}") for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(counter.value, "counted")


main()
