"""From two readings to a snapshot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from . import graph
from .model import Blame, DelayCell, LockRow, SiteRow, Snapshot, ThreadRow, Totals, display_name, lock_name_of_id
from .rows import retired_row, row_order, same_process, shared
from .tally import NO_WAITS, Tally, of_counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .raw import Kind, Raw, RawBlame, RawLock, RawSite, RawThread


Naming = Callable[[str, int, str], str | None]


def build(raw: Raw, earlier: Raw | None, alive: Callable[[int], bool] | None = None, naming: Naming | None = None) -> Snapshot:
    """What went on from `earlier` (of the same process; None: from its creation) to `raw`.

    A wait that goes on counts in `wait_share` with its part that lies in the interval, and once it has ended only the rest of
    it counts: shares of consecutive intervals add up. `alive` tells whether the thread of a native id, as the process itself
    has it, still runs; without it no lock is marked abandoned. `naming` tells from path, line and function what a lock without a
    name is called in the source.
    """
    if earlier is not None and not same_process(raw["process"], earlier["process"]):
        earlier = None
    return _Builder(raw, earlier, alive, naming).snapshot()


class _Growth(NamedTuple):
    """What a lock did in the interval. `waited_ns` has waits that go on as well, `tally` only those that ended."""

    tally: Tally
    waited_ns: int


class _Builder:
    def __init__(self, raw: Raw, earlier: Raw | None, alive: Callable[[int], bool] | None, naming: Naming | None) -> None:
        self.naming = naming
        self.raw = raw
        self.earlier = earlier
        began = raw["process"]["created_ns"] if earlier is None else earlier["at_ns"]
        self.interval_ns = max(0, raw["at_ns"] - began)
        self.going_on = _going_on(raw)
        self.went_on = {} if earlier is None else _going_on(earlier)
        self.before = {} if earlier is None else {lock["id"]: lock for lock in earlier["locks"]}
        self.threads_of: dict[int, list[RawThread]] = defaultdict(list)
        for thread in raw["threads"]:
            if thread["ident"]:
                self.threads_of[thread["ident"]].append(thread)
        self.ended = _Ended(alive)
        self.sites = _places(raw["sites"])

    def snapshot(self) -> Snapshot:
        raw = self.raw
        blames = self._blames()
        rows: list[LockRow] = []
        growth_of_site: dict[str, _Growth] = {}
        kinds: dict[str, set[Kind]] = defaultdict(set)
        for lock in raw["locks"]:
            growth = self._growth(lock)
            row = self._lock(lock, growth, blames)
            rows.append(row)
            if row.site is not None:
                _grow(growth_of_site, row.site, growth)
                kinds[row.site].add(row.kind)
        names = {row.id: display_name(row) for row in rows if row.id is not None}
        rows.extend(self._retired(growth_of_site, kinds, blames))
        rows.sort(key=row_order)
        return Snapshot(
            process=raw["process"],
            at_ns=raw["at_ns"],
            interval_ns=self.interval_ns,
            locks=tuple(rows),
            sites=self._sites(growth_of_site),
            threads=self._threads(names),
            cycles=graph.of(raw),
            dropped={what: number for what, number in raw["dropped"].items() if isinstance(number, int) and number},
            totals=self._totals(),
        )

    def _share(self, waited_ns: int) -> float:
        return max(0, waited_ns) / self.interval_ns if self.interval_ns else 0.0

    def _site(self, index: int | None) -> RawSite | None:
        return self.raw["sites"][index] if index is not None and 0 <= index < len(self.raw["sites"]) else None

    def _growth(self, lock: RawLock) -> _Growth:
        now = lock["counters"]
        before = self.before.get(lock["id"])
        going_on = self.going_on.get(lock["id"], 0) - self.went_on.get(lock["id"], 0)
        if before is not None and before["counters"] == now:
            idle = Tally(acquisitions=None if now["acquisitions"] is None else 0, limit=now["wait_ns_max"])
            return _Growth(idle, max(0, going_on))
        tally = of_counters(now)
        if before is None:
            waited = tally.wait_ns_sum + going_on
            if self.earlier is not None:
                # New, or left out of the earlier reading: then its whole life is counted, but no more than can have been.
                waited = min(waited, max(lock["waiters_max"], 1) * self.interval_ns)
            return _Growth(tally, max(0, waited))
        waited = now["wait_ns_sum"] - before["counters"]["wait_ns_sum"] + going_on
        return _Growth(tally.since(of_counters(before["counters"])), max(0, waited))

    def _lock(self, lock: RawLock, growth: _Growth, blames: Mapping[tuple[int, str], tuple[Blame, ...]]) -> LockRow:
        index = lock["site"]
        site = self._site(index)
        tally = growth.tally
        owner = lock["owner"]
        holders = self.threads_of.get(owner, []) if owner else []
        return LockRow(
            id=lock["id"],
            name=lock["name"] or self._named(site),
            kind=lock["kind"],
            site=None if index is None or site is None else self.sites[index],
            internal=site is not None and site["internal"],
            retired=0,
            acquisitions=tally.acquisitions,
            contended=tally.contended,
            wait_share=self._share(growth.waited_ns),
            waits=tally.waits() if tally.log2 or tally.wait_ns_sum else NO_WAITS,
            parks=tally.parks,
            timeouts=tally.timeouts,
            hand_overs=tally.hand_overs,
            owner=owner,
            owner_name=next((thread["name"] for thread in reversed(holders) if thread["name"]), None),
            # An ident is used again once its thread has ended: one that lives is enough to doubt.
            abandoned=bool(holders) and all(self.ended(thread["native_id"]) for thread in holders),
            waiters=lock["waiters"],
            waiters_max=lock["waiters_max"],
            holder_sites=blames.get((lock["id"], "holder"), ()),
            waiter_sites=blames.get((lock["id"], "waiter"), ()),
        )

    def _named(self, site: RawSite | None) -> str | None:
        """What the source calls the locks of a line. Not those that a library made for itself, which that line does not name."""
        if self.naming is None or site is None or site["internal"]:
            return None
        return self.naming(site["path"], site["line"], site["function"])

    def _retired(
        self,
        growth_of_site: dict[str, _Growth],
        kinds: Mapping[str, set[Kind]],
        blames: Mapping[tuple[int, str], tuple[Blame, ...]],
    ) -> Iterable[LockRow]:
        """One row for each line with locks that are gone, which are added to `growth_of_site`."""
        gone = self._gone()
        grown: dict[str, _Growth] = {}
        number: Counter[str] = Counter()
        internal: dict[str, bool] = {}
        numbers: dict[str, int] = {}
        for index, site in enumerate(self.raw["sites"]):
            left = max(0, site["created"] - site["live"])
            if not left and not any(site["retired"].values()):
                continue
            place = self.sites[index]
            base = Tally()
            earlier = self._earlier_site(index)
            if earlier is not None:
                base.add(of_counters(earlier["retired"]))
            waited_before = 0
            for lock in gone.get(index, ()):
                base.add(of_counters(lock["counters"]))
                waited_before += self.went_on.get(lock["id"], 0)
            tally = of_counters(site["retired"]).since(base)
            waited = max(0, site["retired"]["wait_ns_sum"] - base.wait_ns_sum - waited_before)
            _grow(grown, place, _Growth(tally, waited))
            number[place] += left
            internal.setdefault(place, site["internal"])
            numbers.setdefault(place, _number_of_retired(index))
        for place, growth in grown.items():
            _grow(growth_of_site, place, growth)
            site = self.raw["sites"][-1 - numbers[place]]
            all_kinds = kinds.get(place, set()) | {site.get("retired_kind", "unknown")} - {"unknown"}
            kind = next(iter(all_kinds)) if len(all_kinds) == 1 else "unknown"
            row = retired_row(place, number[place], kind, internal[place], growth.tally, self._share(growth.waited_ns))
            yield replace(
                row,
                name=self._named(site),
                waiters_max=site.get("retired_waiters_max", 0),
                holder_sites=blames.get((numbers[place], "holder"), ()),
                waiter_sites=blames.get((numbers[place], "waiter"), ()),
            )

    def _earlier_site(self, index: int) -> RawSite | None:
        if self.earlier is None or index >= len(self.earlier["sites"]):
            return None
        return self.earlier["sites"][index]

    def _gone(self) -> dict[int, list[RawLock]]:
        """Locks of the earlier reading that are gone, by site: their site has taken over what they counted until then."""
        if self.earlier is None:
            return {}
        here = {lock["id"] for lock in self.raw["locks"]}
        gone: dict[int, list[RawLock]] = defaultdict(list)
        for lock in self.earlier["locks"]:
            if lock["id"] not in here and lock["site"] is not None:
                gone[lock["site"]].append(lock)
        if self.raw["totals"]["locks"] > len(here):
            # Some were only left out of this reading; their site tells how many at least.
            for index, locks in gone.items():
                now, then = self._site(index), self._earlier_site(index)
                left = 0 if now is None or then is None else now["created"] - now["live"] - then["created"] + then["live"]
                del locks[max(0, left) :]
        return gone

    def _sites(self, growth_of_site: Mapping[str, _Growth]) -> tuple[SiteRow, ...]:
        first: dict[str, RawSite] = {}
        created: Counter[str] = Counter()
        live: Counter[str] = Counter()
        for place, site in zip(self.sites, self.raw["sites"], strict=True):
            if site["created"] or place in growth_of_site:
                first.setdefault(place, site)
                created[place] += site["created"]
                live[place] += site["live"]
        rows = []
        for place, site in first.items():
            growth = growth_of_site.get(place) or _Growth(Tally(), 0)
            rows.append(
                SiteRow(
                    site=place,
                    function=site["function"],
                    internal=site["internal"],
                    created=created[place],
                    live=live[place],
                    acquisitions=growth.tally.acquisitions or 0,
                    contended=growth.tally.contended,
                    wait_share=self._share(growth.waited_ns),
                    waits=growth.tally.waits(),
                )
            )
        return tuple(sorted(rows, key=row_order))

    def _threads(self, names: Mapping[int, str]) -> tuple[ThreadRow, ...]:
        before = {} if self.earlier is None else {(one["ident"], one["native_id"]): one for one in self.earlier["threads"]}
        return tuple(
            self._thread(thread, before.get((thread["ident"], thread["native_id"])), names)
            for thread in self.raw["threads"]
            # One that only held what others waited for gives no notice of its end.
            if thread["waiting_on"] is not None or not self.ended(thread["native_id"])
        )

    def _thread(self, thread: RawThread, before: RawThread | None, names: Mapping[int, str]) -> ThreadRow:
        lock, started = thread["waiting_on"], thread["wait_started_ns"]
        return ThreadRow(
            ident=thread["ident"],
            native_id=thread["native_id"],
            name=thread["name"],
            state=thread["state"],
            waiting_on=lock,
            waiting_on_name=None if lock is None else names.get(lock) or lock_name_of_id(lock),
            waiting_ns=None if lock is None or started is None else max(0, self.raw["at_ns"] - started),
            waits=max(0, thread["waits"] - (before["waits"] if before else 0)),
            wait_ns_sum=max(0, thread["wait_ns_sum"] - (before["wait_ns_sum"] if before else 0)),
            parks=max(0, thread["parks"] - (before["parks"] if before else 0)),
            polls=max(0, thread["polls"] - (before["polls"] if before else 0)),
            # By place: there may be tens of thousands.
            delays=tuple(
                [
                    DelayCell(
                        cell["lock"],
                        names.get(cell["lock"]) or lock_name_of_id(cell["lock"]),
                        cell["delay"],
                        cell["hits"],
                        cell["collisions"],
                        cell["spin_score"],
                    )
                    for cell in thread["delays"]
                ]
            ),
            recent_waits_ns=tuple(thread["recent_waits_ns"]),
        )

    def _blames(self) -> dict[tuple[int, str], tuple[Blame, ...]]:
        before = {} if self.earlier is None else {(one["lock"], one["role"], one["site"]): one for one in _charged(self.earlier)}
        charged: dict[tuple[int, str], dict[str, tuple[str, int, int]]] = defaultdict(dict)
        for blame in _charged(self.raw):
            site = self._site(blame["site"])
            if site is None:
                continue
            then = before.get((blame["lock"], blame["role"], blame["site"]))
            samples = blame["samples"] - (then["samples"] if then else 0)
            weight = blame["weight_ns"] - (then["weight_ns"] if then else 0)
            if samples <= 0:
                continue
            lines = charged[blame["lock"], blame["role"]]
            place = self.sites[blame["site"]]
            _, others, other_weight = lines.get(place, ("", 0, 0))
            lines[place] = (site["function"], samples + others, max(0, weight) + other_weight)
        return {key: shared(lines) for key, lines in charged.items()}

    def _totals(self) -> Totals:
        now = self.raw["totals"]
        then = None if self.earlier is None else self.earlier["totals"]
        # What idle threads wait for inside a condition is a lock, but no contention.
        idle = {lock["id"] for lock in self.raw["locks"] if (site := self._site(lock["site"])) is not None and site["internal"]}
        waited = now["wait_ns_sum"] + sum(ns for lock, ns in self.going_on.items() if lock not in idle)
        if then is not None:
            waited -= then["wait_ns_sum"] + sum(ns for lock, ns in self.went_on.items() if lock not in idle)
        return Totals(
            locks=now["locks"],
            acquisitions=max(0, now["acquisitions"] - (then["acquisitions"] if then else 0)),
            contended=max(0, now["contended"] - (then["contended"] if then else 0)),
            wait_share=self._share(waited),
        )


def _charged(raw: Raw) -> Iterable[RawBlame]:
    """All lines that waits are charged to; of locks that are gone under a number that no lock has, one for each site."""
    yield from raw["blames"]
    for one in raw.get("retired_blames", ()):
        yield {
            "lock": _number_of_retired(one["of_site"]),
            "role": one["role"],
            "site": one["site"],
            "samples": one["samples"],
            "weight_ns": one["weight_ns"],
        }


def _number_of_retired(site: int) -> int:
    return -1 - site


class _Ended:
    """Whether a thread is known to have ended; every id is asked for once."""

    def __init__(self, alive: Callable[[int], bool] | None) -> None:
        self._alive = alive
        self._known: dict[int, bool] = {}

    def __call__(self, native_id: int) -> bool:
        if self._alive is None or not native_id:
            return False
        if native_id not in self._known:
            self._known[native_id] = not self._alive(native_id)
        return self._known[native_id]


def _grow(grown: dict[str, _Growth], place: str, growth: _Growth) -> None:
    there = grown.get(place) or _Growth(Tally(), 0)
    there.tally.add(growth.tally)
    grown[place] = _Growth(there.tally, there.waited_ns + growth.waited_ns)


def _places(sites: Sequence[RawSite]) -> list[str]:
    """Each site's path and line. A line that makes locks may also have a library make some: those say so."""
    every = [f"{site['path']}:{site['line']}" for site in sites]
    own = {place for place, site in zip(every, sites, strict=True) if not site["internal"]}
    return [
        f"{place} (library)" if site["internal"] and place in own else place for place, site in zip(every, sites, strict=True)
    ]


def _going_on(raw: Raw) -> dict[int, int]:
    """For each lock, how long those who wait for it have waited so far."""
    waiting: dict[int, int] = {}
    longest = max(0, raw["at_ns"] - raw["process"]["created_ns"])
    for thread in raw["threads"]:
        lock, started = thread["waiting_on"], thread["wait_started_ns"]
        if lock is not None and started is not None:
            waiting[lock] = waiting.get(lock, 0) + min(max(0, raw["at_ns"] - started), longest)
    return waiting
