//! Which addresses the instructions from here on access, as far as the registers of now tell.
//!
//! The instruction at which a task was found comes first. If it accesses no memory, one of the next
//! does: those are followed up to the end of the straight line, and once more from where a jump back
//! leads, which is the loop that the task is in. What a register holds is followed through additions of
//! constants, moves and address calculations, as they move a pointer on; what anything else puts into
//! one is not known.
//!
//! Example, found at the first of these with RDI = 0x1000:
//!
//! ```text
//! top: mov [rdi], rax     0x1000
//!      add rdi, 64
//!      mov [rdi], rax     0x1040
//!      mov rdi, [rsi]
//!      mov [rdi], rax     not known
//! ```

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register, UsedMemory,
};

use crate::registers::Registers;

/// Instructions that are followed.
pub const MOST: usize = 32;

/// Accesses that are answered: the first are sure to come, and cost the time for which they were found.
const MOST_ACCESSES: usize = 2;

/// Instructions from an address on.
#[derive(Debug)]
pub struct Block(Vec<Step>);

/// Has the decoder unpack its tables, which it does once: some millions of instructions that nobody has to wait
/// for when the first samples come.
pub fn unpack_decoder() {
    let _ = Decoder::new(64, &[], DecoderOptions::NONE);
}

/// What of an instruction matters.
#[derive(Debug)]
struct Step {
    accesses: Vec<UsedMemory>,
    /// Registers that it changes.
    changes: Vec<Register>,
    /// What is known then of one of them.
    result: Option<(Register, Sum)>,
}

/// What is put into a register.
#[derive(Clone, Copy, Debug)]
enum Sum {
    /// What another holds, or this one, and a constant.
    Of(Register, u64),
    /// A constant.
    Constant(u64),
    /// An address, of which nothing is read.
    Address(Instruction),
}

impl Block {
    /// Reads instructions from `ip` on; `code` answers the bytes at an address, as many as it has.
    pub fn read(ip: u64, mut code: impl FnMut(u64) -> Vec<u8>) -> Block {
        let mut steps = Vec::new();
        let mut from = Some(ip);
        let mut turned = false;
        let mut info = InstructionInfoFactory::new();
        while let Some(start) = from.take() {
            let bytes = code(start);
            let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
            for instruction in decoder.iter() {
                if steps.len() == MOST || instruction.code() == Code::INVALID {
                    break;
                }
                steps.push(step(&mut info, &instruction));
                if let Some(next) = leads_back(&instruction).filter(|_| !turned) {
                    (turned, from) = (true, Some(next));
                }
                if instruction.flow_control() != FlowControl::Next {
                    break;
                }
            }
        }
        Block(steps)
    }

    /// The addresses that are accessed first with these registers, in order, each once; two at the most.
    pub fn accesses(&self, registers: &Registers) -> Vec<u64> {
        let mut held = *registers;
        let mut addresses = Vec::new();
        for step in &self.0 {
            for access in &step.accesses {
                let address = address(access, &held);
                if let Some(address) = address.filter(|address| !addresses.contains(address)) {
                    addresses.push(address);
                }
                if addresses.len() == MOST_ACCESSES {
                    return addresses;
                }
            }
            let result = step.result.map(|(register, sum)| (register, sum.value(&held)));
            step.changes.iter().for_each(|&register| held.set(register, None));
            if let Some((register, value)) = result {
                held.set(register, value);
            }
        }
        addresses
    }
}

impl Sum {
    fn value(self, held: &Registers) -> Option<u64> {
        match self {
            Sum::Of(register, constant) => Some(held.get(register)?.wrapping_add(constant)),
            Sum::Constant(constant) => Some(constant),
            Sum::Address(lea) => lea.virtual_address(1, 0, |register, _, _| held.get(register)),
        }
    }
}

fn address(memory: &UsedMemory, held: &Registers) -> Option<u64> {
    memory.virtual_address(0, |register, _, _| held.get(register))
}

fn step(info: &mut InstructionInfoFactory, instruction: &Instruction) -> Step {
    let info = info.info(instruction);
    let touches = |access: OpAccess| {
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        matches!(access, Read | CondRead | Write | CondWrite | ReadWrite | ReadCondWrite)
    };
    let writes = |access: OpAccess| {
        use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
        matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
    };
    let changes = info.used_registers().iter().filter(|used| writes(used.access()));
    Step {
        accesses: info
            .used_memory()
            .iter()
            .filter(|memory| touches(memory.access()))
            .copied()
            .collect(),
        changes: changes.map(|used| used.register()).collect(),
        result: result(instruction),
    }
}

/// What is known of what an instruction puts into its first register.
fn result(instruction: &Instruction) -> Option<(Register, Sum)> {
    let register = instruction.op0_register();
    if instruction.op0_kind() != OpKind::Register || !matches!(register.size(), 4 | 8) {
        return None;
    }
    let constant = instruction.try_immediate(1).ok();
    let sum = match instruction.mnemonic() {
        Mnemonic::Add => Sum::Of(register, constant?),
        Mnemonic::Sub => Sum::Of(register, constant?.wrapping_neg()),
        Mnemonic::Inc => Sum::Of(register, 1),
        Mnemonic::Dec => Sum::Of(register, 1_u64.wrapping_neg()),
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            Sum::Of(instruction.op1_register(), 0)
        }
        Mnemonic::Mov => Sum::Constant(constant?),
        Mnemonic::Lea => Sum::Address(*instruction),
        _ => return None,
    };
    Some((register, sum))
}

/// Where a direct jump goes, if that is back.
fn leads_back(instruction: &Instruction) -> Option<u64> {
    use FlowControl::{ConditionalBranch, UnconditionalBranch};
    let jumps = matches!(instruction.flow_control(), ConditionalBranch | UnconditionalBranch);
    let target = instruction.near_branch_target();
    (jumps && target != 0 && target <= instruction.ip()).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::tests::holding;

    const AT: u64 = 0x40_0000;

    /// What these bytes access, found so many bytes behind their first.
    fn found(code: &[u8], at: usize, held: &[(Register, u64)]) -> Vec<u64> {
        let bytes = |address: u64| code[(address - AT) as usize..].to_vec();
        Block::read(AT + at as u64, bytes).accesses(&holding(held))
    }

    /// `mov [rdi], rax; add rdi, 64; cmp rdi, rsi; jb` to the first.
    const SWEEP: [u8; 12] =
        [0x48, 0x89, 0x07, 0x48, 0x83, 0xc7, 0x40, 0x48, 0x39, 0xf7, 0x72, 0xf4];

    #[test]
    fn a_sweep_accesses_where_its_pointer_is_and_will_be() {
        let held = [(Register::RDI, 0x1000)];
        assert_eq!(found(&SWEEP, 0, &held), [0x1000, 0x1040]);
        // The addition is still to come.
        assert_eq!(found(&SWEEP, 3, &held), [0x1040]);
        // Behind it and before the jump back: the next round's.
        assert_eq!(found(&SWEEP, 7, &held), [0x1000]);
        assert_eq!(found(&SWEEP, 10, &held), [0x1000]);
    }

    #[test]
    fn base_index_scale_and_displacement_make_an_address() {
        // mov eax, [rbx + rcx*8 + 0x10]; ret, which reads the stack
        let held = [(Register::RBX, 0x1000), (Register::RCX, 2), (Register::RSP, 0x5000)];
        assert_eq!(found(&[0x8b, 0x44, 0xcb, 0x10, 0xc3], 0, &held), [0x1020, 0x5000]);
        // Relative to the instruction: mov rax, [rip + 0x100] is 7 long.
        assert_eq!(found(&[0x48, 0x8b, 0x05, 0x00, 0x01, 0, 0], 0, &[]), [AT + 0x107]);
    }

    #[test]
    fn pointers_are_followed_as_far_as_they_are_known() {
        let held = [(Register::RBX, 0x1000), (Register::RAX, 0x7000)];
        // lea rax, [rbx+8] reads nothing; mov rdx, [rax]
        assert_eq!(found(&[0x48, 0x8d, 0x43, 0x08, 0x48, 0x8b, 0x10], 0, &held), [0x1008]);
        // mov rax, rbx; sub rax, 16; mov rdx, [rax]
        let code = [0x48, 0x89, 0xd8, 0x48, 0x83, 0xe8, 0x10, 0x48, 0x8b, 0x10];
        assert_eq!(found(&code, 0, &held), [0xff0]);
        // A list: mov rbx, [rbx]; mov rdx, [rbx]. Where it goes on is not known.
        assert_eq!(found(&[0x48, 0x8b, 0x1b, 0x48, 0x8b, 0x13], 0, &held), [0x1000]);
        // imul rbx, rax; mov rdx, [rbx]
        assert_eq!(found(&[0x48, 0x0f, 0xaf, 0xd8, 0x48, 0x8b, 0x13], 0, &held), [0; 0]);
        // inc ebx; mov rdx, [rbx]: the upper half is gone
        let held = [(Register::RBX, 1 << 32 | 0xfff)];
        assert_eq!(found(&[0xff, 0xc3, 0x48, 0x8b, 0x13], 0, &held), [0x1000]);
    }

    #[test]
    fn copies_access_both_sides_and_thread_storage_is_not_known() {
        let held = [(Register::RSI, 0x1000), (Register::RDI, 0x9000), (Register::RCX, 64)];
        // rep movsb
        let mut both = found(&[0xf3, 0xa4], 0, &held);
        both.sort_unstable();
        assert_eq!(both, [0x1000, 0x9000]);
        // mov rax, fs:[0]
        assert_eq!(found(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], 0, &[]), [0; 0]);
    }

    #[test]
    fn what_is_no_code_accesses_nothing() {
        assert_eq!(found(&[0x06; 32], 0, &[]), [0; 0]);
        let nothing = Block::read(AT, |_| Vec::new());
        assert!(nothing.accesses(&holding(&[])).is_empty());
    }
}
