//! The C library's locks.

use core::cell::UnsafeCell;

use crate::adapter::Adapter;

/// `pthread_mutex_t` with default attributes.
pub(crate) struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's mutex is made for use from many threads; all access goes through its functions.
unsafe impl Send for Pthread {}
// SAFETY: as above.
unsafe impl Sync for Pthread {}

/// A held [`Pthread`].
pub(crate) struct PthreadHeld<'a>(&'a Pthread);

impl Drop for PthreadHeld<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this thread locked the mutex when it made this value, and releases it once.
        let failed = unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
        debug_assert_eq!(failed, 0);
    }
}

impl Adapter for Pthread {
    type Config = ();
    type Ctx = ();
    type Held<'a> = PthreadHeld<'a>;
    const TRY: bool = true;
    // Apple's C library has no timed lock.
    const TIMED: bool = cfg!(target_os = "linux");

    fn new() -> Self {
        // Moved only before its first use, when it is plain data in every C library we build for.
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn ctx((): &()) {}

    #[inline]
    fn lock<'a>(&'a self, (): &'a mut ()) -> PthreadHeld<'a> {
        // SAFETY: the mutex is initialised and lives as long as `self`.
        let failed = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        debug_assert_eq!(failed, 0);
        PthreadHeld(self)
    }

    #[inline]
    fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<PthreadHeld<'a>> {
        // SAFETY: the mutex is initialised and lives as long as `self`.
        (unsafe { libc::pthread_mutex_trylock(self.0.get()) } == 0).then(|| PthreadHeld(self))
    }

    #[cfg(target_os = "linux")]
    fn lock_for<'a>(&'a self, (): &'a mut (), limit: core::time::Duration) -> Option<PthreadHeld<'a>> {
        // The plain timed lock counts on the wall clock.
        let until = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()? + limit;
        // SAFETY: all-zero is a valid `timespec`.
        let mut deadline: libc::timespec = unsafe { core::mem::zeroed() };
        deadline.tv_sec = libc::time_t::try_from(until.as_secs()).ok()?;
        #[allow(clippy::unnecessary_fallible_conversions)] // a C long has 32 bits on some targets
        let nanoseconds = until.subsec_nanos().try_into().ok()?;
        deadline.tv_nsec = nanoseconds;
        // SAFETY: the mutex is initialised and lives as long as `self`; the deadline outlives the call.
        (unsafe { libc::pthread_mutex_timedlock(self.0.get(), &raw const deadline) } == 0).then(|| PthreadHeld(self))
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: exclusive access, and nobody can hold a value that borrows it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

#[cfg(target_os = "linux")]
pub(crate) use spin::PthreadSpin;

/// Apple's C library has none.
#[cfg(target_os = "linux")]
mod spin {
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;

    use crate::adapter::Adapter;

    /// `pthread_spinlock_t`, private to the process.
    pub(crate) struct PthreadSpin(UnsafeCell<libc::pthread_spinlock_t>);

    // SAFETY: the C library's spinlock is made for use from many threads; all access goes through its functions.
    unsafe impl Send for PthreadSpin {}
    // SAFETY: as above.
    unsafe impl Sync for PthreadSpin {}

    /// A held [`PthreadSpin`].
    pub(crate) struct PthreadSpinHeld<'a>(&'a PthreadSpin);

    impl Drop for PthreadSpinHeld<'_> {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: this thread locked it when it made this value, and releases it once.
            unsafe { libc::pthread_spin_unlock(self.0.0.get()) };
        }
    }

    impl Adapter for PthreadSpin {
        type Config = ();
        type Ctx = ();
        type Held<'a> = PthreadSpinHeld<'a>;
        const TRY: bool = true;

        fn new() -> Self {
            let mut lock = MaybeUninit::uninit();
            // SAFETY: storage for one spinlock; the call cannot fail for a private one. Moved only before its first use.
            unsafe {
                libc::pthread_spin_init(lock.as_mut_ptr(), libc::PTHREAD_PROCESS_PRIVATE);
                Self(UnsafeCell::new(lock.assume_init()))
            }
        }

        fn ctx((): &()) {}

        #[inline]
        fn lock<'a>(&'a self, (): &'a mut ()) -> PthreadSpinHeld<'a> {
            // SAFETY: the lock is initialised and lives as long as `self`.
            unsafe { libc::pthread_spin_lock(self.0.get()) };
            PthreadSpinHeld(self)
        }

        #[inline]
        fn try_lock<'a>(&'a self, (): &'a mut ()) -> Option<PthreadSpinHeld<'a>> {
            // SAFETY: the lock is initialised and lives as long as `self`.
            (unsafe { libc::pthread_spin_trylock(self.0.get()) } == 0).then(|| PthreadSpinHeld(self))
        }
    }
}
