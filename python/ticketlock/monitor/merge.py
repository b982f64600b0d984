"""Two consecutive snapshots as one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from .model import Totals
from .rows import retired_row, row_order, same_process, shared
from .tally import Tally, added, known_sum, waits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .model import Blame, LockRow, SiteRow, Snapshot, ThreadRow, Waits


def merge(first: Snapshot, second: Snapshot) -> Snapshot:
    """What went on in both intervals, and how things stood at the end of `second`, which follows on `first`.

    Counts are exact, shares and blames weighted by time. Locks that are gone by the end are found in the row of their site. A
    snapshot of another process has nothing to add.
    """
    if not same_process(first.process, second.process):
        return second
    return _Merger(first, second).snapshot()


class _Merger:
    def __init__(self, first: Snapshot, second: Snapshot) -> None:
        self.first = first
        self.second = second
        self.interval_ns = first.interval_ns + second.interval_ns

    def snapshot(self) -> Snapshot:
        before, after = self.first.totals, self.second.totals
        return replace(
            self.second,
            interval_ns=self.interval_ns,
            locks=self._locks(),
            sites=self._sites(),
            threads=self._threads(),
            totals=Totals(
                locks=after.locks,
                acquisitions=before.acquisitions + after.acquisitions,
                contended=before.contended + after.contended,
                wait_share=self._share(before.wait_share, after.wait_share),
            ),
        )

    def _share(self, first: float, second: float) -> float:
        if not self.interval_ns:
            return 0.0
        return first * (self.first.interval_ns / self.interval_ns) + second * (self.second.interval_ns / self.interval_ns)

    def _locks(self) -> tuple[LockRow, ...]:
        left, gone = self._left_and_gone()
        before = {row.id: row for row in self.first.locks if row.id is not None}
        rows = [replace(row, wait_share=self._share(row.wait_share, 0.0)) for row in left]
        for row in self.second.locks:
            if row.id is None:
                rows.append(self._both(gone.pop(row.site, None), row))
            else:
                rows.append(self._both(before.get(row.id), row))
        rows.extend(replace(row, wait_share=self._share(row.wait_share, 0.0)) for row in gone.values())
        return tuple(sorted(rows, key=row_order))

    def _both(self, first: LockRow | None, second: LockRow) -> LockRow:
        if first is None:
            return replace(second, wait_share=self._share(0.0, second.wait_share))
        return replace(
            second,
            acquisitions=known_sum(first.acquisitions, second.acquisitions),
            contended=first.contended + second.contended,
            wait_share=self._share(first.wait_share, second.wait_share),
            waits=_waits(first.waits, second.waits),
            parks=first.parks + second.parks,
            timeouts=first.timeouts + second.timeouts,
            hand_overs=first.hand_overs + second.hand_overs,
            waiters_max=max(first.waiters_max, second.waiters_max),
            holder_sites=_blames(first, second, first.holder_sites, second.holder_sites),
            waiter_sites=_blames(first, second, first.waiter_sites, second.waiter_sites),
        )

    def _left_and_gone(self) -> tuple[list[LockRow], dict[str | None, LockRow]]:
        """Rows that the second snapshot only left out, and by site those of locks that are gone, as one row each."""
        here = {row.id for row in self.second.locks if row.id is not None}
        missing: dict[str | None, list[LockRow]] = defaultdict(list)
        retired: dict[str | None, list[LockRow]] = defaultdict(list)
        for row in self.first.locks:
            if row.id is None:
                retired[row.site].append(row)
            elif row.id not in here:
                missing[row.site].append(row)
        kept: list[LockRow] = []
        complete = self.second.totals.locks <= len(here)
        before, after = (_gone_by_site(snapshot.sites) for snapshot in (self.first, self.second))
        for site, rows in missing.items():
            # Where a reading left some out, their site tells how many are gone.
            number = len(rows) if complete or site is None else max(0, after.get(site, 0) - before.get(site, 0))
            retired[site].extend(rows[:number])
            kept.extend(rows[number:])
        return kept, {site: _folded(site, rows) for site, rows in retired.items() if rows}

    def _sites(self) -> tuple[SiteRow, ...]:
        before = {row.site: row for row in self.first.sites}
        rows = []
        for row in self.second.sites:
            former = before.get(row.site)
            rows.append(
                replace(row, wait_share=self._share(0.0, row.wait_share))
                if former is None
                else replace(
                    row,
                    acquisitions=former.acquisitions + row.acquisitions,
                    contended=former.contended + row.contended,
                    wait_share=self._share(former.wait_share, row.wait_share),
                    waits=_waits(former.waits, row.waits),
                )
            )
        return tuple(sorted(rows, key=row_order))

    def _threads(self) -> tuple[ThreadRow, ...]:
        before = {(row.ident, row.native_id): row for row in self.first.threads}
        return tuple(_thread(before.get((row.ident, row.native_id)), row) for row in self.second.threads)


def _thread(first: ThreadRow | None, second: ThreadRow) -> ThreadRow:
    if first is None:
        return second
    return replace(
        second,
        waits=first.waits + second.waits,
        wait_ns_sum=first.wait_ns_sum + second.wait_ns_sum,
        parks=first.parks + second.parks,
        polls=first.polls + second.polls,
    )


def _gone_by_site(sites: Iterable[SiteRow]) -> dict[str, int]:
    return {row.site: row.created - row.live for row in sites}


def _folded(site: str | None, rows: list[LockRow]) -> LockRow:
    tally = Tally()
    for row in rows:
        tally.add(
            Tally(
                acquisitions=row.acquisitions,
                contended=row.contended,
                wait_ns_sum=row.waits.sum,
                limit=row.waits.max or 0,
                log2=row.waits.log2,
                parks=row.parks,
                timeouts=row.timeouts,
                hand_overs=row.hand_overs,
            )
        )
    kinds = {row.kind for row in rows}
    folded = retired_row(
        site,
        sum(1 if row.id is not None else row.retired for row in rows),
        kinds.pop() if len(kinds) == 1 else "unknown",
        rows[0].internal,
        tally,
        sum(row.wait_share for row in rows),
    )
    return replace(folded, waiters_max=max(row.waiters_max for row in rows))


def _waits(first: Waits, second: Waits) -> Waits:
    return waits(added(first.log2, second.log2), first.sum + second.sum, max(first.max or 0, second.max or 0))


def _blames(first: LockRow, second: LockRow, before: Iterable[Blame], after: Iterable[Blame]) -> tuple[Blame, ...]:
    """Each share stands for that share of the waiting time of its interval."""
    lines: dict[str, tuple[str, int, float]] = {}
    for row, blames in ((first, before), (second, after)):
        for blame in blames:
            _, samples, weight = lines.get(blame.site, ("", 0, 0.0))
            lines[blame.site] = (blame.function, samples + blame.samples, weight + blame.share * row.waits.sum)
    return shared(lines)
