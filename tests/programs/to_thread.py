"""`asyncio.to_thread` on our locks: the loop goes on while its threads wait for locks."""

import asyncio
import threading
import time

import standard_locks


async def main():
    standard_locks.check_replaced()
    lock, ticks, entered = threading.Lock(), 0, []

    def work(number):
        with lock:
            entered.append(number)
            time.sleep(0.02)
        return number

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.ensure_future(tick())
    lock.acquire()
    tasks = [asyncio.ensure_future(asyncio.to_thread(work, number)) for number in range(10)]
    await asyncio.sleep(0.2)
    assert ticks > 10, "the loop stood still while threads waited for the lock"
    assert not entered
    assert not any(task.done() for task in tasks)
    lock.release()  # taken by the loop's thread, given to another
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == list(range(10))
    assert sorted(entered) == list(range(10))

    assert await asyncio.to_thread(lock.acquire)
    assert not await asyncio.to_thread(lock.acquire, timeout=0.01)
    lock.release()
    ticking.cancel()
    await asyncio.get_running_loop().shutdown_default_executor()


if __name__ == "__main__":
    asyncio.run(main())
    print("ok")
