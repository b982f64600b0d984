//! The reader of segments against bytes of all kinds: it may refuse, and must neither panic nor run away.
//!
//! Inputs are the corpus (`tests/corpus`, real segments of a small size and what once was trouble) with words and bytes changed
//! at random, mostly where a field is. `TICKETLOCK_FUZZ_SECONDS` makes it longer (default: two seconds); it stops when both that
//! time and `TICKETLOCK_FUZZ_INPUTS` inputs have passed, and prints how many there were. `TICKETLOCK_FUZZ_SEED` repeats a run.
#![cfg(not(any(ticketlock_loom, ticketlock_shuttle)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ticketlock::telemetry::layout::{
    BYTE_ORDER, HEADER_BYTES, Kind, MAGIC, MAJOR, MINOR, SECTIONS, Section, counters, event, header, lock, site, thread,
};
use ticketlock::telemetry::reader::{Error, Reader, Sample};

/// Records per section of a small segment.
const RECORDS: usize = 3;

/// A segment with something in every section.
fn small_segment() -> Vec<u64> {
    let capacity = |section: Section| if section == Section::Strings { 64 } else { RECORDS };
    let mut words = vec![0_u64; HEADER_BYTES / 8];
    let mut offset = HEADER_BYTES;
    for section in SECTIONS {
        let entry = header::TABLE + section as usize * header::SECTION_WORDS;
        let used = if section == Section::Events { 0 } else { capacity(section) - usize::from(section != Section::Strings) };
        words[entry..entry + 5].copy_from_slice(&[
            section as u64 + 1,
            offset as u64,
            section.stride() as u64,
            capacity(section) as u64,
            used as u64,
        ]);
        offset += section.stride() * capacity(section);
    }
    words[header::MAGIC] = MAGIC;
    words[header::VERSION] = u64::from(MAJOR) << 32 | u64::from(MINOR);
    words[header::BYTE_ORDER] = BYTE_ORDER;
    words[header::LENGTH] = HEADER_BYTES as u64;
    words[header::SIZE] = offset as u64;
    words[header::SECTIONS] = SECTIONS.len() as u64;
    words[header::PID] = 4_711;
    words[header::EVENTS] = RECORDS as u64 + 1;
    words[header::PYTHON] = u64::from_ne_bytes(*b"3.14.7\0\0");
    words.resize(offset / 8, 0);
    let at = |words: &[u64], section: Section, index: usize| {
        let entry = header::TABLE + section as usize * header::SECTION_WORDS;
        (words[entry + 1] as usize + index * section.stride()) / 8
    };
    let strings = at(&words, Section::Strings, 0);
    words[strings] = u64::from_ne_bytes(*b"a/path.p");
    words[strings + 1] = u64::from_ne_bytes(*b"y\0\0\0\0\0\0\0");
    words[strings + 2] = u64::from_ne_bytes(*b"function");
    let record = at(&words, Section::Sites, 1);
    words[record + site::KEY] = 99;
    words[record + site::READY] = 1;
    words[record + site::PATH] = 9;
    words[record + site::FUNCTION] = 16 << 32 | 8;
    words[record + site::LINE] = 7;
    let record = at(&words, Section::Locks, 1);
    words[record + lock::ACQUISITIONS] = 10;
    words[record + lock::OWNER] = 5;
    words[record + lock::GENERATION] = 2;
    words[record + lock::ID] = 42;
    words[record + lock::META] = Kind::Lock as u64 | 1 << 32;
    words[record + lock::NAME] = u64::from_ne_bytes(*b"named\0\0\0");
    let block = record + lock::COUNTERS;
    words[block + counters::WAITERS] = 1;
    words[block + counters::CONTENDED] = 3;
    words[block + counters::WAIT_NS] = 3_000;
    words[block + counters::LOG2 + 9] = 3;
    words[block + counters::WAITER_SITES] = 2 | 3 << 32;
    words[block + counters::WAITER_SITES + 1] = 3_000;
    let record = at(&words, Section::Threads, 0);
    words[record + thread::NATIVE_ID] = 1_234;
    let payload = record + thread::PAYLOAD;
    words[payload + thread::IDENT] = 6;
    words[payload + thread::WAITING_ON] = 42;
    words[payload + thread::WAITING_SINCE] = 100;
    words[payload + thread::WAITS] = 40;
    words[payload + thread::DELAYS] = 2_048 << 8;
    words[payload + thread::DELAYS + 1] = 42 << 16;
    for sequence in 1..=RECORDS as u64 {
        let record = at(&words, Section::Events, (sequence as usize) % RECORDS);
        words[record + event::SEQUENCE] = sequence + 1;
        words[record + event::LOCK] = 42;
    }
    words
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn read(bytes: &[u8]) -> Result<(Sample, usize), Error> {
    let mut reader = Reader::new(bytes)?;
    let sample = reader.sample(2)?;
    let events = reader.events(sample.next_event.saturating_sub(100), 50)?.len();
    reader.sample(1_000)?;
    Ok((sample, events))
}

#[test]
fn a_segment_is_read_as_it_was_written() {
    let (sample, events) = read(&bytes_of(&small_segment())).unwrap();
    assert_eq!(sample.process.pid, 4_711);
    assert_eq!(sample.process.python, "3.14.7");
    let lock = &sample.locks[0];
    assert_eq!((lock.id, lock.name.as_deref(), lock.kind, lock.site, lock.owner), (42, Some("named"), "Lock", Some(1), Some(5)));
    assert_eq!((lock.waiters, lock.counts.contended, lock.counts.acquisitions), (1, 3, Some(10)));
    assert_eq!(lock.counts.wait_ns_log2.len(), 10);
    assert_eq!((lock.blames[0].site, lock.blames[0].samples, lock.blames[0].weight_ns), (1, 3, 3_000));
    assert_eq!(
        (sample.sites[1].path.as_str(), sample.sites[1].line, sample.sites[1].function.as_str()),
        ("a/path.py", 7, "function")
    );
    let thread = &sample.threads[0];
    assert_eq!((thread.native_id, thread.ident, thread.waiting), (1_234, 6, Some((42, 100))));
    assert_eq!(thread.recent_waits_ns.len(), thread::RECENT);
    assert_eq!((thread.delays[0].lock, thread.delays[0].delay > 0.0), (42, true));
    assert_eq!(events, RECORDS);
}

#[test]
fn what_is_no_segment_is_refused_with_the_reason() {
    let good = small_segment();
    let refused = |index: usize, value: u64| {
        let mut words = good.clone();
        words[index] = value;
        read(&bytes_of(&words)).unwrap_err().to_string()
    };
    assert!(refused(header::MAGIC, 1).contains("begins with other bytes"));
    assert!(refused(header::BYTE_ORDER, BYTE_ORDER.swap_bytes()).contains("byte order"));
    assert!(refused(header::VERSION, 2 << 32 | 3).contains("format 2.3, and this reader knows 1.x"));
    assert!(refused(header::SIZE, 1 << 40).contains("too long"));
    assert!(refused(header::SECTIONS, 2).contains("a section is missing"));
    let entry = Section::Locks.entry();
    for (word, value) in [(1, u64::MAX), (2, 8), (3, u64::MAX / 2), (1, 12)] {
        assert!(refused(entry + word, value).contains("a section lies outside"), "{word} {value}");
    }
    assert!(read(&[]).is_err());
    assert!(read(&bytes_of(&good)[..5_000]).unwrap_err().to_string().contains("shorter than it says"));
    // A later minor version may have longer records, more sections, and words that nobody knows here.
    let mut later = good.clone();
    later[header::VERSION] = u64::from(MAJOR) << 32 | 9;
    later[header::SECTIONS] = SECTIONS.len() as u64 + 1;
    later[header::TABLE + SECTIONS.len() * header::SECTION_WORDS] = 77;
    assert!(read(&bytes_of(&later)).is_ok());
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let named = files.into_iter().map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()));
    named.collect()
}

/// A small generator (xorshift64*, Vigna 2016).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % sides.max(1)
    }
}

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 14] =
    [0, 1, 7, 8, 64, 4_095, 4_096, u32::MAX as u64, 1 << 32, 1 << 63, u64::MAX, u64::MAX - 7, i64::MAX as u64, 1 << 28];

fn change(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(4) {
        let words = bytes.len() / 8;
        match dice.roll(8) {
            0 => bytes.truncate(dice.roll(bytes.len() + 1)),
            1 if !bytes.is_empty() => {
                let at = dice.roll(bytes.len());
                bytes[at] ^= 1 << dice.roll(8);
            }
            kind if words > 0 => {
                // Most of the time in the header's table, where a word decides over all others.
                let at = match kind {
                    2 | 3 => header::TABLE + dice.roll(SECTIONS.len() * header::SECTION_WORDS),
                    4 => dice.roll(header::EVENTS + 1),
                    _ => dice.roll(words),
                }
                .min(words - 1);
                let old = u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
                let new = match dice.roll(4) {
                    0 => old.wrapping_add(dice.roll(17) as u64).wrapping_sub(8),
                    1 => old ^ (1 << dice.roll(64)),
                    _ => EDGES[dice.roll(EDGES.len())],
                };
                bytes[at * 8..at * 8 + 8].copy_from_slice(&new.to_le_bytes());
            }
            _ => {}
        }
    }
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let number = |name: &str, otherwise: f64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let time = Duration::from_secs_f64(number("TICKETLOCK_FUZZ_SECONDS", 2.0));
    let wanted = number("TICKETLOCK_FUZZ_INPUTS", 10_000.0) as u64;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as f64;
    let seed = number("TICKETLOCK_FUZZ_SEED", now % 1e9) as u64;
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut corpus = corpus();
    assert!(!corpus.is_empty());
    corpus.push(("made here".into(), bytes_of(&small_segment())));
    let (mut inputs, mut accepted, begin) = (0_u64, 0_u64, Instant::now());
    while inputs < wanted || begin.elapsed() < time {
        let index = dice.roll(corpus.len());
        let mut bytes = corpus[index].1.clone();
        if inputs >= corpus.len() as u64 {
            change(&mut bytes, &mut dice);
        }
        let Ok(good) = catch_unwind(AssertUnwindSafe(|| read(&bytes).is_ok())) else {
            let path = std::env::temp_dir().join(format!("ticketlock-fuzz-{seed}-{inputs}.bin"));
            std::fs::write(&path, &bytes).unwrap();
            panic!("seed {seed}, input {inputs} (from {}): kept as {}", corpus[index].0, path.display());
        };
        accepted += u64::from(good);
        inputs += 1;
    }
    eprintln!("seed {seed}: {inputs} inputs, {accepted} accepted, in {:?}", begin.elapsed());
    // A fuzzer all of whose inputs are refused at the door tests the door.
    assert!(accepted > inputs / 20, "{accepted} of {inputs}");
}

/// Writes the corpus' first file anew, when the format has changed: `cargo test --test fuzz_reader write -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_corpus() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("small.bin"), bytes_of(&small_segment())).unwrap();
}
