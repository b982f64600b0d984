"""A pool of threads that count under one lock; ends with an exit code of its own."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

lock = threading.Lock()
total = 0


def add(number):
    global total  # noqa: PLW0603
    for _ in range(200):
        with lock:
            total += number
    return number * number


with ThreadPoolExecutor(4) as pool:
    print(sorted(pool.map(add, range(20))), total)
print("to stderr", file=sys.stderr)
sys.exit(3)
