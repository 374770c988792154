//! QEMU's callbacks: the only place that speaks its plugin interface.
//!
//! Written for API 1 (QEMU 7.2); with feature `api-v4` for QEMU 10, whose one difference here is
//! how an instruction's bytes are read. Invariant: after [`qemu_plugin_install`] has returned 0
//! [`MACHINE`] points to a machine that is never freed, and callbacks run only then.
//!
//! Callbacks get numbers, not pointers, as user data: what a block costs is computed when it is
//! translated and packed into the one word.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use qemu_plugin_sys as qemu;

#[cfg(all(feature = "api-v1", target_arch = "x86_64"))]
use crate::breakpoint;
use crate::config::Config;
use crate::machine::{Machine, complain};
use crate::marker::{Marker, drops_translations};
use crate::vcpu::{Target, Vcpu};

/// The API level QEMU checks before it calls us.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = qemu::QEMU_PLUGIN_VERSION as c_int;

static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(ptr::null_mut());

/// A block's user data: instructions in the low bits, cost in guest ps above.
const INSTRUCTION_BITS: u32 = 16;
const NO_REGISTERS: qemu::qemu_plugin_cb_flags = qemu::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS;

#[inline(always)]
fn machine() -> &'static Machine {
    // SAFETY: set once, before any callback is registered, to a machine that is never freed.
    unsafe { &*MACHINE.load(Ordering::Relaxed) }
}

#[inline(always)]
fn with_vcpu(index: c_uint, act: impl FnOnce(&'static Machine, &'static Vcpu, usize)) {
    let machine = machine();
    if let Some(vcpu) = machine.vcpu(index as usize) {
        act(machine, vcpu, index as usize);
    }
}

/// QEMU's entry point. 0 is success. Without arguments nothing is charged, and only breakpoints are
/// watched.
///
/// # Safety
/// QEMU's contract: `info` and `argc` strings at `argv` are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: qemu::qemu_plugin_id_t,
    info: *const qemu::qemu_info_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    let argument = |i: usize| {
        // SAFETY: QEMU's contract, and `i` is below `argc`.
        let text = unsafe { CStr::from_ptr(*argv.add(i)) };
        text.to_string_lossy().into_owned()
    };
    let arguments: Vec<String> = (0..argc.max(0) as usize).map(argument).collect();
    if arguments.is_empty() {
        // SAFETY: `id` is ours, and the callback has the type that QEMU expects.
        unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(only_watch)) };
        return 0;
    }
    // SAFETY: QEMU's contract; `system` is valid under system emulation.
    let smp =
        unsafe { (*info).system_emulation.then(|| (*info).__bindgen_anon_1.system.max_vcpus) };
    match prepare(&arguments, smp) {
        Ok(machine) => {
            MACHINE.store(Box::into_raw(Box::new(machine)), Ordering::Release);
            // SAFETY: `id` is ours, and the callbacks have the types that QEMU expects.
            unsafe {
                qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, Some(on_translate));
                qemu::qemu_plugin_register_vcpu_idle_cb(id, Some(on_idle));
                qemu::qemu_plugin_register_vcpu_resume_cb(id, Some(on_resume));
            }
            0
        }
        Err(problem) => {
            complain(&problem);
            1
        }
    }
}

fn prepare(arguments: &[String], smp: Option<c_int>) -> Result<Machine, String> {
    let [argument] = arguments else {
        return Err("expected the one argument config=PATH".into());
    };
    let path = argument
        .strip_prefix("config=")
        .ok_or_else(|| format!("unknown argument '{argument}', expected config=PATH"))?;
    let smp = smp.ok_or("only whole machines can be slowed, not single programs")?;
    let config = Config::read(Path::new(path)).map_err(|error| error.to_string())?;
    if usize::try_from(smp) != Ok(config.cpu_node.len()) {
        let named = config.cpu_node.len();
        return Err(format!("{path}: cpu_node names {named} CPUs, the machine has {smp}"));
    }
    Machine::new(&config)
        .map_err(|error| format!("cannot make the stats file {}: {error}", config.stats.display()))
}

#[cfg(feature = "api-v1")]
fn with_bytes<R>(instruction: *mut qemu::qemu_plugin_insn, read: impl FnOnce(&[u8]) -> R) -> R {
    // SAFETY: the handle is valid during translation, and so are the bytes it leads to.
    read(unsafe {
        let data = qemu::qemu_plugin_insn_data(instruction).cast::<u8>();
        std::slice::from_raw_parts(data, qemu::qemu_plugin_insn_size(instruction))
    })
}

#[cfg(not(feature = "api-v1"))]
fn with_bytes<R>(instruction: *mut qemu::qemu_plugin_insn, read: impl FnOnce(&[u8]) -> R) -> R {
    let mut bytes = [0u8; 16];
    // SAFETY: the handle is valid during translation; QEMU writes at most the length given.
    let size =
        unsafe { qemu::qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len()) };
    read(&bytes[..size.min(bytes.len())])
}

/// Where QEMU needs it.
#[cfg(not(all(feature = "api-v1", target_arch = "x86_64")))]
mod breakpoint {
    pub unsafe fn watch(_: *mut super::qemu::qemu_plugin_tb) {}
}

unsafe extern "C" fn only_watch(_: qemu::qemu_plugin_id_t, block: *mut qemu::qemu_plugin_tb) {
    // SAFETY: QEMU gives a handle that is valid during this callback.
    unsafe { breakpoint::watch(block) };
}

unsafe extern "C" fn on_translate(_: qemu::qemu_plugin_id_t, block: *mut qemu::qemu_plugin_tb) {
    // SAFETY: QEMU gives a handle that is valid during this callback, as are those of its
    // instructions; the callbacks have the types that QEMU expects.
    unsafe {
        let instructions = qemu::qemu_plugin_tb_n_insns(block);
        let cost_ps = instructions as u64 * machine().instruction_ps();
        let packed = cost_ps << INSTRUCTION_BITS | instructions as u64;
        let user_data = ptr::without_provenance_mut(packed as usize);
        breakpoint::watch(block);
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, Some(on_block), NO_REGISTERS, user_data);
        for i in 0..instructions {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, i);
            qemu::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                Some(on_access),
                NO_REGISTERS,
                qemu::qemu_plugin_mem_rw::QEMU_PLUGIN_MEM_RW,
                ptr::null_mut(),
            );
            let (marker, drops) =
                with_bytes(instruction, |bytes| (Marker::decode(bytes), drops_translations(bytes)));
            let on_execution: Option<(OnExecution, usize)> = match marker {
                Some(marker) => Some((on_marker, usize::from(marker.pack()))),
                None if drops => Some((on_drop, 0)),
                None => None,
            };
            if let Some((callback, word)) = on_execution {
                let user_data = ptr::without_provenance_mut(word);
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    Some(callback),
                    NO_REGISTERS,
                    user_data,
                );
            }
        }
    }
}

type OnExecution = unsafe extern "C" fn(c_uint, *mut c_void);

unsafe extern "C" fn on_block(index: c_uint, packed: *mut c_void) {
    let packed = packed.addr() as u64;
    let (instructions, cost_ps) =
        (packed & ((1 << INSTRUCTION_BITS) - 1), packed >> INSTRUCTION_BITS);
    with_vcpu(index, |machine, vcpu, i| {
        // SAFETY: QEMU calls on the vCPU's own thread.
        unsafe { vcpu.block(machine, i, instructions, cost_ps) }
    });
}

unsafe extern "C" fn on_access(
    index: c_uint,
    info: qemu::qemu_plugin_meminfo_t,
    virtual_address: u64,
    _: *mut c_void,
) {
    with_vcpu(index, |machine, vcpu, _| {
        // SAFETY: `info` is that of this access.
        let is_store = || unsafe { qemu::qemu_plugin_mem_is_store(info) };
        let resolve = || resolve(machine, info, virtual_address);
        // SAFETY: QEMU calls on the vCPU's own thread.
        unsafe { vcpu.access(machine, virtual_address, is_store, resolve) }
    });
}

#[cold]
fn resolve(machine: &Machine, info: qemu::qemu_plugin_meminfo_t, virtual_address: u64) -> Target {
    // SAFETY: called during the access's callback; the handle is valid until that returns. The
    // address of a device is not asked for: QEMU may hold a stale section for it.
    unsafe {
        let handle = qemu::qemu_plugin_get_hwaddr(info, virtual_address);
        if handle.is_null() || qemu::qemu_plugin_hwaddr_is_io(handle) {
            return Target::Device;
        }
        machine.target(qemu::qemu_plugin_hwaddr_phys_addr(handle))
    }
}

unsafe extern "C" fn on_marker(index: c_uint, word: *mut c_void) {
    if let Some(marker) = Marker::unpack(word.addr() as u16) {
        // SAFETY: QEMU calls on the vCPU's own thread.
        unsafe { machine().obey(index as usize, marker) };
    }
}

unsafe extern "C" fn on_drop(index: c_uint, _: *mut c_void) {
    // SAFETY: QEMU calls on the vCPU's own thread.
    with_vcpu(index, |_, vcpu, _| unsafe { vcpu.drop_translations() });
}

unsafe extern "C" fn on_idle(_: qemu::qemu_plugin_id_t, index: c_uint) {
    // SAFETY: QEMU calls on the vCPU's own thread.
    with_vcpu(index, |machine, vcpu, i| unsafe { vcpu.idle(machine, i) });
}

unsafe extern "C" fn on_resume(_: qemu::qemu_plugin_id_t, index: c_uint) {
    // SAFETY: QEMU calls on the vCPU's own thread.
    with_vcpu(index, |machine, vcpu, i| unsafe { vcpu.resume(machine, i) });
}
