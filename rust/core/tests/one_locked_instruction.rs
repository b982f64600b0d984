//! An uncontended pair of the default lock costs one locked instruction: counted in the machine code of this very test. Needs
//! optimised code and `objdump` (binutils); run by `make models`: `cargo test --release -p ticketlock --test one_locked_instruction`.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(debug_assertions)))]
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle, ticketlock_faults)))]

use std::hint::black_box;
use std::process::Command;

use ticketlock::Lock;

/// The pair as it is inlined into a program. What is not its fast path is called, not inlined.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn ticketlock_test_pair(lock: &Lock, value: &mut u64) {
    let _guard = lock.lock();
    *value += 1;
}

#[test]
fn an_uncontended_pair_has_one_locked_instruction() {
    let (lock, mut value) = (Lock::new(), 0);
    black_box(ticketlock_test_pair as fn(&Lock, &mut u64))(&lock, &mut value);
    assert_eq!(value, 1);
    let output = Command::new("objdump")
        .args(["--disassemble=ticketlock_test_pair", "--no-show-raw-insn"])
        .arg(std::env::current_exe().unwrap())
        .output()
        .expect("objdump, of binutils, is needed");
    let listing = String::from_utf8_lossy(&output.stdout);
    let code: Vec<_> = listing.lines().filter(|line| line.starts_with(' ') && line.contains(":\t")).collect();
    assert!(code.len() > 8, "no code found:\n{listing}");
    // An exchange with memory is locked without saying so.
    let locked = |line: &&&str| line.contains("lock ") || (line.contains("xchg ") && line.contains('('));
    let locked: Vec<_> = code.iter().filter(locked).collect();
    assert_eq!(locked.len(), 1, "{locked:#?}\nin\n{}", code.join("\n"));
    assert!(locked[0].contains("cmpxchg"), "{locked:?}");
    assert!(code.iter().all(|line| !line.contains("fence")), "a fence in the fast path:\n{}", code.join("\n"));
    eprintln!("{} instructions, of which one is locked:\n{}", code.len(), code.join("\n"));
}
