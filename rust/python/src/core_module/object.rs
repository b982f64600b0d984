//! Where the native part of a Python lock object is: one layout for all types, and one accessor that knows it.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
use core::mem::offset_of;
use core::ptr;

use pyo3::ffi;

#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
use crate::sync::{AtomicUsize, Ordering};

/// What follows the header of every object of ours: `S` is the type's own part.
#[repr(C)]
struct Body<S> {
    /// Head of the list of weak references; the interpreter's. First, so that its place does not depend on `S`.
    weak_references: UnsafeCell<*mut ffi::PyObject>,
    state: S,
}

/// Object layout where the header's size is part of the interface: version-specific builds and abi3.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
#[repr(C)]
struct Object<S> {
    header: ffi::PyObject,
    body: Body<S>,
}

/// `basicsize` for the type specification: of the whole object.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
pub(super) const fn basic_size<S>() -> i32 {
    const { assert!(align_of::<Body<S>>() == align_of::<*mut c_void>()) };
    size_of::<Object<S>>() as i32
}
/// Offset and flags for `__weaklistoffset__`: from the start of the object.
#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
pub(super) const WEAK_LIST: (isize, i32) = (offset_of!(Object<*mut c_void>, body) as isize, ffi::Py_READONLY);

/// Under abi3t the header is opaque: a negative `basicsize` asks for that many bytes after it.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) const fn basic_size<S>() -> i32 {
    const { assert!(align_of::<Body<S>>() == align_of::<*mut c_void>()) };
    -(size_of::<Body<S>>() as i32)
}
/// Likewise: relative to our own part.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) const WEAK_LIST: (isize, i32) = (0, ffi::Py_READONLY | ffi::Py_RELATIVE_OFFSET);

/// Under abi3t: how far after the header our part begins. Only the interpreter knows, but it is the same for all objects of
/// the process (types of ours all derive from `object`), and asking for it in every method would cost two calls. The first
/// object tells it, which the module makes itself.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
static BODY_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// `object` is of a type whose native part is an `S` (a method's `self` is: the interpreter checks before it calls).
#[inline]
unsafe fn body<S>(object: *mut ffi::PyObject) -> *mut Body<S> {
    #[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
    // SAFETY: the object begins with an `Object`, by the type's `basicsize`; what a derived type adds comes after it.
    unsafe {
        &raw mut (*object.cast::<Object<S>>()).body
    }
    #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
    // SAFETY: `create` has found the offset before the module published any type.
    unsafe {
        object.byte_add(BODY_OFFSET.load(Ordering::Relaxed)).cast()
    }
}

/// The native part of a lock object.
///
/// # Safety
/// `object` was made by [`create`] with an `S`; the reference is not kept beyond the caller's hold on `object`.
#[inline]
pub(super) unsafe fn state<'a, S>(object: *mut ffi::PyObject) -> &'a S {
    // SAFETY: the caller's promise.
    unsafe { &(*body::<S>(object)).state }
}

/// A new object, or null with an exception set.
///
/// # Safety
/// Attached; `class` is a type whose native part is an `S`, or derives from one. For the first object of the process it does
/// not derive from one.
pub(super) unsafe fn create<S>(class: *mut ffi::PyTypeObject, state: S) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise. The collector may already see the object, but does not look into the state.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class, 0);
        if !object.is_null() {
            #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
            if !knows_layout() {
                // Of the first object, by its very type: that is the one which asked for the extra bytes.
                BODY_OFFSET.store(ffi::PyObject_GetTypeData(object, class).addr() - object.addr(), Ordering::Relaxed);
            }
            body::<S>(object).write(Body { weak_references: UnsafeCell::new(ptr::null_mut()), state });
        }
        object
    }
}

#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) fn knows_layout() -> bool {
    BODY_OFFSET.load(Ordering::Relaxed) != 0
}

/// Makes the first object, which finds out where bodies begin; says whether that worked.
///
/// # Safety
/// Attached; `class` is a type of ours that takes no arguments and cannot be derived from.
#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
pub(super) unsafe fn learn_layout(class: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise; the reference is ours.
    unsafe {
        let first = ffi::PyObject_CallNoArgs(class);
        ffi::Py_XDECREF(first);
        !first.is_null()
    }
}

/// The deallocator. A derived type's own one has done its part before it calls this.
pub(super) unsafe extern "C" fn dealloc<S>(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone, so nobody else has the object. A heap type's instance holds its type.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        let body = body::<S>(object);
        if !(*(*body).weak_references.get()).is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        let class = ffi::Py_TYPE(object);
        body.drop_in_place();
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

pub(super) unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the collector's own function and argument; the type is all that an instance refers to.
    unsafe { visit(ffi::Py_TYPE(object).cast(), argument) }
}
