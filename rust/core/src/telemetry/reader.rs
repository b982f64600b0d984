//! Reading a segment, of this process or another: every byte is hostile.
//!
//! Nothing is mapped: copies are taken, so that no writer can change what was checked, nor truncate it under the reader.
//! Offsets, strides and counts are checked against the file's own size; texts are decoded with replacement; counters are what
//! they are.

use std::collections::HashMap;
use std::fmt;
use std::io;

use super::layout::{
    BYTE_ORDER, HEADER_BYTES, Kind, MAGIC, MAJOR, NAME_WORDS, SECTIONS, Section, counters, event, flags, header, lock, site,
    thread,
};
use crate::policy::{Collision, DelayTable, Words};

/// Where a segment's bytes come from.
pub trait Bytes {
    /// Reads at most as much as `into` holds, from `offset` on; 0 at the end.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// How many there are.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;
}

impl Bytes for [u8] {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl<B: Bytes + ?Sized> Bytes for &B {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(into, offset)
    }

    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }
}

#[cfg(unix)]
impl Bytes for std::fs::File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, into, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// Why a segment cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The system's answer.
    Io(io::Error),
    /// It is not one.
    NotASegment(&'static str),
    /// It is of another major version.
    Version {
        /// Major and minor version found.
        found: (u32, u32),
    },
    /// It was made on a machine of the other byte order.
    ByteOrder,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read the segment: {error}"),
            Self::NotASegment(why) => write!(f, "not a segment of ticketlock: {why}"),
            Self::Version { found: (major, minor) } => {
                write!(
                    f,
                    "the segment has format {major}.{minor}, and this reader knows {MAJOR}.x: use the ticketlock of the same release"
                )
            }
            Self::ByteOrder => f.write_str("the segment is of the other byte order"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Counters of a lock, or of a site's locks that are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// `None` where they are not counted.
    pub acquisitions: Option<u64>,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Waiting time in all, also of waits that were given up, ns.
    pub wait_ns_sum: u64,
    /// The longest wait that got the lock.
    pub wait_ns_max: u64,
    /// Waits that got the lock by powers of two, without the zeros at the end.
    pub wait_ns_log2: Vec<u64>,
    /// Sleeps.
    pub parks: u64,
    /// Waits given up.
    pub timeouts: u64,
    /// Hand-overs.
    pub hand_overs: u64,
}

/// A line that waits are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlameView {
    /// The lock, 0 where the line belongs to locks that are gone.
    pub lock: u64,
    /// Where the holder released; otherwise where somebody waited.
    pub holder: bool,
    /// Number of the site.
    pub site: u32,
    /// How often it was seen.
    pub samples: u32,
    /// Waits charged, ns.
    pub weight_ns: u64,
}

/// A live lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its number.
    pub id: u64,
    /// What it is called.
    pub name: Option<String>,
    /// What it is.
    pub kind: &'static str,
    /// Where it was made, if somebody looked.
    pub site: Option<u32>,
    /// Ident of its holder.
    pub owner: Option<u64>,
    /// Waiters now, and at most.
    pub waiters: u64,
    /// The most at one time.
    pub waiters_max: u64,
    /// What it counted.
    pub counts: Counts,
    /// Lines to blame.
    pub blames: Vec<BlameView>,
}

/// A site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteView {
    /// Path of the file.
    pub path: String,
    /// Line.
    pub line: u32,
    /// Function.
    pub function: String,
    /// In the standard library, or in ticketlock.
    pub internal: bool,
    /// Locks made here that had a record.
    pub created: u64,
    /// Those that live.
    pub live: u64,
    /// What those that are gone were.
    pub kind: &'static str,
    /// The most waiters at one time of one of them.
    pub waiters_max: u64,
    /// What they counted.
    pub retired: Counts,
    /// Likewise.
    pub blames: Vec<BlameView>,
}

/// A slot of a delay table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayView {
    /// The lock.
    pub lock: u64,
    /// In policy units.
    pub delay: f64,
    /// Waits that found their own delay.
    pub hits: u32,
    /// Waits that found another lock's.
    pub collisions: u32,
    /// Whether spinning paid.
    pub spin_score: i8,
}

/// A thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadView {
    /// As `threading.get_ident()` has it, 0 if unknown.
    pub ident: u64,
    /// As the system has it.
    pub native_id: u64,
    /// What it is called.
    pub name: Option<String>,
    /// `running`, `spinning` or `parked`.
    pub state: &'static str,
    /// The lock it waits for, and since when.
    pub waiting: Option<(u64, u64)>,
    /// Waits that ended.
    pub waits: u64,
    /// Their length in all.
    pub wait_ns_sum: u64,
    /// Sleeps.
    pub parks: u64,
    /// Looks while spinning.
    pub polls: u64,
    /// Its delays.
    pub delays: Vec<DelayView>,
    /// Its latest waits, oldest first.
    pub recent_waits_ns: Vec<u64>,
}

/// A wait that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventView {
    /// Its number.
    pub sequence: u64,
    /// The lock.
    pub lock: u64,
    /// The thread.
    pub ident: u64,
    /// When it began.
    pub started_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// `acquired`, `handed_over`, `timed_out` or `interrupted`.
    pub outcome: &'static str,
}

/// Who reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessView {
    /// As the process itself has it.
    pub pid: u64,
    /// Clock ticks since boot.
    pub start_ticks: u64,
    /// When the segment was made.
    pub created_ns: u64,
    /// Version of the interpreter.
    pub python: String,
    /// Built without a GIL.
    pub free_threaded: bool,
    /// Version of ticketlock.
    pub version: String,
    /// Sites are recorded.
    pub sites: bool,
}

/// What found no room: locks, sites, threads, texts, lines to blame.
pub type Dropped = [u64; 5];

/// One reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Who reports.
    pub process: ProcessView,
    /// Locks that somebody waits for, then those with most waiting since the last reading.
    pub locks: Vec<LockView>,
    /// All sites; the number is the index.
    pub sites: Vec<SiteView>,
    /// All threads.
    pub threads: Vec<ThreadView>,
    /// What found no room.
    pub dropped: Dropped,
    /// Live locks with a record; acquisitions, contended ones and waiting time of these and of those that are gone.
    pub totals: [u64; 4],
    /// Number of the next event.
    pub next_event: u64,
}

/// A section, as its table says and the file's size allows.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    offset: u64,
    stride: usize,
    capacity: usize,
    used: usize,
}

/// Largest file that is believed, bytes; ours have 76 MiB, and a reader may copy all of it.
const LARGEST: u64 = 1 << 28;

/// Longest record that is believed, bytes; also of a section with room for none.
const LONGEST_RECORD: u64 = 1 << 16;

/// Looks at a record that changes before it is taken as it is.
const LOOKS: u32 = 8;

/// Reads one segment, again and again.
#[derive(Debug)]
pub struct Reader<B> {
    bytes: B,
    /// Waiting time and acquisitions per lock at the last reading.
    before: HashMap<u64, u64>,
    buffer: Vec<u64>,
}

impl<B: Bytes> Reader<B> {
    /// Looks at the header.
    ///
    /// # Errors
    /// [`Error`].
    pub fn new(bytes: B) -> Result<Self, Error> {
        let reader = Self { bytes, before: HashMap::new(), buffer: Vec::new() };
        reader.header()?;
        Ok(reader)
    }

    /// Fills `into` with words from `offset` on; as many zeros as the file lacks.
    fn read(&self, into: &mut [u64], offset: u64) -> io::Result<()> {
        // SAFETY: the same memory as bytes, of which every value is valid in both types.
        let bytes = unsafe { core::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        let mut done = 0;
        while done < bytes.len() {
            match self.bytes.read_at(&mut bytes[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes[done..].fill(0);
        Ok(())
    }

    fn header(&self) -> Result<(Vec<u64>, [Place; SECTIONS.len()]), Error> {
        let mut words = vec![0; HEADER_BYTES / 8];
        self.read(&mut words, 0)?;
        if words[header::MAGIC] != MAGIC {
            return Err(Error::NotASegment("it begins with other bytes"));
        }
        if words[header::BYTE_ORDER] != BYTE_ORDER {
            return Err(Error::ByteOrder);
        }
        let found = ((words[header::VERSION] >> 32) as u32, words[header::VERSION] as u32);
        if found.0 != MAJOR {
            return Err(Error::Version { found });
        }
        let size = words[header::SIZE];
        if words[header::LENGTH] < HEADER_BYTES as u64 || size > LARGEST || self.bytes.length()? < size {
            return Err(Error::NotASegment("it is shorter than it says, or too long"));
        }
        let mut places = [Place::default(); SECTIONS.len()];
        // The table has room for so many entries within the header.
        let entries = words[header::SECTIONS].min(((HEADER_BYTES / 8 - header::TABLE) / header::SECTION_WORDS) as u64) as usize;
        for entry in words[header::TABLE..].chunks_exact(header::SECTION_WORDS).take(entries) {
            let Some(section) = SECTIONS.into_iter().find(|&section| section as u64 + 1 == entry[0]) else { continue };
            let (offset, stride, capacity, used) = (entry[1], entry[2], entry[3], entry[4]);
            let bytes = stride.checked_mul(capacity).and_then(|bytes| bytes.checked_add(offset));
            if bytes.is_none_or(|end| end > size)
                || offset < HEADER_BYTES as u64
                || offset % 8 != 0
                || (stride as usize) < section.stride()
                || stride > LONGEST_RECORD
                || (section != Section::Strings && stride % 8 != 0)
                || (section == Section::Strings && stride != 1)
            {
                return Err(Error::NotASegment("a section lies outside of it, or has too short records"));
            }
            places[section as usize] =
                Place { offset, stride: stride as usize, capacity: capacity as usize, used: used.min(capacity) as usize };
        }
        if places.iter().any(|place| place.stride == 0) {
            return Err(Error::NotASegment("a section is missing"));
        }
        Ok((words, places))
    }

    /// Who reports.
    ///
    /// # Errors
    /// [`Error`].
    pub fn process(&self) -> Result<ProcessView, Error> {
        Ok(process(&self.header()?.0))
    }

    /// Reads everything, but of the locks at most `limit`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn sample(&mut self, limit: usize) -> Result<Sample, Error> {
        let (head, places) = self.header()?;
        let strings = self.records(places[Section::Strings as usize])?;
        let sites = self.records(places[Section::Sites as usize])?;
        let stride = places[Section::Sites as usize].stride / 8;
        let sites: Vec<SiteView> = sites.chunks_exact(stride).map(|words| site_view(words, &strings)).collect();
        let threads = self.records(places[Section::Threads as usize])?;
        let stride = places[Section::Threads as usize].stride / 8;
        let threads: Vec<ThreadView> = threads.chunks_exact(stride).filter_map(thread_view).collect();
        let (mut locks, mut totals) = self.locks(places[Section::Locks as usize], limit)?;
        for retired in sites.iter().map(|site| &site.retired) {
            let amounts = [0, retired.acquisitions.unwrap_or(0), retired.contended, retired.wait_ns_sum];
            totals.iter_mut().zip(amounts).for_each(|(total, amount)| *total = total.wrapping_add(amount));
        }
        // A count of waiters that went wrong (when a daemon's segment moved) is put right by those who say that they wait, as long
        // as every thread has a record to say so.
        if head[header::DROPPED_THREADS] == 0 {
            let mut waiting: HashMap<u64, u64> = HashMap::new();
            for (lock, _) in threads.iter().filter_map(|thread| thread.waiting) {
                *waiting.entry(lock).or_default() += 1;
            }
            for lock in &mut locks {
                lock.waiters = waiting.get(&lock.id).copied().unwrap_or(0);
            }
        }
        let dropped = core::array::from_fn(|at| head[header::DROPPED_LOCKS + at]);
        Ok(Sample { process: process(&head), locks, sites, threads, dropped, totals, next_event: head[header::EVENTS] })
    }

    /// The used records of a section, as words.
    fn records(&self, place: Place) -> Result<Vec<u64>, Error> {
        let mut words = vec![0; (place.used * place.stride).div_ceil(8)];
        self.read(&mut words, place.offset)?;
        Ok(words)
    }

    fn locks(&mut self, place: Place, limit: usize) -> Result<(Vec<LockView>, [u64; 4]), Error> {
        let stride = place.stride / 8;
        let mut words = core::mem::take(&mut self.buffer);
        // Kept from reading to reading: clearing it costs as much as reading.
        words.resize(place.used * stride, 0);
        self.read(&mut words, place.offset)?;
        let mut totals = [0_u64; 4];
        let mut order = Vec::new();
        let mut now = HashMap::with_capacity(self.before.len());
        for (index, lock) in words.chunks_exact(stride).enumerate() {
            let id = lock[lock::ID];
            if id == 0 {
                continue;
            }
            let wait_ns = lock[lock::COUNTERS + counters::WAIT_NS].wrapping_add(lock[lock::VAIN_NS]);
            let contended = lock[lock::COUNTERS + counters::CONTENDED];
            let acquisitions = lock[lock::BASE].wrapping_add(lock[lock::ACQUISITIONS]);
            for (total, amount) in totals.iter_mut().zip([1, acquisitions, contended, wait_ns]) {
                *total = total.wrapping_add(amount);
            }
            let waited = wait_ns.saturating_sub(self.before.get(&id).copied().unwrap_or(0));
            if wait_ns != 0 {
                now.insert(id, wait_ns);
            }
            let waiters = lock[lock::COUNTERS + counters::WAITERS] != 0;
            order.push((core::cmp::Reverse((waiters, waited, wait_ns, acquisitions)), index));
        }
        self.before = now;
        if limit < order.len() {
            order.select_nth_unstable(limit);
            order.truncate(limit);
        }
        order.sort_unstable();
        let mut views = Vec::with_capacity(order.len());
        for (_, index) in order {
            let record = &mut words[index * stride..][..stride];
            if self.settle(record, place.offset + (index * place.stride) as u64)? {
                views.push(lock_view(record));
            }
        }
        self.buffer = words;
        Ok((views, totals))
    }

    /// Reads a record again until its identity stands still; whether it is a lock's.
    fn settle(&self, record: &mut [u64], offset: u64) -> Result<bool, Error> {
        let mut again = vec![0; lock::COUNTERS];
        for _ in 0..LOOKS {
            self.read(&mut again, offset)?;
            if again[lock::GENERATION] == record[lock::GENERATION] && again[lock::GENERATION] % 2 == 0 {
                return Ok(record[lock::ID] != 0);
            }
            self.read(record, offset)?;
        }
        // Still changing: its numbers are right enough, who it is is not known.
        record[lock::NAME..lock::NAME + NAME_WORDS].fill(0);
        record[lock::NAME] = u64::from_ne_bytes(*b"~\0\0\0\0\0\0\0");
        Ok(record[lock::ID] != 0)
    }

    /// The events from number `since` on that are still there, at most `limit`, oldest first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn events(&self, since: u64, limit: usize) -> Result<Vec<EventView>, Error> {
        let (head, places) = self.header()?;
        let place = places[Section::Events as usize];
        let next = head[header::EVENTS];
        let kept = next.min(place.capacity as u64).min(next.saturating_sub(since));
        let mut events = Vec::new();
        let mut words = vec![0; place.stride / 8];
        for sequence in (next - kept..next).take(limit) {
            let offset = place.offset + (sequence % (place.capacity as u64).max(1)) * place.stride as u64;
            self.read(&mut words, offset)?;
            let mut again = [0];
            self.read(&mut again, offset)?;
            if words[event::SEQUENCE] == sequence.wrapping_add(1) && again[0] == words[event::SEQUENCE] {
                events.push(EventView {
                    sequence,
                    lock: words[event::LOCK],
                    ident: words[event::IDENT],
                    started_ns: words[event::STARTED_NS],
                    duration_ns: words[event::DURATION_NS],
                    outcome: match words[event::OUTCOME] {
                        0 => "acquired",
                        1 => "handed_over",
                        2 => "timed_out",
                        _ => "interrupted",
                    },
                });
            }
        }
        Ok(events)
    }
}

fn process(head: &[u64]) -> ProcessView {
    ProcessView {
        pid: head[header::PID],
        start_ticks: head[header::START_TICKS],
        created_ns: head[header::CREATED_NS],
        python: name(&head[header::PYTHON..]),
        free_threaded: head[header::FLAGS] & flags::FREE_THREADED != 0,
        version: name(&head[header::LIBRARY..]),
        sites: head[header::FLAGS] & flags::SITES != 0,
    }
}

/// An inline name.
fn name(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().take(NAME_WORDS).flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn optional_name(words: &[u64], cut: bool) -> Option<String> {
    let mut name = name(words);
    if name.is_empty() {
        return None;
    }
    if cut {
        name.push('…');
    }
    Some(name)
}

/// A text of the strings.
fn text(strings: &[u64], place: u64) -> String {
    let (at, length) = ((place >> 32) as usize, place as u32 as usize);
    let words = strings.get(at / 8..).unwrap_or_default();
    // Texts begin at multiples of 8 and are at most 1 KiB long.
    let bytes: Vec<u8> =
        words.iter().take(length.min(1_024).div_ceil(8)).flat_map(|word| word.to_ne_bytes()).take(length).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn counts(words: &[u64], acquisitions: Option<u64>, vain_ns: u64) -> Counts {
    let classes = &words[counters::LOG2..counters::LOG2 + counters::CLASSES];
    let length = classes.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1);
    Counts {
        acquisitions,
        contended: words[counters::CONTENDED],
        wait_ns_sum: words[counters::WAIT_NS].wrapping_add(vain_ns),
        wait_ns_max: words[counters::WAIT_NS_MAX],
        wait_ns_log2: classes[..length].to_vec(),
        parks: words[counters::PARKS],
        timeouts: words[counters::TIMEOUTS],
        hand_overs: words[counters::HAND_OVERS],
    }
}

fn blames(words: &[u64], lock: u64) -> Vec<BlameView> {
    let of =
        |first: usize, holder: bool| {
            words[first..first + 2 * counters::BLAMES].chunks_exact(2).filter(|pair| pair[0] as u32 != 0).map(move |pair| {
                BlameView { lock, holder, site: pair[0] as u32 - 1, samples: (pair[0] >> 32) as u32, weight_ns: pair[1] }
            })
        };
    of(counters::WAITER_SITES, false).chain(of(counters::HOLDER_SITES, true)).collect()
}

fn lock_view(words: &[u64]) -> LockView {
    let meta = words[lock::META];
    let acquisitions = words[lock::BASE].wrapping_add(words[lock::ACQUISITIONS]);
    let block = &words[lock::COUNTERS..];
    LockView {
        id: words[lock::ID],
        name: optional_name(&words[lock::NAME..], meta & lock::NAME_CUT != 0),
        kind: Kind::name(meta as u8),
        site: Some((meta >> 32) as u32).filter(|&site| site != 0),
        owner: Some(words[lock::OWNER]).filter(|&owner| owner != 0),
        waiters: block[counters::WAITERS],
        waiters_max: block[counters::WAITERS_MAX],
        counts: counts(block, (meta & lock::UNCOUNTED == 0).then_some(acquisitions), words[lock::VAIN_NS]),
        blames: blames(block, words[lock::ID]),
    }
}

fn site_view(words: &[u64], strings: &[u64]) -> SiteView {
    let known = words[site::READY] == 1;
    let block = &words[site::COUNTERS..];
    SiteView {
        path: if known { text(strings, words[site::PATH]) } else { "?".to_owned() },
        line: if known { words[site::LINE] as u32 } else { 0 },
        function: if known { text(strings, words[site::FUNCTION]) } else { String::new() },
        internal: known && words[site::LINE] & site::INTERNAL != 0,
        created: block[counters::WAITERS_MAX],
        live: block[counters::WAITERS],
        kind: Kind::name(words[site::KIND] as u8),
        waiters_max: words[site::WAITERS_MAX],
        retired: counts(block, Some(words[site::ACQUISITIONS]), words[site::VAIN_NS]),
        blames: blames(block, 0),
    }
}

/// A copy of a delay table.
struct Copied<'a>(&'a [u64]);

impl Words for Copied<'_> {
    fn get(&self, index: usize) -> u64 {
        self.0[index]
    }
    fn set(&self, _index: usize, _value: u64) {}
}

fn thread_view(words: &[u64]) -> Option<ThreadView> {
    if words[thread::NATIVE_ID] == 0 {
        return None;
    }
    let payload = &words[thread::PAYLOAD..];
    let waits = payload[thread::WAITS];
    let recent = thread::RECENT as u64;
    let latest = |back: u64| payload[thread::RECENT_NS + ((waits - back) % recent) as usize];
    let lock = payload[thread::WAITING_ON];
    Some(ThreadView {
        ident: payload[thread::IDENT],
        native_id: words[thread::NATIVE_ID],
        name: optional_name(&payload[thread::NAME..], payload[thread::FLAGS] & thread::NAME_CUT != 0),
        state: match payload[thread::STATE] {
            1 => "spinning",
            2 => "parked",
            _ => "running",
        },
        waiting: (lock != 0).then_some((lock, payload[thread::WAITING_SINCE])),
        waits,
        wait_ns_sum: payload[thread::WAIT_NS],
        parks: payload[thread::PARKS],
        polls: payload[thread::POLLS],
        delays: DelayTable::new(&Copied(&payload[thread::DELAYS..thread::MEMORY_WORDS]), Collision::Reset)
            .used()
            .map(|slot| DelayView {
                lock: slot.lock,
                delay: slot.delay.units(),
                hits: slot.hits,
                collisions: slot.collisions,
                spin_score: slot.spin_score,
            })
            .collect(),
        recent_waits_ns: (1..=waits.min(recent)).rev().map(latest).collect(),
    })
}
