"""Processes of a pool, a queue, a manager and an executor, by the start method given; the children use threads."""

import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

lock = threading.Lock()


class Job:
    """Goes to a child by value, with a lock type in it by name."""

    kind = threading.Lock

    def __init__(self, number):
        self.number = number
        self.make = threading.Lock

    def __call__(self):
        with self.make(), lock:
            return self.number * self.number


def run(job):
    found = []
    threads = [threading.Thread(target=lambda: found.append(job())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        print(pool.map(run, [Job(number) for number in range(5)]))
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        print(list(executor.map(run, [Job(number) for number in range(5)])))
    try:
        with context.Pool(1) as pool:
            pool.map(run, [lock])
    except TypeError as problem:
        print("not pickled:", str(problem).partition(" '")[0])
    child = context.Process(target=sys.exit, args=(5,))
    child.start()
    child.join()
    print(child.exitcode)


if __name__ == "__main__":
    main(sys.argv[1])
