"""The inner loops: pure Python, the same for every lock.

What a loop looks at in every turn belongs to its thread alone (its flag, its ranges), so that free-threaded interpreters
count references to it without touching other CPUs. What the lock guards is one list.
"""

from __future__ import annotations

from array import array
from time import perf_counter, perf_counter_ns, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .locks import LockLike

# Places in the list that the lock guards: acquisitions so far; the thread served last, since when, and when last.
COUNT, OWNER, SINCE, LATEST = range(4)

# An arrival that is none: later than every clock reading.
NEVER = 1 << 63

WINDOW_NS = 100_000_000

# Only the first acquisitions of a round are examined for overtakes; a hundred thousand show how a lock serves.
EXAMINED = 100_000

# Length and number of the loops that calibrate work: 10,000 turns are long against the clock's resolution, and the median
# of eleven leaves out the disturbed ones.
TRIAL_TURNS = 10_000
TRIALS = 11


def guarded() -> list[int]:
    """The list for one lock."""
    return [0, -1, 0, 0]


class Load:
    """What a turn does in the section and outside it. Made by the thread that uses it."""

    def __init__(self, hold_turns: int, think_turns: int, hold_sleep_s: float, think_sleep_s: float) -> None:
        self.hold = range(hold_turns)
        self.think = range(think_turns)
        self.hold_sleeps = (hold_sleep_s,) if hold_sleep_s else ()
        self.think_sleeps = (think_sleep_s,) if think_sleep_s else ()

    @property
    def sleeps(self) -> bool:
        """Whether anything sleeps."""
        return bool(self.hold_sleeps or self.think_sleeps)


class Notes:
    """What one thread writes down in a round that times every wait. Times are `perf_counter_ns`.

    Windows begin at `opened_at`; the acquisitions after number `opened_with` are examined.
    """

    def __init__(self, opened_at: int, opened_with: int) -> None:
        self.opened_at = opened_at
        self.opened_with = opened_with
        self.done = 0
        self.waits = array("Q")
        # First acquisitions of this thread's runs, by their number.
        self.starts = array("Q")
        # Numbers and arrivals of acquisitions, as long as they are examined.
        self.numbers = array("Q")
        self.arrivals = array("Q")
        self.longest_monopoly = 0
        self.windows = [0]
        # Number, arrival and grant of the last acquisition.
        self.last = (0, 0, 0)


def work_turn_ns() -> float:
    """What a turn of the empty loop costs here."""
    turns, found = range(TRIAL_TURNS), []
    for _ in range(TRIALS):
        began = perf_counter_ns()
        for _ in turns:
            pass
        found.append(perf_counter_ns() - began)
    return sorted(found)[TRIALS // 2] / TRIAL_TURNS


def untimed(lock: LockLike, shared: list[int], running: list[bool], load: Load) -> int:
    """Work until `running` is empty; the number of acquisitions."""
    if load.sleeps:
        return _untimed_with_sleeps(lock, shared, running, load)
    if not load.hold:
        return _untimed_tiny(lock, shared, running, load)
    hold, think, done = load.hold, load.think, 0
    while running:
        with lock:
            # Read and written apart, so that a lock that lets two in is found out.
            count = shared[COUNT]
            for _ in hold:
                pass
            shared[COUNT] = count + 1
        done += 1
        for _ in think:
            pass
    return done


def _untimed_tiny(lock: LockLike, shared: list[int], running: list[bool], load: Load) -> int:
    """Without a loop in the section: starting one costs as much as the rest of it."""
    think, done = load.think, 0
    while running:
        with lock:
            shared[COUNT] += 1
        done += 1
        for _ in think:
            pass
    return done


def _untimed_with_sleeps(lock: LockLike, shared: list[int], running: list[bool], load: Load) -> int:
    hold, think, hold_sleeps, think_sleeps, done = load.hold, load.think, load.hold_sleeps, load.think_sleeps, 0
    while running:
        with lock:
            count = shared[COUNT]
            for _ in hold:
                pass
            for duration in hold_sleeps:
                sleep(duration)
            shared[COUNT] = count + 1
        done += 1
        for _ in think:
            pass
        for duration in think_sleeps:
            sleep(duration)
    return done


def timed(
    lock: LockLike,
    shared: list[int],
    running: list[bool],
    load: Load,
    me: int,
    waiting: list[list[int]],
    notes: Notes,
) -> None:
    """As `untimed`, timing every wait. `waiting` has the arrival of each thread that waits."""
    hold, think, hold_sleeps, think_sleeps = load.hold, load.think, load.hold_sleeps, load.think_sleeps
    mine, now, windows, window_ends = waiting[me], perf_counter_ns, notes.windows, notes.opened_at + WINDOW_NS
    note_wait, examined, done = notes.waits.append, notes.opened_with + EXAMINED, 0
    number = arrived = served = 0
    while running:
        arrived = now()
        mine[0] = arrived
        with lock:
            served = now()
            mine[0] = NEVER
            number = shared[COUNT]
            if shared[OWNER] != me:
                if shared[LATEST] - shared[SINCE] > notes.longest_monopoly:
                    # Looked up while nobody else can be served; rarely, since only a longer one counts.
                    first = min(arrived, *(one[0] for one in waiting))
                    monopoly = shared[LATEST] - max(shared[SINCE], first)
                    notes.longest_monopoly = max(notes.longest_monopoly, monopoly)
                shared[OWNER] = me
                shared[SINCE] = served
                notes.starts.append(number)
            shared[LATEST] = served
            for _ in hold:
                pass
            for duration in hold_sleeps:
                sleep(duration)
            shared[COUNT] = number + 1
        done += 1
        note_wait(served - arrived)
        if number < examined:
            notes.numbers.append(number)
            notes.arrivals.append(arrived)
        while served >= window_ends:
            windows.append(0)
            window_ends += WINDOW_NS
        windows[-1] += 1
        for _ in think:
            pass
        for duration in think_sleeps:
            sleep(duration)
    notes.done, notes.last = done, (number, arrived, served)


def calls(lock: LockLike, turns: range) -> float:
    """Seconds of so many `acquire(); release()`."""
    acquire, release = lock.acquire, lock.release
    began = perf_counter()
    for _ in turns:
        acquire()
        release()
    return perf_counter() - began


def withs(lock: LockLike, turns: range) -> float:
    """Seconds of so many empty `with` blocks."""
    began = perf_counter()
    for _ in turns:
        with lock:
            pass
    return perf_counter() - began


def empty(turns: range) -> float:
    """Seconds of the same loop without a lock."""
    began = perf_counter()
    for _ in turns:
        pass
    return perf_counter() - began
