//! The segment's format: where everything is, in 64-bit words of the machine's own byte order.
//!
//! A reader goes by the section table (offset, stride, capacity, used) and ignores sections and trailing words that it does
//! not know, so minor versions stay compatible both ways. `docs/telemetry-format.md` describes the same for those who write
//! another reader; a test compares the two.

/// First word of a segment: `TKTLOCK1` in memory.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"TKTLOCK1");
/// Readers refuse another major version.
pub const MAJOR: u32 = 1;
/// Grows when words or sections are added.
pub const MINOR: u32 = 0;
/// Tells a reader of the other byte order.
pub const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
/// Bytes of the header: one page, so that sections begin on pages.
pub const HEADER_BYTES: usize = 4_096;
/// Bytes of inline names (threads, locks): 63 of UTF-8 and a final zero. Longer names are cut.
pub const NAME_WORDS: usize = 8;

/// Words of the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// Major version in the high half, minor in the low.
    pub const VERSION: usize = 1;
    /// [`BYTE_ORDER`](super::BYTE_ORDER).
    pub const BYTE_ORDER: usize = 2;
    /// Bytes of the header.
    pub const LENGTH: usize = 3;
    /// Bytes of the segment.
    pub const SIZE: usize = 4;
    /// Number of entries in the section table.
    pub const SECTIONS: usize = 5;
    /// Pid as the process itself sees it.
    pub const PID: usize = 8;
    /// When the process started, in clock ticks since boot (`/proc/PID/stat`), 0 where that is not known.
    pub const START_TICKS: usize = 9;
    /// Clock of all times: 1 is `CLOCK_MONOTONIC` in ns, 0 a clock that starts anywhere.
    pub const CLOCK: usize = 10;
    /// When the segment was made.
    pub const CREATED_NS: usize = 11;
    /// Bit 0: free-threaded interpreter. Bit 1: creation sites are recorded.
    pub const FLAGS: usize = 12;
    /// Locks for which there was no record.
    pub const DROPPED_LOCKS: usize = 16;
    /// Sites likewise.
    pub const DROPPED_SITES: usize = 17;
    /// Threads likewise.
    pub const DROPPED_THREADS: usize = 18;
    /// Texts likewise.
    pub const DROPPED_STRINGS: usize = 19;
    /// Lines to blame that gave way to heavier ones.
    pub const DROPPED_BLAMES: usize = 20;
    /// Events so far.
    pub const EVENTS: usize = 21;
    /// The interpreter's version: text of up to 63 bytes and a final zero.
    pub const PYTHON: usize = 32;
    /// Ours, likewise.
    pub const LIBRARY: usize = 40;
    /// The section table: entries of [`SECTION_WORDS`] words.
    pub const TABLE: usize = 64;
    /// Kind, offset in bytes, stride in bytes, capacity in records, records used so far (never fewer), free list.
    pub const SECTION_WORDS: usize = 8;
}

/// Bits of [`header::FLAGS`].
pub mod flags {
    /// The interpreter was built without a GIL.
    pub const FREE_THREADED: u64 = 1;
    /// Creation sites are recorded.
    pub const SITES: u64 = 2;
}

/// Kinds of section, which are also their places in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// Lines of code.
    Sites = 0,
    /// Locks.
    Locks = 1,
    /// Threads.
    Threads = 2,
    /// The ring of waits that ended.
    Events = 3,
    /// Bytes of texts.
    Strings = 4,
}

/// All sections, in the order of their offsets.
pub const SECTIONS: [Section; 5] = [Section::Sites, Section::Locks, Section::Threads, Section::Events, Section::Strings];

impl Section {
    /// Bytes from one record to the next.
    #[must_use]
    pub const fn stride(self) -> usize {
        match self {
            Self::Sites => site::WORDS * 8,
            Self::Locks => lock::WORDS * 8,
            Self::Threads => thread::WORDS * 8,
            Self::Events => event::WORDS * 8,
            Self::Strings => 1,
        }
    }

    /// Records, in a segment of this size.
    #[must_use]
    pub const fn capacity(self, size: Size) -> usize {
        let large = match self {
            // A line of code that creates or waits. Large programs have some hundreds.
            Self::Sites => 8_192,
            // Live locks that were contended; beyond, only their sites count. Events: at a thousand a second, the last minute.
            Self::Locks | Self::Events => 65_536,
            // Threads alive at one time.
            Self::Threads => 4_096,
            // Paths and functions of sites: 8,192 of 128 bytes twice.
            Self::Strings => 2 << 20,
        };
        match size {
            Size::Large => large,
            // 56 MiB of locks shrink to seven, all to ten.
            Size::Small => large / 8,
        }
    }

    /// Where it begins, in bytes.
    #[must_use]
    pub const fn offset(self, size: Size) -> usize {
        let mut at = HEADER_BYTES;
        let mut index = 0;
        while index < self as usize {
            at += SECTIONS[index].stride() * SECTIONS[index].capacity(size);
            index += 1;
        }
        at
    }

    /// Words of the header: the first one of this section's entry.
    #[must_use]
    pub const fn entry(self) -> usize {
        header::TABLE + self as usize * header::SECTION_WORDS
    }
}

/// How many records a segment has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// In sparse memory, where what is never used costs nothing but addresses.
    Large,
    /// Where every byte is paid for.
    Small,
}

impl Size {
    /// Bytes of the segment.
    #[must_use]
    pub const fn bytes(self) -> usize {
        Section::Strings.offset(self) + Section::Strings.capacity(self)
    }
}

/// What locks count, as words after the first one of the block. Also the shape of a site's retired counters.
pub mod counters {
    /// Threads waiting now (in a site: locks that live).
    pub const WAITERS: usize = 0;
    /// The most at one time (in a site: locks that it created).
    pub const WAITERS_MAX: usize = 1;
    /// Acquisitions that waited.
    pub const CONTENDED: usize = 2;
    /// Length of these waits in all, ns.
    pub const WAIT_NS: usize = 3;
    /// Length of the longest.
    pub const WAIT_NS_MAX: usize = 4;
    /// Sleeps.
    pub const PARKS: usize = 5;
    /// Waits given up.
    pub const TIMEOUTS: usize = 6;
    /// Hand-overs.
    pub const HAND_OVERS: usize = 7;
    /// First of the classes of waiting times.
    pub const LOG2: usize = 8;
    /// Classes: class `i` holds waits of 2^i up to 2^(i+1) ns, the last one also all longer ones (2^39 ns are nine minutes).
    pub const CLASSES: usize = 40;
    /// First of the lines where threads waited: [`BLAMES`] pairs of words: site + 1 and samples << 32; weight in ns.
    pub const WAITER_SITES: usize = LOG2 + CLASSES;
    /// Likewise, where holders released while others waited.
    pub const HOLDER_SITES: usize = WAITER_SITES + 2 * BLAMES;
    /// Lines kept of either kind.
    pub const BLAMES: usize = 8;
    /// Words of the block.
    pub const WORDS: usize = HOLDER_SITES + 2 * BLAMES;
}

/// Words of a lock's record. The first half belongs to the holder, so that waiters who come and go do not take its line.
pub mod lock {
    /// Acquisitions since the record was claimed.
    pub const ACQUISITIONS: usize = 0;
    /// Ident of the holder; 0 when free.
    pub const OWNER: usize = 1;
    /// Acquisitions before.
    pub const BASE: usize = 2;
    /// Odd while the identity changes.
    pub const GENERATION: usize = 3;
    /// The lock; 0 while the record is free.
    pub const ID: usize = 4;
    /// Kind in bits 0-7, flags in 8-31, number of the site (0: unknown) in 32-63.
    pub const META: usize = 5;
    /// While free: next free record + 1.
    pub const NEXT_FREE: usize = 6;
    /// Length of waits that were given up, ns.
    pub const VAIN_NS: usize = 7;
    /// The name.
    pub const NAME: usize = 8;
    /// The [`counters`](super::counters).
    pub const COUNTERS: usize = 16;
    /// Of the holder's wait, until its release: length, ns.
    pub const HELD_WAIT_NS: usize = 96;
    /// Likewise: when it began.
    pub const HELD_WAIT_SINCE: usize = 97;
    /// Likewise: sleeps in the low half; bit 32: handed over.
    pub const HELD_WAIT_HOW: usize = 98;
    /// Likewise: site + 1 where it waited.
    pub const HELD_WAIT_SITE: usize = 99;
    /// Since when the waiter waits that wants to know where the holder releases.
    pub const BLAME_SINCE: usize = 100;
    /// Of the holder's wait: ident of the thread that waited.
    pub const HELD_WAIT_IDENT: usize = 101;
    /// Which segment of the process it was claimed in, counted from 1: a forked child's records begin with 0.
    pub const EPOCH: usize = 102;
    /// Words of the record: a multiple of 16 (two lines).
    pub const WORDS: usize = 112;
    const _: () = assert!(COUNTERS + super::counters::WORDS <= HELD_WAIT_NS);
    /// Flag in `META`: the name was cut.
    pub const NAME_CUT: u64 = 1 << 8;
    /// Flag in `META`: acquisitions are not counted.
    pub const UNCOUNTED: u64 = 1 << 9;
    /// Flag in `META`: the site counts it among its live locks.
    pub const PUBLISHED: u64 = 1 << 10;
}

/// Words of a site's record.
pub mod site {
    /// Hash of path, line and whether internal; 0 while free.
    pub const KEY: usize = 0;
    /// 1 once the record is complete.
    pub const READY: usize = 1;
    /// Path: offset in the strings in bits 32-63, length in 0-31.
    pub const PATH: usize = 2;
    /// Function, likewise.
    pub const FUNCTION: usize = 3;
    /// Line in bits 0-31; bit 32: internal.
    pub const LINE: usize = 4;
    /// Acquisitions of locks that are gone.
    pub const ACQUISITIONS: usize = 5;
    /// Kind of the locks that are gone, in bits 0-7 (0: none yet, 255: several).
    pub const KIND: usize = 6;
    /// As in a lock.
    pub const VAIN_NS: usize = 7;
    /// The most waiters at one time of a lock that is gone.
    pub const WAITERS_MAX: usize = 8;
    /// The [`counters`](super::counters) of locks that are gone.
    pub const COUNTERS: usize = 16;
    /// Words of the record.
    pub const WORDS: usize = 96;
    /// Flag in `LINE`.
    pub const INTERNAL: u64 = 1 << 32;
}

/// Words of a thread's record.
pub mod thread {
    /// Native id; 0 while free.
    pub const NATIVE_ID: usize = 0;
    /// Threads that held the record before.
    pub const GENERATION: usize = 1;
    /// The payload.
    pub const PAYLOAD: usize = 2;
    /// Words of the record.
    pub const WORDS: usize = 256;
    /// Words of the payload that belong to the delay table and its like: see the lock module's `memory`.
    pub const MEMORY_WORDS: usize = 198;
    /// Payload word: first of the delay table (see [`policy::table`](crate::policy::table)).
    pub const DELAYS: usize = 4;
    const _: () = assert!(DELAYS + crate::policy::table::TABLE_WORDS <= MEMORY_WORDS);

    /// Payload word: ident, as `threading.get_ident()` has it.
    pub const IDENT: usize = 198;
    /// Payload word: 0 running, 1 waiting awake, 2 asleep.
    pub const STATE: usize = 199;
    /// Payload word: id of the lock waited for.
    pub const WAITING_ON: usize = 200;
    /// Payload word: since when, ns.
    pub const WAITING_SINCE: usize = 201;
    /// Payload word: waits that ended.
    pub const WAITS: usize = 202;
    /// Payload word: their length in all, ns.
    pub const WAIT_NS: usize = 203;
    /// Payload word: sleeps.
    pub const PARKS: usize = 204;
    /// Payload word: looks at locks while spinning.
    pub const POLLS: usize = 205;
    /// Payload word: bit 0: others named this thread, it has not waited. Bit 1: the name was cut.
    pub const FLAGS: usize = 206;
    /// Payload word: while free, next free record + 1.
    pub const NEXT_FREE: usize = 207;
    /// Payload word: first of the name.
    pub const NAME: usize = 208;
    /// Payload word: first of the latest waits' lengths, ns; wait `n` is at `n % RECENT`.
    pub const RECENT_NS: usize = 216;
    /// How many of them.
    pub const RECENT: usize = 32;
    /// Payload word: from when on the thread's name is to be looked up again, ns.
    pub const ASK_AGAIN: usize = 248;
    const _: () = assert!(RECENT_NS + RECENT <= ASK_AGAIN && PAYLOAD + ASK_AGAIN < WORDS);
    /// Flag: named by others.
    pub const FOREIGN: u64 = 1;
    /// Flag: the name was cut.
    pub const NAME_CUT: u64 = 2;
}

/// Words of an event.
pub mod event {
    /// Number of the event + 1; 0 while it is being written.
    pub const SEQUENCE: usize = 0;
    /// The lock.
    pub const LOCK: usize = 1;
    /// Ident of the thread that waited.
    pub const IDENT: usize = 2;
    /// When the wait began, ns.
    pub const STARTED_NS: usize = 3;
    /// How long it took.
    pub const DURATION_NS: usize = 4;
    /// 0 acquired, 1 handed over, 2 timed out, 3 interrupted.
    pub const OUTCOME: usize = 5;
    /// Words of an event.
    pub const WORDS: usize = 8;
}

/// What a lock is, as bits 0-7 of its `META`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The default lock.
    Lock = 1,
    /// The reentrant one.
    RLock = 2,
    /// The strict one.
    TicketLock = 3,
    /// Eight bytes inside somebody's struct.
    Native = 4,
    /// A condition.
    Condition = 5,
    /// A semaphore.
    Semaphore = 6,
    /// An event.
    Event = 7,
    /// A barrier.
    Barrier = 8,
    /// A queue.
    Queue = 9,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Lock,
        Self::RLock,
        Self::TicketLock,
        Self::Native,
        Self::Condition,
        Self::Semaphore,
        Self::Event,
        Self::Barrier,
        Self::Queue,
    ];

    /// The name of the kind with this number.
    #[must_use]
    pub fn name(number: u8) -> &'static str {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number).map_or("unknown", |kind| match kind {
            Self::Lock => "Lock",
            Self::RLock => "RLock",
            Self::TicketLock => "TicketLock",
            Self::Native => "native",
            Self::Condition => "Condition",
            Self::Semaphore => "Semaphore",
            Self::Event => "Event",
            Self::Barrier => "Barrier",
            Self::Queue => "Queue",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_follow_each_other_and_records_keep_their_lines() {
        for size in [Size::Large, Size::Small] {
            let mut end = HEADER_BYTES;
            for (index, section) in SECTIONS.into_iter().enumerate() {
                assert_eq!(section as usize, index);
                assert_eq!(section.offset(size), end);
                end += section.stride() * section.capacity(size);
            }
            assert_eq!(end, size.bytes());
            for section in [Section::Sites, Section::Locks, Section::Threads] {
                assert_eq!(section.stride() % 128, 0, "{section:?}");
                assert_eq!(section.offset(size) % 128, 0, "{section:?}");
            }
        }
        assert!(header::TABLE + SECTIONS.len() * header::SECTION_WORDS <= HEADER_BYTES / 8);
    }
}
