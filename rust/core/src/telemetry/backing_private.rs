//! Private memory, for systems where nothing can be exported (yet).

use std::alloc::{Layout, alloc_zeroed, dealloc};

use super::Size;

/// Memory for a segment.
pub(super) struct Backing {
    pub(super) base: *mut u8,
    pub(super) size: Size,
}

fn layout() -> Option<Layout> {
    Layout::from_size_align(Size::Small.bytes(), 4_096).ok()
}

pub(super) fn memfd(_size: Size) -> Option<Backing> {
    None
}

pub(super) fn file(_size: Size) -> Option<Backing> {
    None
}

pub(super) fn private() -> Option<Backing> {
    // SAFETY: the layout has a size.
    let base = unsafe { alloc_zeroed(layout()?) };
    (!base.is_null()).then_some(Backing { base, size: Size::Small })
}

impl Backing {
    pub(super) fn publish(self) {}

    pub(super) fn discard(self) {
        if let Some(layout) = layout() {
            // SAFETY: made with this layout, and seen by nobody.
            unsafe { dealloc(self.base, layout) };
        }
    }
}

pub(super) fn renew(_size: Size, _memfd: bool, _fill: &dyn Fn(*mut u8)) -> Option<bool> {
    None
}

pub(super) fn is_open() -> bool {
    true
}

pub(super) fn start_ticks() -> u64 {
    0
}

pub(super) fn path() -> Option<std::path::PathBuf> {
    None
}

pub(super) fn descriptor() -> Option<i32> {
    None
}

pub(super) fn detach(_size: Size) -> bool {
    false
}
