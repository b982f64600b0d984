"""Locks that were taken in both orders: deadlocks that have not happened yet."""

from __future__ import annotations

from dataclasses import dataclass

from . import _lab, _snapshot


@dataclass(frozen=True, slots=True)
class Taken:
    """A lock that was waited for while another was held."""

    # Id and name of the lock that was held, and where it had been taken ("path:line", None if unknown).
    first: int
    first_name: str | None
    first_site: str | None
    # Likewise of the lock that was waited for.
    then: int
    then_name: str | None
    then_site: str | None
    # The thread, as `threading.get_ident()` has it.
    ident: int


@dataclass(frozen=True, slots=True)
class Inversion:
    """Two locks that can be waited for in a circle: `pair`, and the first step of the way back from its second lock."""

    pair: Taken
    back: Taken


def check_order(on: bool = True) -> None:
    """Whether locks made from now on note in which order threads take them. Costs a look at the stack per acquisition.

    Two locks taken in both orders, whenever and by whichever threads, can deadlock: `order_inversions` lists them. An
    acquisition that does not wait (`acquire(False)`) cannot.
    """
    _lab.set_order(on)


def order_inversions() -> list[Inversion]:
    """What was found so far, at most 256, oldest first. Empty unless `check_order` is on."""
    found = _lab.order_inversions()
    if not found:
        return []
    sites: list[str] = []
    names: dict[int, str | None] = {}
    try:
        raw = _snapshot.reading()
    except RuntimeError:
        pass  # without a segment neither lines nor names are known
    else:
        sites = [f"{site['path']}:{site['line']}" for site in raw["sites"]]
        names = {lock["id"]: lock["name"] for lock in raw["locks"]}

    def site(number: int | None) -> str | None:
        return sites[number] if number is not None and number < len(sites) else None

    def taken(one: _lab._Pair) -> Taken:
        return Taken(
            first=one["first"],
            first_name=names.get(one["first"]),
            first_site=site(one["first_site"]),
            then=one["then"],
            then_name=names.get(one["then"]),
            then_site=site(one["then_site"]),
            ident=one["ident"],
        )

    return [Inversion(taken(one), taken(one["back"])) for one in found]
