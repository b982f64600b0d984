//! What can strike a waiter or a releaser of the default lock, at every named step of the protocol: a delay long enough for
//! deadlines to pass and others to come and go, a signal, a fork. Run by `make models`:
//! `RUSTFLAGS="--cfg ticketlock_faults" cargo test --release -p ticketlock --test faults_lock`.
#![cfg(all(ticketlock_faults, target_os = "linux"))]

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ticketlock::policy::LockKey;
use ticketlock::sync::fault;
use ticketlock::{Deadline, Ended, Fairness, Lock, Wait, Waiting};

/// The steps, as the code and the models name them: U releases, P parks, H is the heir, S keeps watch, L leaves.
const PLACES: [&str; 15] = ["U2", "U3", "U4", "handed", "W", "P1", "P3", "P4", "woke", "H1", "H2", "H3", "S1", "L1", "L3"];

/// Strikes per place in one run: the first ones, since each takes milliseconds.
const STRIKES: u64 = 5;

/// Nobody answers the strikes of a forked child.
static IN_CHILD: AtomicBool = AtomicBool::new(false);

fn serial() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts if `body` hangs.
fn watched(name: &str, body: impl FnOnce()) {
    let (done, over) = mpsc::channel::<()>();
    let name = name.to_owned();
    let dog = thread::spawn(move || {
        if over.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hung");
            std::process::abort();
        }
    });
    body();
    drop(done);
    dog.join().unwrap();
}

struct Guarded {
    lock: Lock,
    words: UnsafeCell<(u64, u64)>,
}

// SAFETY: `words` is touched only by the holder of `lock`.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn visit(&self) {
        // SAFETY: the lock is held.
        let words = unsafe { &mut *self.words.get() };
        assert_eq!(words.0, words.1, "two holders");
        words.0 += 1;
        thread::yield_now();
        words.1 += 1;
    }
}

/// Four threads that wait in every way until `enough` says so: patient, timed, interruptible, spinning or not, with sections
/// and pauses of every length, and checked releases.
fn traffic(guarded: &Guarded, enough: impl Fn() -> bool + Sync) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            let (stop, guarded) = (&stop, guarded);
            scope.spawn(move || {
                let mut round = n;
                while !stop.load(Ordering::Relaxed) {
                    round = round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let dice = round >> 40;
                    let deadline = (dice % 3 == 0).then(|| Deadline::after_ns(dice % 7 * 150_000));
                    let fairness = Fairness::ALL[(dice / 3 % 8).min(2) as usize];
                    let wait = Wait { deadline, interruptible: dice % 5 == 0, spin: dice % 2 == 0, fairness };
                    let mut waiting = Waiting::default();
                    let had = guarded.lock.raw_try_lock_in_line()
                        || loop {
                            match guarded.lock.wait(&wait, &mut waiting, LockKey::at(8)) {
                                Ended::Interrupted => {}
                                ended => break ended == Ended::Acquired,
                            }
                        };
                    if had {
                        guarded.visit();
                        if dice % 11 == 0 {
                            thread::sleep(Duration::from_micros(dice % 700));
                        }
                        // SAFETY: acquired above, released once, by its own thread.
                        unsafe {
                            if dice % 4 == 0 { guarded.lock.checked_unlock().expect("held") } else { guarded.lock.raw_unlock() }
                        }
                    }
                    if dice % 13 == 0 {
                        thread::sleep(Duration::from_micros(dice % 300));
                    }
                }
            });
        }
        while !enough() {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!guarded.lock.is_locked());
    assert!(guarded.lock.try_lock().is_some());
}

/// Runs traffic with `strike` at each place in turn, until it has struck there often enough.
fn strike_everywhere(name: &str, strike: impl Fn() + Send + Sync + Clone + 'static) {
    let _turn = serial();
    let mut struck = BTreeMap::new();
    for place in PLACES {
        watched(&format!("{name} at {place}"), || {
            let hits = Arc::new(AtomicU64::new(0));
            let (counted, strike) = (hits.clone(), strike.clone());
            fault::set(Some(Box::new(move |at| {
                if place == "W" && at == "U2" {
                    // Somebody must park between the holder's decision and its look.
                    thread::sleep(Duration::from_micros(200));
                }
                if at == place && !IN_CHILD.load(Ordering::Relaxed) && counted.fetch_add(1, Ordering::Relaxed) < STRIKES {
                    strike();
                }
            })));
            let until = Instant::now() + Duration::from_secs(30);
            let enough = || hits.load(Ordering::Relaxed) >= STRIKES || Instant::now() > until;
            // Again and again with a new lock, whose lane is still fast: some steps are only on the way from there.
            let mut locks = Vec::new();
            while !enough() {
                locks.push(Box::new(Guarded { lock: Lock::new(), words: UnsafeCell::new((0, 0)) }));
                let round = Instant::now() + Duration::from_millis(10);
                traffic(&locks[locks.len() - 1], || enough() || Instant::now() > round);
            }
            fault::set(None);
            struck.insert(place, hits.load(Ordering::Relaxed).min(STRIKES));
        });
    }
    eprintln!("{name}: {struck:?}");
    for (place, hits) in struck {
        assert!(hits >= STRIKES, "{place} was reached only {hits} times in 30 s");
    }
}

#[test]
fn a_delay_at_any_step_does_no_harm() {
    strike_everywhere("delay", || thread::sleep(Duration::from_millis(2)));
}

#[test]
fn a_signal_at_any_step_does_no_harm() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    strike_everywhere("signal", || {
        // To itself at the step, and once more a moment later, when it may sleep.
        // SAFETY: the calling thread is alive.
        let me = unsafe { libc::pthread_self() };
        // SAFETY: as above.
        unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
    });
}

/// Another thread forks while one stands at the step, with the bucket locked or not. The child, which has inherited all that,
/// re-initialises the lock as Python's `_at_fork_reinit` does and has two threads compete for it, and for a second one.
#[test]
fn a_fork_at_any_step_leaves_the_child_its_locks() {
    static FAILED: AtomicU32 = AtomicU32::new(0);
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    let forker = thread::spawn(move || {
        while let Ok(reply) = asked.recv() {
            // SAFETY: the child runs this library, `pthread_create` and `_exit` only, none of which needs another thread's lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                in_child();
            }
            let mut status = 0;
            // SAFETY: `child` is ours and not yet waited for.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            FAILED.fetch_add(u32::from(child < 0 || status != 0), Ordering::Relaxed);
            let _ = reply.send(());
        }
    });
    let ask = Mutex::new(ask);
    let ask = Arc::new(ask);
    let asking = ask.clone();
    strike_everywhere("fork", move || {
        let (reply, replied) = mpsc::channel();
        asking.lock().unwrap().send(reply).unwrap();
        replied.recv().unwrap();
    });
    drop(ask);
    assert_eq!(FAILED.load(Ordering::Relaxed), 0, "children that hung or failed");
    drop(forker); // ends with the process: the strikes keep its channel open
}

static CHILDS: Guarded = Guarded { lock: Lock::new(), words: UnsafeCell::new((0, 0)) };

extern "C" fn compete(_argument: *mut libc::c_void) -> *mut libc::c_void {
    for _ in 0..100 {
        CHILDS.lock.raw_lock(Fairness::Balanced);
        CHILDS.visit();
        // SAFETY: acquired above.
        unsafe { CHILDS.lock.raw_unlock() };
    }
    std::ptr::null_mut()
}

fn in_child() -> ! {
    // SAFETY: plain calls of the C library; the thread is joined. Nobody else uses the lock yet.
    unsafe {
        libc::alarm(20);
        IN_CHILD.store(true, Ordering::Relaxed);
        CHILDS.lock.reset();
        let mut thread = std::mem::zeroed();
        if libc::pthread_create(&raw mut thread, std::ptr::null(), compete, std::ptr::null_mut()) != 0 {
            libc::_exit(3);
        }
        compete(std::ptr::null_mut());
        libc::pthread_join(thread, std::ptr::null_mut());
        libc::_exit(i32::from(CHILDS.lock.is_locked()));
    }
}
