//! Type specifications: what the three lock types have in common, written once.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use pyo3::ffi::{self, PyMethodDefPointer, PyObject};

use super::object::{WEAK_LIST, basic_size, dealloc, traverse};

/// Tables that the interpreter reads for as long as the library is loaded, and never writes.
pub(super) struct Table<T>(pub(super) T);
// SAFETY: only read, see above.
unsafe impl<T> Sync for Table<T> {}

pub(super) const END_OF_METHODS: ffi::PyMethodDef = ffi::PyMethodDef::zeroed();
pub(super) const END_OF_ATTRIBUTES: ffi::PyGetSetDef =
    ffi::PyGetSetDef { name: ptr::null(), get: None, set: None, doc: ptr::null(), closure: ptr::null_mut() };

const fn method(name: &CStr, call: PyMethodDefPointer, flags: c_int, doc: &CStr) -> ffi::PyMethodDef {
    ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: call, ml_flags: flags, ml_doc: doc.as_ptr() }
}

pub(super) const fn no_arguments(name: &CStr, call: ffi::PyCFunction, doc: &CStr) -> ffi::PyMethodDef {
    method(name, PyMethodDefPointer { PyCFunction: call }, ffi::METH_NOARGS, doc)
}

pub(super) const fn one_argument(name: &CStr, call: ffi::PyCFunction, doc: &CStr) -> ffi::PyMethodDef {
    method(name, PyMethodDefPointer { PyCFunction: call }, ffi::METH_O, doc)
}

/// Positional arguments only, without the tuple that a `*args` method would cost.
pub(super) const fn positional(name: &CStr, call: ffi::PyCFunctionFast, doc: &CStr) -> ffi::PyMethodDef {
    method(name, PyMethodDefPointer { PyCFunctionFast: call }, ffi::METH_FASTCALL, doc)
}

pub(super) const fn keywords(name: &CStr, call: ffi::PyCFunctionFastWithKeywords, doc: &CStr) -> ffi::PyMethodDef {
    let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    method(name, PyMethodDefPointer { PyCFunctionFastWithKeywords: call }, flags, doc)
}

pub(super) const fn getter(name: &CStr, get: ffi::getter, doc: &CStr) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef { name: name.as_ptr(), get: Some(get), set: None, doc: doc.as_ptr(), closure: ptr::null_mut() }
}

static MEMBERS: Table<[ffi::PyMemberDef; 2]> = Table([
    ffi::PyMemberDef {
        name: c"__weaklistoffset__".as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: WEAK_LIST.0,
        flags: WEAK_LIST.1,
        doc: ptr::null(),
    },
    ffi::PyMemberDef { name: ptr::null(), type_code: 0, offset: 0, flags: 0, doc: ptr::null() },
]);

/// What one type has of its own.
pub(super) struct Recipe {
    pub(super) name: &'static CStr,
    pub(super) doc: &'static CStr,
    pub(super) new: ffi::newfunc,
    /// Of types that can be derived from: what they are called with, so that a derived `__init__` may take other arguments.
    pub(super) init: Option<ffi::initproc>,
    pub(super) repr: ffi::reprfunc,
    pub(super) methods: &'static [ffi::PyMethodDef],
    pub(super) attributes: &'static [ffi::PyGetSetDef],
}

fn slot(slot: c_int, pointer: *const c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc: pointer.cast_mut() }
}

/// A new type for a module, with an `S` as native part; null with an exception set if that fails.
///
/// # Safety
/// Attached; `module` is our module, being executed. The recipe's functions take objects whose native part is an `S`.
pub(super) unsafe fn new_type<S>(module: *mut PyObject, recipe: &Recipe) -> *mut PyObject {
    let mut slots = vec![
        slot(ffi::Py_tp_doc, recipe.doc.as_ptr().cast()),
        slot(ffi::Py_tp_new, recipe.new as *const c_void),
        slot(ffi::Py_tp_dealloc, dealloc::<S> as ffi::destructor as *const c_void),
        slot(ffi::Py_tp_traverse, traverse as ffi::traverseproc as *const c_void),
        slot(ffi::Py_tp_repr, recipe.repr as *const c_void),
        slot(ffi::Py_tp_methods, recipe.methods.as_ptr().cast()),
        slot(ffi::Py_tp_getset, recipe.attributes.as_ptr().cast()),
        slot(ffi::Py_tp_members, MEMBERS.0.as_ptr().cast()),
    ];
    let mut flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_IMMUTABLETYPE;
    if let Some(init) = recipe.init {
        slots.push(slot(ffi::Py_tp_init, init as *const c_void));
        flags |= ffi::Py_TPFLAGS_BASETYPE;
    }
    slots.push(slot(0, ptr::null()));
    let mut spec = ffi::PyType_Spec {
        name: recipe.name.as_ptr(),
        basicsize: basic_size::<S>(),
        itemsize: 0,
        flags: flags as core::ffi::c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete; what it points to beyond this call is static.
    unsafe { ffi::PyType_FromModuleAndSpec(module, &raw mut spec, ptr::null_mut()) }
}
