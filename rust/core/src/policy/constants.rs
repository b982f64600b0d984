//! Every tunable of the wait policies. "Series" is the 2013 kernel mail series on proportional back-off with automatic
//! tuning (v4/v5); "v1" is its first version. A *unit* is one policy loop: the lock performs it as spin hints worth
//! [`UNIT_NS`], the simulator as its preset's iteration time.

/// Nanoseconds that one policy unit stands for in a real lock.
///
/// Reason: the series counts pause instructions, which cost about 10 cycles (some 4 ns) on its hardware; later processors
/// made one pause up to 140 cycles, so a bare count would mean something else on every machine. Source: pause costs
/// measured in `ARCHITECTURE.md`.
pub const UNIT_NS: f64 = 4.0;

/// Fraction bits of a [`Delay`](super::Delay). Source: the series (8 bits, one unit is 256).
pub const DELAY_SHIFT: u32 = 8;

/// One unit in fixed point.
pub const DELAY_ONE: u32 = 1 << DELAY_SHIFT;

/// Growth of a delay per unsuccessful poll, in 1/256 unit: 256/7 rounded down, about one seventh of a unit.
/// Source: the series.
pub const DELAY_GROWTH: u32 = DELAY_ONE / 7;

/// An oversleep takes `max(delay / DELAY_DECAY_DIVISOR, 1 unit)` off the delay. Source: the series.
pub const DELAY_DECAY_DIVISOR: u32 = 32;

/// Smallest and first delay, in 1/256 unit. Source: the series.
pub const DELAY_MIN: u32 = DELAY_ONE;

/// Largest delay on bare metal, in units. Source: the series from v3 on (v1 and v2 had 1000).
pub const CAP_NATIVE_UNITS: u32 = 16_000;

/// Largest delay under a hypervisor, in units.
///
/// Reason: pause-loop exits already make the host step in when a guest spins; a long delay on top makes a descheduled
/// waiter finish its loops after it runs again while the lock stays idle. Source: the series, patch 5.
pub const CAP_GUEST_UNITS: u32 = 16;

/// Largest delay that can be stored, in units: the table keeps 24 bits of fixed point (65,536 units), of which a
/// round number below is taken, so that the growth step that may pass the cap still fits.
pub const CAP_STORABLE_UNITS: u32 = 65_000;

/// Cap of the v1 rule, in units. Source: review thread of the series (v1 and v2 had 1000).
pub const CAP_V1_UNITS: u32 = 1_000;

/// Growth chance of `auto-v1:2`, in 1/8: one step up for every second failed poll, so that two failed polls balance the
/// one step down that a success takes. Source: v1's graph legend ("2x").
pub const V1_TWO_EIGHTHS: u32 = 4;

/// Growth chance of `auto-v1:2.7`, in 1/8: 8/3 = 2.7 failed polls balance one success. Source: v1's graph legend ("2.7x").
pub const V1_TWO_POINT_SEVEN_EIGHTHS: u32 = 3;

/// Slots of a delay table. Source: the series, patch 4 (hash shift 6).
pub const TABLE_SLOTS: usize = 1 << TABLE_SHIFT;

/// log2 of [`TABLE_SLOTS`].
pub const TABLE_SHIFT: u32 = 6;

/// 64-bit words of one slot: decision word, identity word, counting word.
pub const WORDS_PER_SLOT: usize = 3;

/// Units that a waiter spends before it yields while everybody in line can be running: 4096 units are at least 16 us,
/// several times a `sched_yield` (0.3-1 us) and of the order of a context switch with cold caches, so a running holder is
/// practically never yielded to, and a preempted one costs at most this much of our slice. Source: chosen by these
/// costs, not measured against its neighbours.
pub const YIELD_AFTER_UNITS: u32 = 4_096;

/// Units before a yield when the line (holder, waiters ahead, this waiter) is longer than the usable CPUs: somebody in it
/// cannot be running, so the CPU is worth more to them. Not zero, so that the delay still spaces the polls.
/// Source: measured sweep in `ARCHITECTURE.md`.
pub const YIELD_AFTER_UNITS_CROWDED: u32 = 16;

/// Units without any progress of the line before the waiter sleeps instead of yielding: the holder is then blocked or
/// descheduled for long, and going on would burn a CPU for as long as that lasts. 2^18 units are 1 ms at 4 ns a unit, thousands of
/// short holds. Source: chosen, not measured against its neighbours.
pub const PARK_AFTER_UNITS: u32 = 1 << 18;

/// What one yield counts towards [`PARK_AFTER_UNITS`], in units: 250 units are 1 us, about one `sched_yield` with somebody
/// else to run.
pub const YIELD_COST_UNITS: u32 = 250;

/// Length of such a sleep, in units (12,500 units of 4 ns are 50 us, the default timer slack of a Linux thread: a shorter
/// sleep is not to be had). Strict tickets have no kick, so the sleep is bounded and repeated.
pub const PARK_UNITS: u32 = 12_500;

/// Time from one forced hand-over of a lock to the next under `balanced`, in ns: least and most.
///
/// Reason: a hand-over costs some 10 us of switches, so 0.3 ms keeps it near 3 % at worst; with 32 waiters the average of
/// 0.55 ms makes a wait of some 18 ms. Source: design measurements (0.3-1 ms); the upper bound is this project's sweep.
pub const PACE_BALANCED_NS: (u64, u64) = (300_000, 800_000);

/// How long after its time a hand-over is made to a waiter that has not come to get it, in ns.
///
/// Reason: one that is awake takes 60 us from its timer to its first look; one that is not running by then waits for a CPU,
/// often for the very one that the holder runs on, and for the rest of the holder's time slice (4 ms were seen).
pub const OVERDUE_NS: u64 = 100_000;

/// Releases in a quiet lane between two looks at the clock; the first ones at powers of two, so that long sections look in
/// time. Reason: a look costs some 40 ns, so one in 256 costs nothing, and short sections look every 0.1 ms.
pub const QUIET_RELEASES: u32 = 256;

/// The same under `throughput`. Reason: ten times as seldom makes the switches vanish from the measurements, and waits stay
/// far below those of locks that never hand over (0.14-0.6 s).
pub const PACE_THROUGHPUT_NS: (u64, u64) = (5_000_000, 10_000_000);

/// How long a waiter under `strict` may be passed by, in ns. Source: the value of Go's and Python's own mutexes.
pub const STRICT_PATIENCE_NS: u64 = 1_000_000;

/// First distance between two looks of a waiter that keeps watch, in ns. Reason: with the usual timer slack of 50 us a
/// shorter sleep is not to be had, and a lock left free stands idle at most about this long.
pub const STANDBY_FIRST_LOOK_NS: u64 = 50_000;

/// Least and most time that a waiter spins before it sleeps, in ns, whatever a park was measured to cost.
/// Reason: below 4 us nothing but the shortest sections is covered; parks that took longer than 20 us met a busy CPU, which
/// spinning does not free. Source: design measurements (10-20 us).
pub const SPIN_BUDGET_RANGE_NS: (u64, u64) = (4_000, 20_000);

/// Units that a newcomer spins while nobody is in line, before it joins one. Reason: most sections are shorter than the place
/// in line costs, which takes the lock's cache line from the holder.
pub const BRIEF_UNITS: u32 = 48;

/// A spin score falls by one with every spin that ended asleep; so many halve the budget. Reason: 16 halve it slowly enough
/// that a few preempted holders do not count, and 16 * 13 failures are not reached before the score's floor of -128, which
/// leaves 1/256 of the budget: a probe that notices when spinning pays again.
pub const SPIN_SCORE_HALVING: u32 = 16;

/// Looks of a spinner at a free lock that a ticket ahead does not take, after which that ticket counts as abandoned.
/// Reason: the holder's store of `head` and its release are in order, so a running successor takes the lock within one look
/// of ours; two forgive one interruption of a few cycles. A wrong guess costs one place in line. Source: chosen.
pub const PATIENCE_LOOKS: u32 = 2;

/// How long the eldest waiter, awake because its turn has come, spins for the lock to be handed to it, in ns.
/// Reason: the holder is running if anybody is, and short sections end within this time; a longer one is slept through.
pub const DUE_SPIN_NS: u64 = 10_000;

/// Time after its last `membarrier` before a bucket's lanes may be fast again, in ns. Reason: a barrier costs 7-15 us beside a
/// running sibling in a guest, so 200 a second cost 0.3 %. Source: design measurements.
pub const FAST_AGAIN_NS: u64 = 5_000_000;

/// Longest sleep once a `membarrier` was refused after lanes had been fast, in ns: a release in flight may then have been
/// missed, and is found by looking. Source: design section 6.
pub const SLEEP_WITHOUT_BARRIER_NS: u64 = 10_000_000;

/// What going to sleep and being woken is taken to cost before one was measured, in ns.
pub const PARK_COST_FIRST_NS: u64 = 10_000;

/// Longest sleep of a waiter that must notice signals, in ns: one that arrives between the last look and the sleep is found
/// after this long. Source: design section 7 (50 ms).
pub const SIGNAL_SLICE_NS: u64 = 50_000_000;
