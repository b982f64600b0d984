//! `ticketlock._core`: the locks, as a raw extension module with multi-phase initialisation.
//!
//! Types and state belong to the module, not to the library, so that every interpreter has its own; no Python object lives
//! in a Rust static. The types: [`lock`] and [`rlock`], which share [`gate`] with its [`stats`], and [`ticket_lock`] with its
//! [`watch`]. What they are made of: [`object`] (layout), [`tables`] (type specifications), [`request`] (arguments of
//! `acquire`), [`values`] (conversions). What they tell: [`observed`], which asks [`frames`] where and who, and [`slow`].

mod frames;
mod gate;
mod gate_members;
mod lock;
mod object;
mod observed;
pub(crate) mod order;
mod request;
mod rlock;
mod slow;
mod stats;
mod tables;
mod ticket_lock;
mod ticket_state;
mod values;
mod watch;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use pyo3::ffi::{self, PyMethodDefPointer, PyObject};

use crate::attach;
use frames::Codes;
use ticketlock::telemetry::segment::Program;
use values::none;
use watch::Callback;

const NAME: &CStr = c"_core";
const DOC: &CStr = c"Locks of ticketlock: the native part.";
const SET_DELAY_WATCH: &CStr = c"_set_delay_watch($module, callback, /)
--

Call callback(event) for every delay that outgrew all that its thread had reported; None switches off.";

const SET_SLOW_WAIT: &CStr = c"_set_slow_wait($module, from_ns, callback, /)
--

Call callback(event) for every wait of from_ns or more, after the release; None switches off.";

/// What a module owns. The interpreter gives zeroed memory, and may look at it before `execute` has run.
#[repr(C)]
struct ModuleState {
    /// Of the delay watch.
    callback: *mut Callback,
    /// Of slow waits.
    slow: *mut Callback,
    codes: *mut Codes,
}

/// The interpreter fills in the head of a definition, once, under its own lock.
#[repr(transparent)]
struct Static<T>(UnsafeCell<T>);
// SAFETY: see above; we never touch the contents.
unsafe impl<T> Sync for Static<T> {}

static METHODS: Static<[ffi::PyMethodDef; 3]> = Static(UnsafeCell::new([
    ffi::PyMethodDef {
        ml_name: c"_set_delay_watch".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: set_delay_watch },
        ml_flags: ffi::METH_O,
        ml_doc: SET_DELAY_WATCH.as_ptr(),
    },
    ffi::PyMethodDef {
        ml_name: c"_set_slow_wait".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: set_slow_wait },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: SET_SLOW_WAIT.as_ptr(),
    },
    ffi::PyMethodDef::zeroed(),
]));

#[cfg(not(all(Py_LIMITED_API, Py_GIL_DISABLED)))]
mod definition {
    //! Up to 3.14, and on later interpreters for builds that know the header of an object.

    use super::{DOC, METHODS, ModuleState, NAME, Static, UnsafeCell, c_int, c_void, clear, execute, ffi, free, ptr, traverse};

    /// Numbers and values as 3.12 and 3.13 brought them: a build for 3.11 does not declare them, later interpreters accept
    /// them in a definition.
    const MULTIPLE_INTERPRETERS: c_int = 3;
    const PER_INTERPRETER_GIL: *mut c_void = ptr::without_provenance_mut(2);
    const GIL: c_int = 4;
    const GIL_NOT_USED: *mut c_void = ptr::without_provenance_mut(1);

    /// First versions that know these slots; earlier ones refuse a module with a slot they do not know.
    const SINCE_3_12: core::ffi::c_ulong = 0x030C_0000;
    const SINCE_3_13: core::ffi::c_ulong = 0x030D_0000;

    type Slots = Static<[ffi::PyModuleDef_Slot; 4]>;

    const END: ffi::PyModuleDef_Slot = ffi::PyModuleDef_Slot { slot: 0, value: ptr::null_mut() };

    const fn slots(known: usize) -> Slots {
        let execute = execute as unsafe extern "C" fn(*mut ffi::PyObject) -> c_int as *mut c_void;
        let mut slots = [
            ffi::PyModuleDef_Slot { slot: ffi::Py_mod_exec, value: execute },
            ffi::PyModuleDef_Slot { slot: MULTIPLE_INTERPRETERS, value: PER_INTERPRETER_GIL },
            ffi::PyModuleDef_Slot { slot: GIL, value: GIL_NOT_USED },
            END,
        ];
        let mut at = known;
        while at < slots.len() {
            slots[at] = END;
            at += 1;
        }
        Static(UnsafeCell::new(slots))
    }

    const fn definition(slots: &'static Slots) -> Static<ffi::PyModuleDef> {
        Static(UnsafeCell::new(ffi::PyModuleDef {
            m_base: ffi::PyModuleDef_HEAD_INIT,
            m_name: NAME.as_ptr(),
            m_doc: DOC.as_ptr(),
            m_size: size_of::<ModuleState>() as ffi::Py_ssize_t,
            m_methods: METHODS.0.get().cast(),
            m_slots: slots.0.get().cast(),
            m_traverse: Some(traverse),
            m_clear: Some(clear),
            m_free: Some(free),
        }))
    }

    static SLOTS_3_11: Slots = slots(1);
    static SLOTS_3_12: Slots = slots(2);
    static SLOTS_3_13: Slots = slots(3);
    static FOR_3_11: Static<ffi::PyModuleDef> = definition(&SLOTS_3_11);
    static FOR_3_12: Static<ffi::PyModuleDef> = definition(&SLOTS_3_12);
    static FOR_3_13: Static<ffi::PyModuleDef> = definition(&SLOTS_3_13);

    /// Entry point of `import ticketlock._core`. Chooses a complete definition instead of filling one in: two interpreters
    /// may import at the same time.
    #[unsafe(no_mangle)]
    #[allow(non_snake_case)] // the interpreter looks for this name
    unsafe extern "C" fn PyInit__core() -> *mut ffi::PyObject {
        // SAFETY: called by the interpreter; definitions are static.
        unsafe {
            let definition = match ffi::Py_Version {
                SINCE_3_13.. => &FOR_3_13,
                SINCE_3_12.. => &FOR_3_12,
                _ => &FOR_3_11,
            };
            ffi::PyModuleDef_Init(definition.0.get())
        }
    }
}

#[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
mod definition {
    //! The stable interface of free-threaded interpreters: a module is exported as slots, since no header is known.

    use super::{DOC, METHODS, ModuleState, NAME, Static, UnsafeCell, c_int, c_void, clear, execute, ffi, free, traverse};

    static ABI: Static<ffi::PyABIInfo> = Static(UnsafeCell::new(ffi::_PyABIInfo_DEFAULT));

    const fn function(slot: c_int, function: *mut c_void) -> ffi::PySlot {
        // SAFETY: every function below is of the type its slot wants.
        unsafe { ffi::PySlot_FUNC(slot, function) }
    }

    static SLOTS: Static<[ffi::PySlot; 12]> = Static(UnsafeCell::new([
        ffi::PySlot_STATIC_DATA(ffi::Py_mod_name, NAME.as_ptr().cast_mut().cast()),
        ffi::PySlot_STATIC_DATA(ffi::Py_mod_abi, ABI.0.get().cast()),
        ffi::PySlot_STATIC_DATA(ffi::Py_mod_doc, DOC.as_ptr().cast_mut().cast()),
        ffi::PySlot_STATIC_DATA(ffi::Py_mod_methods, METHODS.0.get().cast()),
        ffi::PySlot_SIZE(ffi::Py_mod_state_size, size_of::<ModuleState>() as ffi::Py_ssize_t),
        function(ffi::Py_mod_exec, execute as unsafe extern "C" fn(*mut ffi::PyObject) -> c_int as *mut c_void),
        function(ffi::Py_mod_state_traverse, traverse as ffi::traverseproc as *mut c_void),
        function(ffi::Py_mod_state_clear, clear as ffi::inquiry as *mut c_void),
        function(ffi::Py_mod_state_free, free as ffi::freefunc as *mut c_void),
        ffi::PySlot_DATA(ffi::Py_mod_multiple_interpreters, ffi::Py_MOD_PER_INTERPRETER_GIL_SUPPORTED),
        ffi::PySlot_DATA(ffi::Py_mod_gil, ffi::Py_MOD_GIL_NOT_USED),
        ffi::PySlot_END(),
    ]));

    /// Entry point of `import ticketlock._core`.
    #[unsafe(no_mangle)]
    #[allow(non_snake_case)] // the interpreter looks for this name
    unsafe extern "C" fn PyModExport__core() -> *mut ffi::PySlot {
        SLOTS.0.get().cast()
    }
}

/// The callback slot of a module, if it has been executed.
///
/// # Safety
/// Attached; `module` is ours and outlives the result.
unsafe fn callback<'a>(module: *mut PyObject) -> Option<&'a Callback> {
    // SAFETY: the state is as large as we asked for; zeroed or filled by `execute`.
    unsafe {
        let state: *mut ModuleState = ffi::PyModule_GetState(module).cast();
        state.as_ref()?.callback.as_ref()
    }
}

/// The callback slot of the module that made the type of `object`.
///
/// # Safety
/// Attached; `object` is one of our locks (and keeps its type, which keeps the module).
unsafe fn callback_of<'a>(object: *mut PyObject) -> Option<&'a Callback> {
    // SAFETY: the type came from `PyType_FromModuleAndSpec`.
    unsafe {
        let state: *mut ModuleState = ffi::PyType_GetModuleState(ffi::Py_TYPE(object)).cast();
        state.as_ref()?.callback.as_ref()
    }
}

/// The state of the module that made the type of `object`, or of its first base that is ours.
///
/// # Safety
/// As [`callback_of`].
unsafe fn state_of<'a>(object: *mut PyObject) -> Option<&'a ModuleState> {
    // SAFETY: the caller's promise; a type keeps its base.
    unsafe {
        let mut class = ffi::Py_TYPE(object);
        while !class.is_null() {
            let state: *mut ModuleState = ffi::PyType_GetModuleState(class).cast();
            if !state.is_null() {
                return state.as_ref();
            }
            ffi::PyErr_Clear(); // a derived type is of no module
            class = ffi::PyType_GetSlot(class, ffi::Py_tp_base).cast();
        }
        None
    }
}

/// Likewise, its callback of slow waits.
///
/// # Safety
/// As [`callback_of`].
unsafe fn slow_of<'a>(object: *mut PyObject) -> Option<&'a Callback> {
    // SAFETY: the caller's promise.
    unsafe { state_of(object)?.slow.as_ref() }
}

/// Likewise, the lines that make locks.
///
/// # Safety
/// As [`callback_of`].
unsafe fn codes_of<'a>(object: *mut PyObject) -> Option<&'a Codes> {
    // SAFETY: the caller's promise.
    unsafe { state_of(object)?.codes.as_ref() }
}

unsafe extern "C" fn execute(module: *mut PyObject) -> c_int {
    // SAFETY: called once by the interpreter, attached, with fresh module state.
    unsafe {
        let state: *mut ModuleState = ffi::PyModule_GetState(module).cast();
        if state.is_null() {
            return -1;
        }
        // Environment, hypervisor and CPUs are found now: later the program may change its environment while threads run.
        ticketlock::machine::init();
        (*state).callback = Box::into_raw(Box::new(Callback::new()));
        (*state).slow = Box::into_raw(Box::new(Callback::new()));
        (*state).codes = Box::into_raw(Box::new(Codes::new()));
        #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
        attach::learn_gil();
        attach::on_import();
        frames::learn_folders(module);
        let version = core::ffi::CStr::from_ptr(ffi::Py_GetVersion()).to_string_lossy();
        ticketlock::telemetry::segment::init(&Program {
            python: version.split(' ').next().unwrap_or_default(),
            free_threaded: !attach::always_has_gil(),
        });
        let types: [(&CStr, TypeMaker); 3] =
            [(c"TicketLock", ticket_lock::new_type), (c"Lock", lock::new_type), (c"RLock", rlock::new_type)];
        for (name, new_type) in types {
            let class = new_type(module);
            if class.is_null() {
                return -1;
            }
            // From the first type, which is final.
            #[cfg(all(Py_LIMITED_API, Py_GIL_DISABLED))]
            if !object::knows_layout() && !object::learn_layout(class) {
                return -1;
            }
            let added = ffi::PyModule_AddObjectRef(module, name.as_ptr(), class);
            ffi::Py_DECREF(class);
            if added != 0 {
                return added;
            }
        }
        ffi::PyModule_AddStringConstant(module, c"__version__".as_ptr(), VERSION.as_ptr().cast())
    }
}

/// Makes a type for a module; null with an exception set if that fails.
type TypeMaker = unsafe fn(*mut PyObject) -> *mut PyObject;

/// The workspace's one version, with the final zero that C wants.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

unsafe extern "C" fn traverse(module: *mut PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the collector's own function and argument; the state is zeroed or filled by `execute`.
    unsafe {
        let state: *mut ModuleState = ffi::PyModule_GetState(module).cast();
        let Some(state) = state.as_ref() else { return 0 };
        for callback in [state.callback.as_ref(), state.slow.as_ref()].into_iter().flatten() {
            let stop = callback.traverse(visit, argument);
            if stop != 0 {
                return stop;
            }
        }
        state.codes.as_ref().map_or(0, |codes| codes.traverse(visit, argument))
    }
}

unsafe extern "C" fn clear(module: *mut PyObject) -> c_int {
    // SAFETY: called by the interpreter, attached.
    unsafe {
        let state: *mut ModuleState = ffi::PyModule_GetState(module).cast();
        if let Some(state) = state.as_ref() {
            if let Some(callback) = state.callback.as_ref() {
                callback.set(ptr::null_mut(), watch::arm);
            }
            if let Some(callback) = state.slow.as_ref() {
                callback.set(ptr::null_mut(), |_| ());
            }
            if let Some(codes) = state.codes.as_ref() {
                codes.clear();
            }
        }
    }
    0
}

unsafe extern "C" fn free(module: *mut c_void) {
    // SAFETY: called by the interpreter, attached, when nobody can use the module; locks, which refer to it through their
    // type, are gone.
    unsafe {
        clear(module.cast());
        let state: *mut ModuleState = ffi::PyModule_GetState(module.cast()).cast();
        if let Some(state) = state.as_mut() {
            for slot in [&mut state.callback, &mut state.slow] {
                let callback = core::mem::replace(slot, ptr::null_mut());
                if !callback.is_null() {
                    drop(Box::from_raw(callback));
                }
            }
            let codes = core::mem::replace(&mut state.codes, ptr::null_mut());
            if !codes.is_null() {
                drop(Box::from_raw(codes));
            }
        }
    }
}

unsafe extern "C" fn set_delay_watch(module: *mut PyObject, new: *mut PyObject) -> *mut PyObject {
    // SAFETY: `module` is ours; `new` is alive, and gets a reference for the slot.
    unsafe {
        let off = new == ffi::Py_None();
        if !off && ffi::PyCallable_Check(new) == 0 {
            return values::raise(ffi::PyExc_TypeError, "the delay watch wants a callable, or None to switch it off");
        }
        if let Some(callback) = callback(module) {
            if !off {
                ffi::Py_INCREF(new);
            }
            callback.set(if off { ptr::null_mut() } else { new }, watch::arm);
        }
        none()
    }
}

unsafe extern "C" fn set_slow_wait(module: *mut PyObject, args: *mut *mut PyObject, count: ffi::Py_ssize_t) -> *mut PyObject {
    // SAFETY: `module` is ours; `count` arguments are alive, and the callback gets a reference for the slot.
    unsafe {
        if count != 2 {
            return values::raise(ffi::PyExc_TypeError, "_set_slow_wait() takes a time in ns and a callable or None");
        }
        let Some(from_ns) = values::unsigned(*args) else { return ptr::null_mut() };
        let new = *args.add(1);
        let off = new == ffi::Py_None();
        if !off && ffi::PyCallable_Check(new) == 0 {
            return values::raise(ffi::PyExc_TypeError, "slow waits want a callable, or None to switch them off");
        }
        let state: *mut ModuleState = ffi::PyModule_GetState(module).cast();
        if let Some(callback) = state.as_ref().and_then(|state| state.slow.as_ref()) {
            if !off {
                ffi::Py_INCREF(new);
            }
            if !off {
                slow::set_limit(from_ns);
            }
            callback.set(if off { ptr::null_mut() } else { new }, |_| ());
        }
        none()
    }
}
