//! Real threads on the default lock: random waits, timeouts, signals and forks, under a watchdog that aborts with a core of
//! all stacks' states in words. `TICKETLOCK_STRESS_SECONDS` makes it longer (default: a few seconds in all).
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ticketlock::policy::LockKey;
use ticketlock::{Deadline, Ended, Fairness, Lock, Wait, WaitStats, Waiting};

/// Tests take turns: each wants the CPUs, and the fork test must not copy the others' locks.
fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts the process if `body` takes longer than `limit`, after showing where every thread is.
fn watched(name: &'static str, limit: Duration, body: impl FnOnce()) {
    let _turn = serial();
    let (done, over) = mpsc::channel::<()>();
    let dog = thread::spawn(move || {
        if over.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hung for {limit:?}");
            #[cfg(target_os = "linux")]
            for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
                let part = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
                eprintln!("{:?}: {} {}", task.file_name(), part("wchan"), part("syscall").trim());
            }
            std::process::abort();
        }
    });
    body();
    drop(done);
    dog.join().unwrap();
}

fn stress_time() -> Duration {
    let seconds = std::env::var("TICKETLOCK_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

/// A small generator of its own for each thread (xorshift64*, Vigna 2016).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// What happened, for the line that is printed.
#[derive(Default)]
struct Counts {
    acquired: AtomicU64,
    contended: AtomicU64,
    parks: AtomicU64,
    handed_over: AtomicU64,
    timeouts: AtomicU64,
    interrupted: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    fn waited(&self, stats: &WaitStats) {
        Self::add(&self.contended, 1);
        Self::add(&self.parks, u64::from(stats.parks));
        Self::add(&self.handed_over, u64::from(stats.handed_over));
    }

    fn print(&self, name: &str) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        eprintln!(
            "{name}: {} acquisitions, {} contended, {} parks, {} hand-overs, {} timeouts, {} interruptions, {} failed tries",
            get(&self.acquired),
            get(&self.contended),
            get(&self.parks),
            get(&self.handed_over),
            get(&self.timeouts),
            get(&self.interrupted),
            get(&self.refused)
        );
    }
}

/// Two words that are equal whenever nobody is inside.
struct Guarded {
    lock: Lock,
    words: UnsafeCell<(u64, u64)>,
}

// SAFETY: `words` is touched only by the holder of `lock`.
unsafe impl Sync for Guarded {}

impl Guarded {
    const fn new() -> Self {
        Self { lock: Lock::new(), words: UnsafeCell::new((0, 0)) }
    }

    /// For the holder.
    fn visit(&self, work: u64) {
        // SAFETY: the lock is held.
        let words = unsafe { &mut *self.words.get() };
        assert_eq!(words.0, words.1, "two holders");
        words.0 += 1;
        for n in 0..work {
            std::hint::black_box(n);
        }
        words.1 += 1;
    }

    fn release(&self, checked: bool) {
        if checked {
            // SAFETY: every acquisition of these tests is released once, by its own thread.
            unsafe { self.lock.checked_unlock() }.expect("held");
        } else {
            // SAFETY: as above.
            unsafe { self.lock.raw_unlock() };
        }
    }

    /// One acquisition of a random kind, if it succeeds. One wait of `sleepers` does not spin; 0: all do.
    fn once(&self, dice: &mut Dice, sleepers: u64, counts: &Counts) -> bool {
        let fairness = Fairness::ALL[dice.roll(8).min(2) as usize]; // mostly strict would only switch
        let kind = dice.roll(8);
        let had = if kind == 0 {
            let had = self.lock.raw_try_lock();
            Counts::add(&counts.refused, u64::from(!had));
            had
        } else if self.lock.raw_try_lock_in_line() {
            true
        } else {
            let deadline = (kind <= 3).then(|| Deadline::after_ns(dice.roll(300_000)));
            let wait = Wait {
                deadline,
                interruptible: kind == 4,
                spin: sleepers == 0 || dice.roll(sleepers) != 0,
                ..Wait::new(fairness)
            };
            let mut waiting = Waiting::default();
            let key = LockKey::at(std::ptr::from_ref(&self.lock).addr() as u64);
            let ended = loop {
                match self.lock.wait(&wait, &mut waiting, key) {
                    Ended::Interrupted => Counts::add(&counts.interrupted, 1),
                    ended => break ended,
                }
            };
            counts.waited(&waiting.stats);
            Counts::add(&counts.timeouts, u64::from(ended == Ended::TimedOut));
            ended == Ended::Acquired
        };
        if had {
            Counts::add(&counts.acquired, 1);
        }
        had
    }
}

fn hammer(
    locks: &[Guarded],
    threads: u64,
    sleepers: u64,
    time: Duration,
    counts: &Counts,
    while_running: impl FnOnce(&AtomicBool),
) {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        for n in 0..threads {
            let (stop, start) = (&stop, &start);
            scope.spawn(move || {
                let mut dice = Dice::new(n + 1);
                start.wait();
                while !stop.load(Ordering::Relaxed) {
                    let guarded = &locks[dice.roll(locks.len() as u64) as usize];
                    if guarded.once(&mut dice, sleepers, counts) {
                        guarded.visit(dice.roll(300));
                        guarded.release(dice.roll(2) == 0);
                    }
                    for k in 0..dice.roll(300) {
                        std::hint::black_box(k);
                    }
                }
            });
        }
        start.wait();
        let began = Instant::now();
        while_running(&stop);
        thread::sleep(time.saturating_sub(began.elapsed()));
        stop.store(true, Ordering::Relaxed);
    });
    for guarded in locks {
        assert!(!guarded.lock.is_locked());
        assert_eq!(guarded.lock.line_counts().2, 0, "a spinner is still counted");
        assert!(guarded.lock.try_lock().is_some());
    }
}

#[test]
fn random_waits_on_one_lock_and_on_several() {
    // In the last scene both threads keep running, so that they meet: elsewhere whoever runs keeps the lock for a while.
    for (threads, locks, sleepers) in [(2, 1, 4), (8, 1, 4), (24, 1, 4), (8, 3, 4), (2, 1, 0)] {
        watched("random waits", stress_time() + Duration::from_secs(60), || {
            let locks: Vec<_> = (0..locks).map(|_| Guarded::new()).collect();
            let counts = Counts::default();
            hammer(&locks, threads, sleepers, stress_time() / 4, &counts, |_| {});
            counts.print(&format!("{threads} threads, {} locks", locks.len()));
            assert!(counts.acquired.load(Ordering::Relaxed) > 1_000);
        });
    }
}

/// The last owner frees the lock at once: a release that touched it afterwards would write into memory of somebody else,
/// which checks it.
#[test]
fn a_lock_may_be_freed_by_its_last_owner() {
    watched("freed", stress_time() + Duration::from_secs(60), || {
        let deadline = Instant::now() + stress_time() / 4;
        let mut rounds = 0_u64;
        while Instant::now() < deadline {
            let memory: Box<[AtomicU64; 1]> = Box::new([AtomicU64::new(0)]);
            let address = std::ptr::from_ref(&memory[0]).addr();
            // SAFETY: eight zero bytes, aligned, are an unlocked lock; `memory` outlives both threads.
            let lock: &Lock = unsafe { &*(address as *const Lock) };
            let left = AtomicU64::new(2);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            drop(lock.lock());
                        }
                        lock.raw_lock(Fairness::Balanced);
                        if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                            // The last owner: the other one has released, and is done with the lock.
                            memory[0].store(0xA5A5_A5A5_A5A5_A5A5, Ordering::Relaxed);
                            for _ in 0..200 {
                                std::hint::spin_loop();
                            }
                            assert_eq!(memory[0].load(Ordering::Relaxed), 0xA5A5_A5A5_A5A5_A5A5, "touched after release");
                        } else {
                            // SAFETY: acquired above.
                            unsafe { lock.raw_unlock() };
                        }
                    });
                }
            });
            rounds += 1;
        }
        eprintln!("freed by the last owner: {rounds} rounds");
    });
}

/// Two threads release one acquisition: exactly one of them is told that the lock is not held.
#[test]
fn of_two_racing_releases_one_fails() {
    watched("racing releases", stress_time() + Duration::from_secs(60), || {
        let rounds = 20_000 * stress_time().as_secs().max(1);
        let (lock, gate, errors) = (&Lock::new(), &AtomicU64::new(0), &AtomicU64::new(0));
        thread::scope(|scope| {
            let release = move || {
                // SAFETY: all releases of this lock are checked ones.
                errors.fetch_add(u64::from(unsafe { lock.checked_unlock() }.is_err()), Ordering::Relaxed);
            };
            let await_gate = move |value: u64| {
                let mut looks = 0_u32;
                while gate.load(Ordering::Acquire) < value {
                    looks += 1;
                    if looks % 64 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
                }
            };
            scope.spawn(move || {
                for round in 0..rounds {
                    await_gate(2 * round + 1);
                    release();
                    gate.fetch_add(1, Ordering::AcqRel);
                }
            });
            for round in 0..rounds {
                assert!(lock.raw_try_lock(), "round {round}");
                gate.fetch_add(1, Ordering::AcqRel);
                release();
                await_gate(2 * round + 2);
                assert_eq!(errors.load(Ordering::Relaxed), round + 1, "round {round}");
            }
        });
        eprintln!("racing releases: {rounds}, one error each");
    });
}

#[cfg(target_os = "linux")]
mod with_signals_and_forks {
    use super::*;

    extern "C" fn nothing(_signal: libc::c_int) {}

    fn install() {
        // SAFETY: the handler does nothing; `SA_RESTART` is what a program that wants to be undisturbed sets.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        }
    }

    /// A sleeper that asked for it returns on a signal, also under `SA_RESTART`, and has left the line by then.
    #[test]
    fn a_signal_ends_an_interruptible_sleep() {
        watched("signal", Duration::from_secs(30), || {
            install();
            let lock = Lock::new();
            lock.raw_lock(Fairness::Balanced);
            thread::scope(|scope| {
                let (tell, told) = mpsc::channel();
                let lock = &lock;
                let waiter = scope.spawn(move || {
                    // SAFETY: no preconditions.
                    tell.send(unsafe { libc::pthread_self() }).unwrap();
                    let wait = Wait { interruptible: true, ..Wait::new(Fairness::Balanced) };
                    let mut waiting = Waiting::default();
                    let start = Instant::now();
                    (lock.wait(&wait, &mut waiting, LockKey::at(8)), start.elapsed())
                });
                let thread = told.recv().unwrap();
                thread::sleep(Duration::from_millis(15));
                // SAFETY: the thread is alive: it is joined below.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                let (ended, after) = waiter.join().unwrap();
                assert_eq!(ended, Ended::Interrupted);
                assert!(after < Duration::from_secs(5), "{after:?}");
            });
            // SAFETY: acquired above.
            unsafe { lock.raw_unlock() };
            assert!(lock.try_lock().is_some());
        });
    }

    /// Threads that wait in every way while one of them forks again and again: each child takes the locks that were free at
    /// the fork, and has two threads of its own compete for one.
    #[test]
    fn children_of_a_fork_use_the_locks() {
        watched("forks", stress_time() + Duration::from_secs(120), || {
            let locks = [Guarded::new(), Guarded::new()];
            let counts = Counts::default();
            let mut forks = 0_u64;
            let time = stress_time();
            hammer(&locks, 6, 4, time, &counts, |_| {
                let until = Instant::now() + time;
                while Instant::now() < until {
                    fork_one(&locks[0]);
                    forks += 1;
                }
            });
            counts.print("forks");
            eprintln!("forks: {forks}");
            assert!(forks > 20);
        });
    }

    /// Forks while holding `guarded`, so that its words are whole in the child, which competes for it with a second thread.
    fn fork_one(guarded: &Guarded) {
        guarded.lock.raw_lock(Fairness::Balanced);
        // SAFETY: the child runs this library, `pthread_create` and `_exit` only, none of which needs another thread's lock.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            // SAFETY: no preconditions; ends a child that hangs.
            unsafe { libc::alarm(20) };
            child_competes(guarded);
        }
        guarded.release(false);
        let mut status = 0;
        // SAFETY: `child` is ours and not yet waited for.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child hung or failed");
    }

    extern "C" fn second_thread(argument: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `child_competes` passes its lock, and joins.
        let guarded = unsafe { &*argument.cast::<Guarded>() };
        for _ in 0..50 {
            guarded.lock.raw_lock(Fairness::Balanced);
            guarded.visit(20);
            guarded.release(true);
        }
        std::ptr::null_mut()
    }

    fn child_competes(guarded: &Guarded) -> ! {
        // SAFETY: plain calls of the C library; the thread is joined before its argument ends.
        unsafe {
            let mut thread = std::mem::zeroed();
            let argument = std::ptr::from_ref(guarded).cast_mut().cast();
            if libc::pthread_create(&raw mut thread, std::ptr::null(), second_thread, argument) != 0 {
                libc::_exit(3);
            }
            guarded.release(false);
            second_thread(argument);
            libc::pthread_join(thread, std::ptr::null_mut());
            libc::_exit(i32::from(guarded.lock.is_locked()));
        }
    }
}
