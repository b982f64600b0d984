"""Producers and consumers over a bounded queue, a priority queue and a simple one."""

import queue
import threading

jobs, done, results = queue.Queue(3), queue.SimpleQueue(), queue.PriorityQueue()


def produce(first):
    for number in range(first, first + 50):
        jobs.put(number)


def consume():
    while (number := jobs.get()) is not None:
        results.put(number * 2)
        jobs.task_done()
    done.put("consumer ended")


producers = [threading.Thread(target=produce, args=(first,)) for first in (0, 50, 100)]
consumers = [threading.Thread(target=consume) for _ in range(2)]
for thread in producers + consumers:
    thread.start()
for thread in producers:
    thread.join()
jobs.join()
for _ in consumers:
    jobs.put(None)
for thread in consumers:
    thread.join()
print([results.get() for _ in range(150)] == [number * 2 for number in range(150)], results.empty())
print(done.get(), done.get(timeout=5))
try:
    jobs.get(timeout=0.01)
except queue.Empty:
    print("empty")
