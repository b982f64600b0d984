//! What a waiter does next: plain data and arithmetic.
//!
//! Nothing here knows an atomic, a clock, a thread or the operating system. What was seen (the number being served), and
//! chance, come in as arguments; what to do goes out as an [`Action`]. The lock performs actions with real pauses, the
//! simulator charges them to a virtual clock: both run this code.
//!
//! * [`constants`]: every tunable number, with unit, reason and source.
//! * [`backoff`]: the rules by name, as users write them.
//! * [`delay`]: the fixed-point delay and its growth and decay.
//! * [`wait`]: one waiter as a state machine.
//! * [`table`]: delays kept per hashed lock address, in storage that the caller gives.
//! * [`cap`]: how large a delay may grow on this kind of machine.
//! * [`line`](mod@line): the default lock's spinners: whose turn it is, and how long spinning is worth it.
//! * [`pacing`]: when the default lock is handed over to a sleeper.

pub mod backoff;
pub mod cap;
pub mod constants;
pub mod delay;
pub mod line;
pub mod pacing;
pub mod table;
pub mod wait;

pub use backoff::{Backoff, PollTarget, UnknownBackoff};
pub use cap::{Platform, delay_cap_units};
pub use delay::Delay;
pub use pacing::{Fairness, UnknownFairness};
pub use table::{Collision, DelayTable, LockKey, Opened, SlotView, Words};
pub use wait::{Action, Bounds, Outcome, Waiter};
