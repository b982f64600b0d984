//! Memory that other processes can read: a sealed `memfd`, or a file in the user's own folder; else private memory.

use core::ptr;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::Size;
use crate::sync::global::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The descriptor, -1 without one. Only ever closed while its inode is still the segment's: a program that closes all
/// descriptors may have opened something else under the number.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
static DEVICE: AtomicU64 = AtomicU64::new(0);
/// Name of the file, kept for ever.
static PATH: AtomicPtr<CString> = AtomicPtr::new(ptr::null_mut());
/// Where the mapping is.
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Memory for a segment.
pub(super) struct Backing {
    pub(super) base: *mut u8,
    pub(super) size: Size,
    descriptor: RawFd,
    path: Option<CString>,
}

/// Closes on drop.
struct Owned(RawFd);

impl Owned {
    fn keep(self) -> RawFd {
        let descriptor = self.0;
        core::mem::forget(self);
        descriptor
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: opened here, and owned by nobody else.
        unsafe { libc::close(self.0) };
    }
}

/// Maps `size` bytes: of `descriptor`, shared, or private memory for -1; at `at` unless that is null.
fn map(size: Size, descriptor: RawFd, at: *mut u8) -> Option<*mut u8> {
    let mut how = if descriptor < 0 { libc::MAP_PRIVATE | libc::MAP_ANON } else { libc::MAP_SHARED };
    if !at.is_null() {
        how |= libc::MAP_FIXED;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        how |= libc::MAP_NORESERVE;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping, or one over the segment's own, which the caller has copied.
    let base = unsafe { libc::mmap(at.cast(), size.bytes(), access, how, descriptor, 0) };
    (base != libc::MAP_FAILED).then_some(base.cast())
}

fn length(size: Size) -> libc::off_t {
    libc::off_t::try_from(size.bytes()).unwrap_or(0)
}

fn unmap(size: Size, base: *mut u8) {
    // SAFETY: mapped by `map` with this size, and seen by nobody any more.
    unsafe { libc::munmap(base.cast(), size.bytes()) };
}

/// Device and inode of an open descriptor.
fn identity(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: all-zero is a valid value of this plain struct; fstat fills it in.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `status` is valid for a write; a closed descriptor is an error.
    if unsafe { libc::fstat(descriptor, &raw mut status) } != 0 {
        return None;
    }
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "other systems have narrower types")]
    Some((status.st_dev as u64, status.st_ino as u64))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_memfd(size: Size) -> Option<Owned> {
    /// Where descriptors are moved, out of the way of programs that count on small numbers.
    const FIRST_DESCRIPTOR: libc::c_int = 512;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // By number: the C library's function is younger than the oldest one that wheels are built for.
    // SAFETY: a terminated name and flags; the result is checked.
    let descriptor = unsafe { libc::syscall(libc::SYS_memfd_create, c"ticketlock".as_ptr(), flags) };
    let descriptor = Owned(RawFd::try_from(descriptor).ok().filter(|&descriptor| descriptor >= 0)?);
    // SAFETY: our own descriptor; the size is that of the mapping to come.
    if !unsafe { libc::ftruncate(descriptor.0, length(size)) == 0 } {
        return None;
    }
    // SAFETY: our own descriptor; a limit below that number is an error, and the small number is kept.
    let moved = unsafe { libc::fcntl(descriptor.0, libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
    Some(if moved >= 0 { Owned(moved) } else { descriptor })
}

/// After the mapping is there, which goes on being writable: nobody else may write, shrink or grow the memory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn seal(descriptor: RawFd) {
    /// Readers may map, nobody may write: in force since Linux 5.1.
    const SEAL_FUTURE_WRITE: libc::c_int = 0x10;
    let basic = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: our own descriptor. Before Linux 5.1 the last seal is refused; then another process of the same user could
    // write, as it could with a debugger.
    unsafe {
        if libc::fcntl(descriptor, libc::F_ADD_SEALS, basic | SEAL_FUTURE_WRITE) != 0 {
            libc::fcntl(descriptor, libc::F_ADD_SEALS, basic);
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn memfd(size: Size) -> Option<Backing> {
    let descriptor = open_memfd(size)?;
    let base = map(size, descriptor.0, ptr::null_mut())?;
    seal(descriptor.0);
    Some(Backing { base, size, descriptor: descriptor.keep(), path: None })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn memfd(_size: Size) -> Option<Backing> {
    None
}

pub(super) fn private() -> Option<Backing> {
    let base = map(Size::Large, -1, ptr::null_mut())?;
    Some(Backing { base, size: Size::Large, descriptor: -1, path: None })
}

/// A file in a folder that is the user's alone, kept locked: a reader that gets the lock knows that the writer is gone.
pub(super) fn file(size: Size) -> Option<Backing> {
    let folder = folder()?;
    let c_folder = CString::new(folder.clone().into_os_string().into_vec()).ok()?;
    // SAFETY: a terminated path. That it exists already is fine: it is looked at next.
    unsafe { libc::mkdir(c_folder.as_ptr(), 0o700) };
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a terminated path; the result is checked.
    let opened = unsafe { libc::open(c_folder.as_ptr(), flags) };
    let opened = (opened >= 0).then(|| Owned(opened))?;
    // SAFETY: all-zero is a valid value; fstat fills it in, its result is checked; geteuid cannot fail.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        if libc::fstat(opened.0, &raw mut status) != 0 || status.st_uid != libc::geteuid() || status.st_mode & 0o7777 != 0o700 {
            return None;
        }
    }
    clean(&folder);
    let name = CString::new(format!("{}-{}.v{}", std::process::id(), start_ticks(), super::layout::MAJOR)).ok()?;
    let descriptor = (0..TRIES).find_map(|_| make_locked(opened.0, &name))?;
    let mut path = folder;
    path.push(OsString::from_vec(name.into_bytes()));
    let path = CString::new(path.into_os_string().into_vec()).ok()?;
    let base = if allocate(descriptor.0, size) { map(size, descriptor.0, ptr::null_mut()) } else { None };
    let Some(base) = base else {
        // SAFETY: our own file, just made.
        unsafe { libc::unlink(path.as_ptr()) };
        return None;
    };
    Some(Backing { base, size, descriptor: descriptor.keep(), path: Some(path) })
}

/// Tries to make a file that others who start at the same time do not take for a dead process's. Each of them can spoil one.
const TRIES: u32 = 256;

/// A new file, locked, that is there under its name: between its making and its lock, whoever cleans up may have removed it.
fn make_locked(folder: RawFd, name: &CStr) -> Option<Owned> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a folder of ours and a terminated name; the result is checked.
    let descriptor = unsafe { libc::openat(folder, name.as_ptr(), flags, 0o600) };
    let made = (descriptor >= 0).then(|| Owned(descriptor))?;
    (lock(made.0) && still_named(folder, name, made.0)).then_some(made)
}

/// Whether the name still leads to the file.
fn still_named(folder: RawFd, name: &CStr, descriptor: RawFd) -> bool {
    // SAFETY: as in `make_locked`.
    let named = unsafe { libc::openat(folder, name.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
    named >= 0 && identity(Owned(named).0) == identity(descriptor)
}

/// Waits for whoever looks whether the file's process lives, which takes a moment.
fn lock(descriptor: RawFd) -> bool {
    // SAFETY: our own descriptor.
    unsafe { libc::flock(descriptor, libc::LOCK_EX) == 0 }
}

/// All of it now: a write to a page that finds no room later would end the program.
fn allocate(descriptor: RawFd, size: Size) -> bool {
    // SAFETY: our own descriptor.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    unsafe {
        libc::posix_fallocate(descriptor, 0, length(size)) == 0
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    unsafe {
        libc::ftruncate(descriptor, length(size)) == 0
    }
}

#[cfg_attr(any(target_os = "linux", target_os = "android"), allow(clippy::unnecessary_wraps, reason = "others may have none"))]
/// Where files go: never a disk, on which a write to mapped memory can stall for a second.
fn folder() -> Option<PathBuf> {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return Some(PathBuf::from(runtime).join("ticketlock"));
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // SAFETY: cannot fail.
        let user = unsafe { libc::geteuid() };
        Some(PathBuf::from(format!("/dev/shm/ticketlock-{user}")))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        // The system's own folder of each user; other folders for temporary files may be shared.
        #[cfg(target_vendor = "apple")]
        {
            let mut buffer = vec![0_u8; 1_024];
            // SAFETY: the buffer has the length given; the result is the length needed, with the final zero.
            let length = unsafe { libc::confstr(libc::_CS_DARWIN_USER_TEMP_DIR, buffer.as_mut_ptr().cast(), buffer.len()) };
            if length > 1 && length <= buffer.len() {
                buffer.truncate(length - 1);
                return Some(PathBuf::from(OsString::from_vec(buffer)).join("ticketlock"));
            }
        }
        None
    }
}

/// Removes files of processes that are gone: whoever gets their lock knows that.
fn clean(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_none_or(|suffix| !suffix.to_string_lossy().starts_with('v')) {
            continue;
        }
        let Ok(path) = CString::new(entry.path().into_os_string().into_vec()) else { continue };
        // SAFETY: terminated paths; results are checked.
        unsafe {
            let descriptor = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
            if descriptor >= 0 {
                if libc::flock(descriptor, libc::LOCK_SH | libc::LOCK_NB) == 0 {
                    libc::unlink(path.as_ptr());
                }
                libc::close(descriptor);
            }
        }
    }
}

impl Backing {
    /// This one is the process's segment now.
    pub(super) fn publish(self) {
        if let Some((device, inode)) = (self.descriptor >= 0).then(|| identity(self.descriptor)).flatten() {
            DEVICE.store(device, Ordering::Relaxed);
            INODE.store(inode, Ordering::Relaxed);
        }
        DESCRIPTOR.store(self.descriptor, Ordering::Relaxed);
        BASE.store(self.base, Ordering::Relaxed);
        if let Some(path) = self.path {
            PATH.store(Box::into_raw(Box::new(path)), Ordering::Release);
        }
    }

    /// Another thread was first.
    pub(super) fn discard(self) {
        unmap(self.size, self.base);
        if self.descriptor >= 0 {
            drop(Owned(self.descriptor));
        }
        if let Some(path) = self.path {
            // SAFETY: our own file, just made.
            unsafe { libc::unlink(path.as_ptr()) };
        }
    }
}

/// Whether the descriptor is still the segment's.
pub(super) fn is_open() -> bool {
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    descriptor >= 0 && identity(descriptor) == Some((DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed)))
}

/// Puts fresh memory, which `fill` has filled, in the place of the segment: a `memfd` if asked for and possible
/// (`Some(true)`), else private memory (`Some(false)`). System calls only, for a forked child. `None`: nothing was done.
pub(super) fn renew(size: Size, as_memfd: bool, fill: &dyn Fn(*mut u8)) -> Option<bool> {
    let base = BASE.load(Ordering::Relaxed);
    if base.is_null() {
        return None;
    }
    let former = is_open().then(|| DESCRIPTOR.load(Ordering::Relaxed));
    let mut done = None;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if as_memfd {
        if let Some(descriptor) = open_memfd(size) {
            if let Some(aside) = map(size, descriptor.0, ptr::null_mut()) {
                fill(aside);
                // The same memory at the address that all pointers know.
                if map(size, descriptor.0, base).is_some() {
                    seal(descriptor.0);
                    if let Some((device, inode)) = identity(descriptor.0) {
                        DEVICE.store(device, Ordering::Relaxed);
                        INODE.store(inode, Ordering::Relaxed);
                    }
                    DESCRIPTOR.store(descriptor.keep(), Ordering::Relaxed);
                    done = Some(true);
                }
                unmap(size, aside);
            }
        }
    }
    let _ = as_memfd;
    if done.is_none() {
        let aside = map(size, -1, ptr::null_mut())?;
        fill(aside);
        // Private memory cannot be in two places: move it over.
        if move_over(size, aside, base) {
            DESCRIPTOR.store(-1, Ordering::Relaxed);
            done = Some(false);
        } else {
            unmap(size, aside);
        }
    }
    if let (Some(former), Some(_)) = (former, done) {
        // SAFETY: still the former segment's, as its inode said.
        unsafe { libc::close(former) };
    }
    done
}

/// Makes the segment's pages the process's own, as they are, and lets go of the file; whether that worked. Needs no further
/// addresses. System calls only, for a forked child.
pub(super) fn detach(size: Size) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    if base.is_null() || !is_open() {
        return false;
    }
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    let (access, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
    // SAFETY: over the segment's own mapping, with the same contents; the seals allow a private one.
    let mapped = unsafe { libc::mmap(base.cast(), size.bytes(), access, how, descriptor, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    DESCRIPTOR.store(-1, Ordering::Relaxed);
    // SAFETY: still the segment's, as its inode said.
    unsafe { libc::close(descriptor) };
    true
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn move_over(size: Size, from: *mut u8, to: *mut u8) -> bool {
    // SAFETY: both are mappings of this size and ours; the latter is replaced whole.
    let moved = unsafe {
        libc::mremap(
            from.cast(),
            size.bytes(),
            size.bytes(),
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            to.cast::<libc::c_void>(),
        )
    };
    moved != libc::MAP_FAILED
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn move_over(size: Size, from: *mut u8, to: *mut u8) -> bool {
    if map(size, -1, to).is_none() {
        return false;
    }
    // SAFETY: both are mappings of this size, and the child that does this has one thread.
    unsafe { ptr::copy_nonoverlapping(from, to, size.bytes()) };
    unmap(size, from);
    true
}

/// Field 22 of `/proc/self/stat`; 0 where there is none. System calls only, for a forked child.
pub(super) fn start_ticks() -> u64 {
    let mut buffer = [0_u8; 1_024];
    let path: &CStr = c"/proc/self/stat";
    // SAFETY: a terminated path; the buffer has the length given; results are checked.
    let length = unsafe {
        let descriptor = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if descriptor < 0 {
            return 0;
        }
        let length = libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(descriptor);
        length
    };
    let text = &buffer[..usize::try_from(length).unwrap_or(0)];
    // The second field is the program's name in parentheses, which may hold anything; the last `)` ends it.
    let Some(end) = text.iter().rposition(|&byte| byte == b')') else { return 0 };
    let field = text[end + 1..].split(|&byte| byte == b' ').filter(|field| !field.is_empty()).nth(19).unwrap_or_default();
    field.iter().fold(0_u64, |number, &digit| number.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0'))))
}

/// Where the file is.
pub(super) fn path() -> Option<PathBuf> {
    // SAFETY: never freed once set.
    let path = unsafe { PATH.load(Ordering::Acquire).as_ref() }?;
    Some(PathBuf::from(OsString::from_vec(path.as_bytes().to_vec())))
}

pub(super) fn descriptor() -> Option<i32> {
    is_open().then(|| DESCRIPTOR.load(Ordering::Relaxed))
}
