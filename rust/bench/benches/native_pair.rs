//! One uncontended lock and unlock in each lock's own idiom, by criterion; then the same by this crate's harness, which must
//! agree within 10 %; then the code size of the inlined ticket pair.
//!
//! A second thread is alive and asleep throughout: C libraries skip atomic instructions in single-threaded processes.

#![allow(missing_docs)] // criterion's macro makes a public function
#![allow(clippy::print_stdout)] // a bench prints

#[cfg(unix)]
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use criterion::{Criterion, criterion_group};
use ticketlock::{Lock, TicketLock};
use ticketlock_bench::{Preset, RoundSpec, order, parse_lock, run_round};

/// A thread that sleeps until it is told to leave.
struct Companion {
    leave: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Companion {
    fn start() -> Self {
        let leave = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&leave);
        let thread = std::thread::spawn(move || {
            let mut left = told.0.lock().expect("nobody panics with it");
            while !*left {
                left = told.1.wait(left).expect("nobody panics with it");
            }
        });
        Self { leave, thread: Some(thread) }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        *self.leave.0.lock().expect("nobody panics with it") = true;
        self.leave.1.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the companion only sleeps");
        }
    }
}

/// On lines of its own.
#[repr(align(128))]
struct Alone<T>(T);

fn pairs(criterion: &mut Criterion) {
    let _companion = Companion::start();
    let mut group = criterion.benchmark_group("pair");
    let lock = Alone(Lock::new());
    group.bench_function("lock", |b| b.iter(|| drop(lock.0.lock())));
    let lock = Alone(TicketLock::new());
    group.bench_function("ticket", |b| b.iter(|| drop(lock.0.lock())));
    let lock = Alone(Mutex::new(()));
    group.bench_function("std", |b| b.iter(|| drop(lock.0.lock().expect("never poisoned"))));
    let lock = Alone(parking_lot::Mutex::new(()));
    group.bench_function("parking_lot", |b| b.iter(|| drop(lock.0.lock())));
    let lock = Alone(parking_lot::FairMutex::new(()));
    group.bench_function("parking_lot-fair", |b| b.iter(|| drop(lock.0.lock())));
    #[cfg(unix)]
    {
        let lock = Alone(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        group.bench_function("pthread", |b| {
            b.iter(|| {
                // SAFETY: an initialised mutex that does not move while it is used; each lock is released once.
                unsafe {
                    libc::pthread_mutex_lock(lock.0.get());
                    libc::pthread_mutex_unlock(lock.0.get());
                }
            });
        });
    }
    group.finish();
}

/// Criterion's own estimate of a benchmark of this run, in ns a pair: the slope or mean that it stored.
fn criterions_ns(lock: &str) -> Option<f64> {
    let home = std::env::var_os("CRITERION_HOME").map_or_else(target_folder, |home| Some(home.into()))?;
    let file = home.join("pair").join(lock).join("new").join("estimates.json");
    let text = std::fs::read_to_string(file).ok()?;
    // `{"mean":{...},"median":{"confidence_interval":{...},"point_estimate":N,...},...}`: the median leaves out what the
    // machine did to single samples, as the harness's medians do.
    let median = text.split_once("\"median\":")?.1.split_once("\"point_estimate\":")?.1;
    median.split([',', '}']).next()?.trim().parse().ok()
}

/// Where criterion stores its results: beside the folder of this executable's profile.
fn target_folder() -> Option<std::path::PathBuf> {
    let home = std::env::var_os("CARGO_TARGET_DIR").map(std::path::PathBuf::from);
    let built = std::env::current_exe().ok()?.ancestors().nth(3).map(std::path::Path::to_path_buf);
    Some(home.or(built)?.join("criterion"))
}

/// The harness's gross cost of a pair for these locks: medians over interleaved rounds, in ns.
fn harness_ns(locks: &[&str], rounds: usize, seconds: f64) -> Vec<f64> {
    let mut found = vec![Vec::new(); locks.len()];
    for visit in order(1, locks.len(), rounds) {
        for cell in visit {
            let lock = parse_lock(locks[cell]).expect("a listed lock");
            let spec = RoundSpec { seconds, ..RoundSpec::new(Preset::Uncontended, lock) };
            let pair = run_round(&spec, &|| false).expect("an uncontended round").pair_ns;
            found[cell].push(pair.expect("preset uncontended").gross);
        }
    }
    found
        .into_iter()
        .map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds[rounds.len() / 2]
        })
        .collect()
}

/// Prints both measurements of each lock side by side.
fn compare(brief: bool) {
    let (rounds, seconds) = if brief { (1, 0.01) } else { (9, 0.1) };
    println!("\ncost of a pair, empty loop included, in ns: harness against criterion (should agree within 10 %)");
    for (lock, harness) in LOCKS.iter().zip(harness_ns(LOCKS, rounds, seconds)) {
        // A brief run stores nothing, and an older estimate is of another build.
        match if brief { None } else { criterions_ns(lock) } {
            Some(criterion) => {
                let verdict = if (harness / criterion - 1.0).abs() <= 0.1 { "agrees" } else { "DIFFERS" };
                println!("  {lock:<18} {harness:>7.2} {criterion:>7.2}  {:>5.2}  {verdict}", harness / criterion);
            }
            None => println!("  {lock:<18} {harness:>7.2}       -      -  criterion stored no estimate"),
        }
    }
}

#[cfg(unix)]
const LOCKS: &[&str] = &["lock", "ticket", "std", "parking_lot", "parking_lot-fair", "pthread"];
#[cfg(not(unix))]
const LOCKS: &[&str] = &["lock", "ticket", "std", "parking_lot", "parking_lot-fair"];

/// Exactly one inlined pair: its machine code is what a user's function gains by it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ticketlock_bench_one_pair(lock: &TicketLock) {
    drop(lock.lock());
}

/// The same function without the pair: what any function costs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ticketlock_bench_no_pair(lock: &TicketLock) {
    black_box(());
    let _ = lock;
}

/// Prints the size of the pair's code, from the symbol table of this executable.
fn print_code_size() {
    let lock = TicketLock::new();
    // Called through pointers that the compiler cannot see through, so that both functions are kept whole.
    for function in [ticketlock_bench_one_pair, ticketlock_bench_no_pair] {
        black_box(function as extern "C" fn(&TicketLock))(&lock);
    }
    let image = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    let (pair, none) = (symbol_size(&image, "ticketlock_bench_one_pair"), symbol_size(&image, "ticketlock_bench_no_pair"));
    match (pair, none) {
        (Some(pair), Some(none)) => println!(
            "\ncode of one inlined ticket pair: {} bytes (a function with it {pair}, without it {none}; the wait itself is \
             out of line, once)",
            pair - none
        ),
        _ => println!("\ncode of one inlined ticket pair: not known here (needs a 64-bit little-endian ELF symbol table)"),
    }
}

/// Size of a function in a 64-bit little-endian ELF image.
fn symbol_size(image: &[u8], name: &str) -> Option<u64> {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(image.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(value))
    };
    if image.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (sections, size, count) = (number(0x28, 8)? as usize, number(0x3a, 2)? as usize, number(0x3c, 2)? as usize);
    let section = |index: usize| sections + index * size;
    let symbols = (0..count).map(section).find(|&at| number(at + 4, 4) == Some(2))?; // SHT_SYMTAB
    let names = number(section(number(symbols + 0x28, 4)? as usize) + 0x18, 8)? as usize;
    let (start, length) = (number(symbols + 0x18, 8)? as usize, number(symbols + 0x20, 8)? as usize);
    (start..start + length).step_by(24).find_map(|at| {
        let text = image.get(names + number(at, 4)? as usize..)?;
        (text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0)).then(|| number(at + 16, 8))?
    })
}

criterion_group! {
    name = benches;
    // Short: the comparison below is between medians, and each sample is thousands of pairs.
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = pairs
}

fn main() {
    let brief = std::env::args().any(|argument| argument == "--test");
    benches();
    Criterion::default().configure_from_args().final_summary();
    compare(brief);
    print_code_size();
}
