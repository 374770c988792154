//! Keeps QEMU from running breakpoints that the guest's kernel has already taken away.
//!
//! A kernel that patches itself (a static key, BPF being attached) puts a breakpoint over the
//! first byte, changes the rest, then the first byte, and has every CPU synchronise after each
//! step. QEMU before 8.1 translates code without holding a lock on its page: a block that was read
//! with the breakpoint may be entered into the cache just after the last write dropped the page's
//! blocks. It is then run for ever; the kernel, through with its change, has no handler for the
//! breakpoint, and panics (`Oops: int3`). Seen four times in some hundred boots of eight CPUs.
//!
//! So a block of kernel code that ends in a breakpoint looks at its first moment whether memory
//! still has it. If not, all translations are dropped and the block is left before it has done
//! anything. A breakpoint that is still there is the kernel's business: it has not yet seen this
//! CPU synchronise, which a CPU does only between blocks.
//!
//! Works on x86-64 hosts, and where QEMU exports what it needs, which Debian's does.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use qemu_plugin_sys as qemu;

use crate::machine::complain;

/// The breakpoint's only byte.
const INT3: u8 = 0xcc;
/// Below it no host address is memory: a page that is no RAM has offsets from null.
const LEAST_ADDRESS: usize = 1 << 20;

/// `qemu_get_cpu`: a CPU's state by its number.
type Cpu = unsafe extern "C" fn(c_int) -> *mut c_void;
/// `tb_flush`: drops all blocks once every CPU has left the one it is in.
type DropBlocks = unsafe extern "C" fn(*mut c_void);
/// `cpu_loop_exit_restore`: leaves the block that called from that host address.
type Leave = unsafe extern "C" fn(*mut c_void, usize) -> !;

/// What of QEMU it takes to leave a block, as it is in QEMU 6.0 to 8.1.
struct Exits {
    cpu: Cpu,
    drop_blocks: DropBlocks,
    leave: Leave,
}

/// Found once; None where QEMU does not export them.
fn exits() -> Option<&'static Exits> {
    static EXITS: OnceLock<Option<Exits>> = OnceLock::new();
    let find = |name: &CStr| {
        // SAFETY: the name is a C string; nothing is loaded.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    };
    let all = || {
        let cpu = find(c"qemu_get_cpu")?;
        let drop_blocks = find(c"tb_flush")?;
        let leave = find(c"cpu_loop_exit_restore")?;
        // SAFETY: QEMU's functions of these names have these types.
        Some(unsafe {
            Exits {
                cpu: transmute::<*mut c_void, Cpu>(cpu),
                drop_blocks: transmute::<*mut c_void, DropBlocks>(drop_blocks),
                leave: transmute::<*mut c_void, Leave>(leave),
            }
        })
    };
    EXITS.get_or_init(all).as_ref()
}

/// Has the block look, if it is kernel code that ends in a breakpoint.
///
/// # Safety
/// Called by QEMU's translation callback with its block.
pub unsafe fn watch(block: *mut qemu::qemu_plugin_tb) {
    // SAFETY: the caller's; an instruction's handle and bytes are valid during the callback, and
    // its host address, where it is one, stays mapped as long as the guest's memory.
    unsafe {
        let of_the_kernel = qemu::qemu_plugin_tb_vaddr(block) >> 63 == 1;
        let count = qemu::qemu_plugin_tb_n_insns(block);
        if !of_the_kernel || count == 0 {
            return;
        }
        let last = qemu::qemu_plugin_tb_get_insn(block, count - 1);
        let is_breakpoint = qemu::qemu_plugin_insn_size(last) == 1
            && *qemu::qemu_plugin_insn_data(last).cast::<u8>() == INT3;
        let host = qemu::qemu_plugin_insn_haddr(last);
        if is_breakpoint && host.addr() >= LEAST_ADDRESS && exits().is_some() {
            qemu::qemu_plugin_register_vcpu_tb_exec_cb(
                block,
                Some(look),
                qemu::qemu_plugin_cb_flags::QEMU_PLUGIN_CB_NO_REGS,
                host,
            );
        }
    }
}

/// Called at the block's start: returns if the breakpoint is still there, else goes to
/// [`leave`] with where it was called from, which tells QEMU the block and its instruction.
#[unsafe(naked)]
unsafe extern "C" fn look(_index: c_uint, _host: *mut c_void) {
    std::arch::naked_asm!(
        "cmp byte ptr [rsi], {int3}",
        "jne 2f",
        "ret",
        "2:",
        "mov rdx, [rsp]",
        "jmp {leave}",
        int3 = const INT3,
        leave = sym leave,
    )
}

/// Drops all translations once every CPU has stopped, and has this one find its code anew. QEMU
/// leaves by a long jump: nothing here may need to be dropped.
unsafe extern "C" fn leave(index: c_uint, _host: *mut c_void, called_from: usize) {
    let Some(exits) = exits() else { return };
    complain("dropped a breakpoint that the kernel had taken away");
    // SAFETY: on the CPU's own thread, within a block, before its first instruction: nothing of
    // the CPU's state is in host registers. The frames left behind own nothing.
    unsafe {
        let cpu = (exits.cpu)(index as c_int);
        (exits.drop_blocks)(cpu);
        (exits.leave)(cpu, called_from)
    }
}
