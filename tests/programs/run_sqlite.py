"""Threads that share one connection to a database under a lock."""

import sqlite3
import threading

lock = threading.RLock()
base = sqlite3.connect(":memory:", check_same_thread=False)
base.execute("create table numbers (thread integer, number integer)")


def insert(thread, number):
    with lock:
        base.execute("insert into numbers values (?, ?)", (thread, number))


def work(thread):
    for number in range(100):
        with lock:
            insert(thread, number)
            base.commit()


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(base.execute("select thread, count(*), sum(number) from numbers group by thread order by thread").fetchall())
base.close()
