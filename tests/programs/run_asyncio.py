"""An event loop with work in threads, and a task that fails without anybody looking."""

import asyncio
import threading
import time

lock = threading.Lock()
total = 0


def work(number):
    global total  # noqa: PLW0603
    with lock:
        total += number
        time.sleep(0.001)
    return number


async def fail():
    raise RuntimeError("nobody looks")


async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: print("unhandled:", context["exception"]))
    task = asyncio.ensure_future(fail())
    found = await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(20)))
    found += await asyncio.gather(*(loop.run_in_executor(None, work, number) for number in range(20)))
    gate, seen = asyncio.Lock(), []

    async def enter(number):
        async with gate:
            seen.append(number)

    await asyncio.gather(*(enter(number) for number in range(5)))
    print(sum(found), total, seen)
    del task


asyncio.run(main())
