//! One file per kind of lock, a few lines each.

pub(crate) mod lock;
pub(crate) mod mcs;
#[cfg(unix)]
pub(crate) mod pthread;
pub(crate) mod rivals;
pub(crate) mod tas;
pub(crate) mod ticket;
