"""Made-up readings of a process. `tick` is the time since its creation in half seconds; counters grow with it.

`few`, `many`, `hostile`, `deadlock`, `abandoned` and `empty` are the same for the same arguments. `Wild` makes up a whole life
of a process at random, in which locks and threads come and go.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticketlock.monitor.raw import Counters, Raw, RawBlame, RawDelay, RawEvent, RawLock, RawProcess, RawSite, RawThread

TICK_NS = 500_000_000
CREATED_NS = 5_000_000_000_000
PID = 4242
FIRST_IDENT = 0x7F00_0000_0000

# Names that have broken other programs' screens.
HOSTILE_NAMES = (
    "[/]",
    "a[0][b",
    "[bold red]not a style[/bold red]",
    "\x1b]0;title\x07\x1b[31mred\x1b[?1049h",
    "\x9b31mC1",
    "\u2764\ufe0f\U0001f469\u200d\U0001f469\u200d\U0001f467 family",
    "\u202edesrever\u202c",
    "x" * 10_000,
    "\u9396" * 200,
    "\udcff\ud800 lone",
    "two\nlines\r\tand a tab",
    "a;b c 12",
    'quote " back\\slash',
    "=1+1",
    "e\u0301" * 20,
    "\x00",
    "   ",
    "",
    "#7",
)


def process(**changes: Any) -> RawProcess:
    made: RawProcess = {
        "pid": PID,
        "inner_pid": PID,
        "start_ticks": 1234,
        "created_ns": CREATED_NS,
        "python": "3.14.0",
        "free_threaded": False,
        "version": "0.1.0",
        "sites": True,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def log2_of(waits: list[int]) -> list[int]:
    """Counts by class of some waits."""
    classes: list[int] = []
    for wait in waits:
        index = max(0, wait.bit_length() - 1)
        classes.extend([0] * (index + 1 - len(classes)))
        classes[index] += 1
    return classes


def counters(acquisitions: int | None = 0, waits: list[int] | None = None, **changes: Any) -> Counters:
    """Counters that fit together: those of a lock with these waits."""
    waits = waits or []
    made: Counters = {
        "acquisitions": acquisitions,
        "contended": len(waits),
        "wait_ns_sum": sum(waits),
        "wait_ns_max": max(waits, default=0),
        "wait_ns_log2": log2_of(waits),
        "parks": len(waits) // 2,
        "timeouts": 0,
        "hand_overs": len(waits) // 10,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def regular(tick: int, per_tick: int, wait_ns: int, acquisitions: int) -> Counters:
    """Counters of a lock that does the same every tick: `per_tick` waits of `wait_ns`, a hundredth of them 16 times that."""
    waits = per_tick * tick
    long = waits // 100
    classes = [0] * (max(1, wait_ns * 16).bit_length())
    classes[max(0, wait_ns.bit_length() - 1)] += waits - long
    classes[-1] += long
    while classes and not classes[-1]:
        classes.pop()
    longest = wait_ns * 16 if long else wait_ns
    return counters(
        acquisitions * tick,
        contended=waits,
        wait_ns_sum=(waits - long) * wait_ns + long * wait_ns * 16,
        wait_ns_max=longest if waits else 0,
        wait_ns_log2=classes,
        parks=waits // 3,
        hand_overs=waits // 7,
        timeouts=tick if waits else 0,
    )


def lock(id: int, name: str | None = None, site: int | None = None, counted: Counters | None = None, **changes: Any) -> RawLock:  # noqa: A002
    made: RawLock = {
        "id": id,
        "name": name,
        "kind": "Lock",
        "site": site,
        "owner": None,
        "waiters": 0,
        "waiters_max": 0,
        "counters": counters() if counted is None else counted,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def site(path: str, line: int, function: str = "work", created: int = 0, live: int | None = None, **changes: Any) -> RawSite:
    made: RawSite = {
        "path": path,
        "line": line,
        "function": function,
        "internal": False,
        "created": created,
        "live": created if live is None else live,
        "retired": counters(),
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def thread(number: int, name: str | None = None, **changes: Any) -> RawThread:
    """Thread `number` has the ident `ident(number)`."""
    made: RawThread = {
        "ident": ident(number),
        "native_id": PID + number,
        "name": name,
        "state": "running",
        "waiting_on": None,
        "wait_started_ns": None,
        "waits": 0,
        "wait_ns_sum": 0,
        "parks": 0,
        "polls": 0,
        "delays": [],
        "recent_waits_ns": [],
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def ident(number: int) -> int:
    return FIRST_IDENT + number * 0x1000


def delay(lock: int, units: float, hits: int = 10, collisions: int = 0, spin_score: int = 5) -> RawDelay:
    return {"lock": lock, "delay": units, "hits": hits, "collisions": collisions, "spin_score": spin_score}


def blame(lock: int, role: Any, site: int, samples: int, weight_ns: int) -> RawBlame:
    return {"lock": lock, "role": role, "site": site, "samples": samples, "weight_ns": weight_ns}


def reading(
    tick: int = 0,
    locks: list[RawLock] | None = None,
    sites: list[RawSite] | None = None,
    threads: list[RawThread] | None = None,
    blames: list[RawBlame] | None = None,
    **changes: Any,
) -> Raw:
    """A reading whose totals fit its parts."""
    locks, sites = locks or [], sites or []
    counted = [one["counters"] for one in locks] + [one["retired"] for one in sites]
    made: Raw = {
        "at_ns": CREATED_NS + tick * TICK_NS,
        "process": process(),
        "locks": locks,
        "sites": sites,
        "threads": threads or [],
        "blames": blames or [],
        "dropped": {"locks": 0, "sites": 0, "threads": 0, "strings": 0, "blames": 0},
        "totals": {
            "locks": len(locks),
            "acquisitions": sum(one["acquisitions"] or 0 for one in counted),
            "contended": sum(one["contended"] for one in counted),
            "wait_ns_sum": sum(one["wait_ns_sum"] for one in counted),
        },
        "next_event": 0,
    }
    return {**made, **changes}  # type: ignore[typeddict-item]


def empty(tick: int = 1) -> Raw:
    """Nothing has happened, and no lock exists."""
    return reading(tick)


def few(tick: int = 2) -> Raw:
    """A few locks: a hot one, a quiet unnamed one, an internal one, an embedded one, a fresh one, some that are gone."""
    at = CREATED_NS + tick * TICK_NS
    sites = [
        site("/srv/app/cache.py", 88, "__init__", 1),
        site("/srv/app/pool.py", 31, "checkout", 41 + tick, 1, retired=regular(tick, 3, 2_000, 400)),
        site("/usr/lib/python3.14/logging/__init__.py", 233, "<module>", 1, internal=True),
        site("/srv/app/views.py", 120, "get"),
        site("/srv/app/views.py", 171, "put"),
        site("/srv/app/cache.py", 140, "refresh"),
    ]
    locks = [
        lock(1, "cache.lock", 0, regular(tick, 4_000, 41_000, 90_000), owner=ident(1), waiters=2, waiters_max=23),
        lock(2, None, 1, regular(tick, 5, 2_000, 700), waiters_max=1),
        lock(3, None, 2, regular(tick, 1, 900, 2_000), kind="RLock", waiters_max=1),
        lock(4, "native.table", None, counters(None, [700, 90_000] * tick), kind="native", waiters_max=2),
        lock(5, "fresh", None),
    ]
    threads = [
        thread(
            0,
            "MainThread",
            state="parked",
            waiting_on=1,
            wait_started_ns=at - 310_000,
            waits=40 * tick,
            wait_ns_sum=40 * tick * 41_000,
            parks=13 * tick,
            polls=900 * tick,
            delays=[delay(1, 390.5, 44, 1, 12)],
            recent_waits_ns=[41_000 + 500 * step for step in range(32)],
        ),
        thread(
            1,
            "worker-7",
            waits=3_000 * tick,
            wait_ns_sum=3_000 * tick * 41_000,
            polls=81_000 * tick,
            delays=[delay(1, 512.0, 3_000 * tick, 4, 40), delay(2, 1.0, 5, 0, -3)],
            recent_waits_ns=[40_000, 38_000, 656_000],
        ),
        thread(
            2, None, state="spinning", waiting_on=1, wait_started_ns=at - 3_000, waits=960 * tick, wait_ns_sum=960 * tick * 41_000
        ),
    ]
    blames = [
        blame(1, "waiter", 3, 30 * tick, 120_000_000 * tick),
        blame(1, "waiter", 4, 10 * tick, 44_000_000 * tick),
        blame(1, "holder", 5, 36 * tick, 150_000_000 * tick),
        blame(1, "holder", 3, 4 * tick, 14_000_000 * tick),
    ]
    return reading(tick, locks, sites, threads, blames, next_event=4_000 * tick)


def many(count: int = 500, tick: int = 2, threads: int = 64, delays: int = 4) -> Raw:
    """Many locks, the later ones less contended, created at a tenth as many lines."""
    lines = max(1, count // 10)
    sites = [
        site(
            f"/srv/app/module_{line % 37}.py",
            10 + line,
            f"make_{line}",
            len(range(line, count, lines)) + line,
            retired=regular(tick, line % 3, 900, 10),
        )
        for line in range(lines)
    ]
    for one in sites[:lines]:
        one["live"] = one["created"] - sites.index(one)
    locks = [
        lock(
            1 + number,
            f"lock-{number:04}" if number % 3 else None,
            number % lines,
            regular(tick, max(0, count - 2 * number), 500 + 40 * number, 10 * (count - number)),
            owner=ident(number % threads) if number % 5 == 0 else None,
            waiters=number % 4 if number < 20 else 0,
            waiters_max=number % 30,
        )
        for number in range(count)
    ]
    crew = [
        thread(
            number,
            f"Thread-{number}",
            waits=number * tick,
            wait_ns_sum=number * tick * 5_000,
            delays=[delay(1 + (number * 7 + step) % count, 1.0 + step * 37.5) for step in range(delays)] if count else [],
            recent_waits_ns=[1_000 * (step + number) for step in range(32)],
        )
        for number in range(threads)
    ]
    return reading(tick, locks, sites, crew)


def hostile(tick: int = 2) -> Raw:
    """Names, paths, functions and thread names that try to break the screen or the file they are written to."""
    sites = [site(f"/tmp/{name}/a.py", number, name, 1) for number, name in enumerate(HOSTILE_NAMES)]
    locks = [
        lock(
            1 + number,
            name if number % 4 else None,
            number,
            regular(tick, 10 + number, 3_000, 100),
            owner=ident(number),
            waiters=1,
            waiters_max=2,
        )
        for number, name in enumerate(HOSTILE_NAMES)
    ]
    threads = [
        thread(
            number,
            name,
            state="parked",
            waiting_on=1 + (number + 2) % len(locks) if number < 3 else None,
            wait_started_ns=CREATED_NS if number < 3 else None,
            delays=[delay(1 + number, 3.5), delay(99_999, 1.0)],
        )
        for number, name in enumerate(HOSTILE_NAMES)
    ]
    blames = [
        one
        for number in range(len(locks))
        for one in (blame(1 + number, "waiter", number, 5 * tick, 5_000 * tick), blame(1 + number, "holder", 0, tick, 0))
    ]
    return reading(
        tick, locks, sites, threads, blames, dropped={"locks": 3, "sites": 0, "threads": 0, "strings": 17, "blames": 0}
    )


def deadlock(tick: int = 4) -> Raw:
    """Three threads that wait for each other since tick 1, one that waits for a lock it holds itself, one that waits for them."""
    since = CREATED_NS + TICK_NS

    def stuck(number: int, name: str, lock: int) -> RawThread:
        return thread(number, name, state="parked", waiting_on=lock, wait_started_ns=since, waits=1)

    sites = [site("/srv/app/accounts.py", 12 + number, "open_account", 1) for number in range(4)]
    locks = [
        lock(1, "account-a", 0, counters(10), owner=ident(1), waiters=2, waiters_max=2),
        lock(2, "account-b", 1, counters(10), owner=ident(2), waiters=1, waiters_max=1),
        lock(3, "account-c", 2, counters(10), owner=ident(3), waiters=1, waiters_max=1),
        lock(4, None, 3, counters(1), owner=ident(4), waiters=1, waiters_max=1),
    ]
    threads = [
        thread(0, "MainThread"),
        stuck(1, "transfer-1", 2),
        stuck(2, "transfer-2", 3),
        stuck(3, "transfer-3", 1),
        stuck(4, "recursive", 4),
        stuck(5, "onlooker", 1),
    ]
    return reading(tick, locks, sites, threads)


def abandoned(tick: int = 4) -> Raw:
    """A lock whose owner is thread 1; whether that has ended is for `alive` to say."""
    locks = [lock(1, "left-behind", None, counters(3), owner=ident(1), waiters=1, waiters_max=1)]
    threads = [thread(1, "short-lived"), thread(2, "waits", state="parked", waiting_on=1, wait_started_ns=CREATED_NS + TICK_NS)]
    return reading(tick, locks, [], threads)


def events(count: int = 100, threads: int = 4, locks: int = 3, first: int = 0) -> list[RawEvent]:
    """Waits that ended one after the other, those of several threads overlapping."""
    return [
        {
            "sequence": number,
            "lock": 1 + number % locks,
            "ident": ident(number % threads),
            "started_ns": CREATED_NS + 10_000 * (number // threads) + 7 * (number % threads),
            "duration_ns": 9_000 - number % 13,
            "outcome": ("acquired", "handed_over", "timed_out", "interrupted")[number % 4],
        }
        for number in range(first, first + count)
    ]


class Wild:
    """A process that does as a random generator says. `reading()` shows it, `live()` lets time pass."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = CREATED_NS + self._random.randrange(1, 1 << 34)
        self._sites = [self._new_site(number) for number in range(self._random.randrange(1, 6))]
        self._locks: dict[int, RawLock] = {}
        self._waits: dict[int, list[int]] = {}
        self._retired: dict[int, list[int]] = {number: [] for number in range(len(self._sites))}
        self._gone_acquisitions = dict.fromkeys(self._retired, 0)
        self._gone_waiters = dict.fromkeys(self._retired, 0)
        self._threads = [
            thread(number, self._random.choice((None, f"t{number}"))) for number in range(self._random.randrange(1, 9))
        ]
        self._blames: dict[tuple[int, Any, int], RawBlame] = {}
        self._next = 1

    def _new_site(self, number: int) -> RawSite:
        return site(f"/srv/app/{self._random.choice('abc')}.py", 10 + number, "work", internal=self._random.random() < 0.2)

    def live(self) -> None:
        """Let a random amount of time pass, in which locks come, work and go, and threads begin and end waits."""
        chance = self._random
        spent = chance.choice((0, 1, 1_000, chance.randrange(1 << 36)))
        for _ in range(chance.randrange(12)):
            self._create()
        for one in list(self._locks.values()):
            self._use(one)
            if chance.random() < 0.15:
                self._end(one)
        self._now += spent
        for one in self._threads:
            self._wait(one)

    def _create(self) -> None:
        where = self._random.randrange(len(self._sites))
        self._sites[where]["created"] += 1
        self._locks[self._next] = lock(self._next, self._random.choice((None, f"lock {self._next}")), where)
        self._waits[self._next] = []
        self._next += 1

    def _use(self, one: RawLock) -> None:
        chance = self._random
        waits = self._waits[one["id"]]
        waits.extend(chance.randrange(1 << chance.randrange(1, 40)) for _ in range(chance.choice((0, 0, 1, 5))))
        one["counters"] = counters((one["counters"]["acquisitions"] or 0) + chance.randrange(100), waits)
        one["owner"] = chance.choice((None, ident(chance.randrange(10))))
        one["waiters"] = chance.randrange(4)
        one["waiters_max"] = max(one["waiters"], one["waiters_max"])
        for role in ("waiter", "holder"):
            key = (one["id"], role, chance.randrange(len(self._sites)))
            known = self._blames.setdefault(key, blame(*key, 0, 0))
            known["samples"] += chance.randrange(3)
            known["weight_ns"] += known["samples"] * chance.randrange(10_000)

    def _end(self, one: RawLock) -> None:
        where = one["site"]
        assert where is not None
        self._retired[where].extend(self._waits.pop(one["id"]))
        self._gone_waiters[where] = max(self._gone_waiters[where], one["waiters_max"])
        self._gone_acquisitions[where] += one["counters"]["acquisitions"] or 0
        del self._locks[one["id"]]
        for who in self._threads:
            if who["waiting_on"] == one["id"]:
                who["waiting_on"] = who["wait_started_ns"] = None

    def _wait(self, one: RawThread) -> None:
        chance = self._random
        one["waits"] += chance.randrange(5)
        one["wait_ns_sum"] += chance.randrange(1_000_000)
        if self._locks and chance.random() < 0.5:
            one["waiting_on"] = chance.choice(list(self._locks))
            one["wait_started_ns"] = self._now - chance.randrange(1_000)
            one["delays"] = [delay(one["waiting_on"], chance.random() * 16_000, spin_score=chance.randrange(-128, 128))]
        elif chance.random() < 0.5:
            one["waiting_on"] = one["wait_started_ns"] = None

    def reading(self) -> Raw:
        """How things stand, in objects of its own."""
        sites: list[RawSite] = []
        for number, one in enumerate(self._sites):
            live = sum(1 for other in self._locks.values() if other["site"] == number)
            retired = counters(self._gone_acquisitions[number], self._retired[number])
            # Each lock halves and tenths its own: their sums are not those of the whole.
            gone: dict[str, Any] = {"retired_kind": "unknown", "retired_waiters_max": self._gone_waiters[number]}
            sites.append({**one, **gone, "live": live, "retired": {**retired, "parks": 0, "hand_overs": 0}})
        locks: list[RawLock] = [
            {**one, "counters": {**one["counters"], "parks": 0, "hand_overs": 0}} for one in self._locks.values()
        ]
        made = reading(0, locks, sites, [{**one} for one in self._threads], [{**one} for one in self._blames.values()])
        return {**made, "at_ns": self._now}


def rubbish(seed: int) -> Raw:
    """A reading without any sense, of the right types and ranges: what a hostile segment may look like."""
    chance = random.Random(seed)

    def number() -> int:
        return chance.choice((0, 1, 2, 3, (1 << 63) - 1, (1 << 64) - 1, chance.randrange(1 << chance.randrange(1, 64))))

    def maybe(value: Any) -> Any:
        return chance.choice((None, value))

    def text() -> str:
        return chance.choice(HOSTILE_NAMES)

    def some() -> range:
        return range(chance.choice((0, 1, 2, 9)))

    def counted() -> Counters:
        return counters(
            maybe(number()),
            contended=number(),
            wait_ns_sum=number(),
            wait_ns_max=number(),
            wait_ns_log2=[number() for _ in range(chance.choice((0, 1, 40, 64)))],
            parks=number(),
            timeouts=number(),
            hand_overs=number(),
        )

    kinds = ("Lock", "RLock", "TicketLock", "Condition", "Semaphore", "Event", "Barrier", "Queue", "native", "unknown")
    return {
        "at_ns": number(),
        "process": process(created_ns=chance.choice((0, CREATED_NS, (1 << 64) - 1))),
        "locks": [
            lock(
                number(),
                maybe(text()),
                maybe(number()),
                counted(),
                kind=chance.choice(kinds),
                owner=maybe(number()),
                waiters=number(),
                waiters_max=number(),
            )
            for _ in some()
        ],
        "sites": [
            site(text(), number(), text(), number(), number(), internal=chance.random() < 0.5, retired=counted()) for _ in some()
        ],
        "threads": [
            thread(
                0,
                maybe(text()),
                ident=number(),
                native_id=number(),
                state=chance.choice(("running", "spinning", "parked")),
                waiting_on=maybe(number()),
                wait_started_ns=maybe(number()),
                waits=number(),
                wait_ns_sum=number(),
                parks=number(),
                polls=number(),
                delays=[
                    delay(number(), chance.random() * number(), number(), number(), chance.randrange(-128, 128)) for _ in some()
                ],
                recent_waits_ns=[number() for _ in some()],
            )
            for _ in some()
        ],
        "blames": [blame(number(), chance.choice(("waiter", "holder")), number(), number(), number()) for _ in some()],
        "dropped": {"locks": number(), "sites": 0, "threads": number(), "strings": 0, "blames": 0},
        "totals": {"locks": number(), "acquisitions": number(), "contended": number(), "wait_ns_sum": number()},
        "next_event": number(),
    }
