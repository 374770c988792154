//! Attaching to functions of the kernel whose BTF ids are known already.
//!
//! By itself libbpf reads and checks all of the kernel's BTF again to find them, which is most of what
//! loading takes and some tens of milliseconds of a CPU that others may want. Its hook for sections of one's
//! own (`libbpf_register_prog_handler`) lets the ids be told instead.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_long};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Error, OpenProgramMut};

/// Sections that libbpf asks us about. What is registered stays: ids are those of the running kernel, and
/// libbpf's programs keep a pointer to it.
static REGISTERED: Mutex<BTreeSet<&CStr>> = Mutex::new(BTreeSet::new());

/// Has programs of this section (`fentry/FUNCTION`) attached to the function of this id. Comes before the
/// object is opened.
pub(crate) fn tell(section: &'static CStr, id: u32) -> Result<(), Error> {
    // Held over the call: libbpf keeps these in a table that has no lock of its own.
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.contains(section) {
        return Ok(());
    }
    let options = libbpf_sys::libbpf_prog_handler_opts {
        sz: size_of::<libbpf_sys::libbpf_prog_handler_opts>() as libbpf_sys::size_t,
        cookie: c_long::from(id),
        prog_prepare_load_fn: Some(set_target),
        ..Default::default()
    };
    // SAFETY: the section's name and the options are valid for the call, which copies both; nobody else
    // registers meanwhile, as the lock is held.
    let handler = unsafe {
        libbpf_sys::libbpf_register_prog_handler(
            section.as_ptr(),
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            libbpf_sys::BPF_TRACE_FENTRY,
            &raw const options,
        )
    };
    if handler < 0 {
        return Err(Error::from_raw_os_error(-handler));
    }
    registered.insert(section);
    Ok(())
}

/// Keeps libbpf from looking for the function: it leaves that to later for programs that are said to be
/// attached to another program, whichever, and `set_target` takes that back.
pub(crate) fn defer(program: &mut OpenProgramMut<'_>) -> Result<(), Error> {
    program.set_attach_target(c_int::MAX, None)
}

unsafe extern "C" fn set_target(
    _: *mut libbpf_sys::bpf_program,
    options: *mut libbpf_sys::bpf_prog_load_opts,
    id: c_long,
) -> c_int {
    // SAFETY: libbpf hands in its own options, which nobody else uses during the call.
    let options = unsafe { &mut *options };
    options.attach_btf_id = id as u32;
    options.attach_prog_fd = 0;
    0
}
