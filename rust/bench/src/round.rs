//! One round of one cell: the entrance for callers.

use crate::adapter::{Adapter, Overrides, Task, dispatch};
use crate::clock::Clock;
use crate::crew::{Finished, PATIENCE, Plan};
use crate::lock_id::LockSpec;
use crate::result::{RoundResult, Status};
use crate::spec::{BenchError, Preset, RoundSpec};
use crate::validity::Waiting;
use crate::{contended, phantom, uncontended};

/// Runs one round of one cell. Blocks the calling thread, which coordinates, for about `spec.seconds`; `cancel` is asked at
/// least every 50 ms, by the calling thread, and ends the round early when it says true (status `partial`).
///
/// # Errors
/// [`BenchError::BadSpec`] before anything runs; afterwards, a thread that panicked, one that the lock does not let go (it is
/// left behind), or a system that refuses a thread or a CPU.
pub fn run_round(spec: &RoundSpec, cancel: &dyn Fn() -> bool) -> Result<RoundResult, BenchError> {
    spec.validate()?;
    let plan = Plan {
        threads: spec.threads,
        cpus: &spec.cpus,
        seconds: spec.seconds,
        waiting: match spec.preset {
            Preset::Uncontended => Waiting::Never,
            _ if spec.lock.info().spins => Waiting::Spinning,
            _ => Waiting::Sleeping,
        },
        patience: PATIENCE,
        cancel,
    };
    let overrides = Overrides { cap_units: spec.cap, cpus: spec.emulated_cpus };
    match (spec.preset, spec.lock) {
        (Preset::Phantom, LockSpec::Ticket(backoff)) => {
            // Two more than the line: the holder and the real waiter have a CPU as well.
            let cpus = Some(spec.emulated_cpus.unwrap_or(spec.line.saturating_add(2)));
            phantom::run(&plan, spec, Overrides { cpus, ..overrides }.tuning(backoff))
        }
        _ => dispatch(spec.lock, overrides, Round { plan, spec }).expect("validated: the lock exists here"),
    }
}

struct Round<'a> {
    plan: Plan<'a>,
    spec: &'a RoundSpec,
}

impl Task for Round<'_> {
    type Out = Result<RoundResult, BenchError>;

    fn run<A: Adapter>(self, config: A::Config) -> Self::Out {
        match self.spec.preset {
            Preset::Uncontended => uncontended::run::<A>(&self.plan, self.spec, &config),
            _ => contended::run::<A>(&self.plan, self.spec, config),
        }
    }
}

/// What every preset reports alike.
pub(crate) fn common<T>(finished: &Finished<T>) -> RoundResult {
    let objection = finished.evidence.objection();
    let (status, why) = if finished.cancelled {
        (Status::Partial, Some("the round was cancelled".to_owned()))
    } else if let Some(objection) = objection {
        (Status::Invalid, Some(objection))
    } else {
        (Status::Ok, None)
    };
    RoundResult {
        status,
        why,
        seconds: finished.evidence.wall_s(),
        acquisitions: Vec::new(),
        cpu_s: finished.cpu_s.clone(),
        process_cpu_s: finished.process_cpu_s,
        steal_s: finished.steal_s,
        context_switches: finished.switches,
        wait: None,
        run_length: None,
        overtakes: None,
        overtakes_examined: None,
        monopoly_ns: None,
        windows: None,
        pair_ns: None,
        cycles: None,
        cycles_unit: Clock::get().ticks(),
        extra: Vec::new(),
    }
}
