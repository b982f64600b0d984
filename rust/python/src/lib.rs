//! The Python modules of ticketlock: one shared library, two modules, no algorithm and no constant of its own.
//!
//! * [`core_module`], imported as `ticketlock._core`: the locks. A raw extension module of the C interface, without class
//!   machinery between interpreter and lock, so that a call costs what a C method costs and subinterpreters can import it.
//! * [`lab`], loaded by `ticketlock/_lab.py` from the same file: machine facts, delays, benchmarks. An ordinary PyO3 module.
//! * [`attach`]: the only module that detaches from the interpreter or handles signals.
//!
//! `unsafe` calls into the interpreter stay in `core_module` and `attach`.

#![allow(clippy::cast_possible_wrap, reason = "the C interface counts in signed numbers; every size here is small")]

mod attach;
mod core_module;
mod lab;
mod sync;
