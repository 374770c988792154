//! General registers of a task, as perf notes them.
//!
//! Source: the kernel's arch/x86/include/uapi/asm/perf_regs.h (v6.12).

use iced_x86::Register;

/// One bit for each register that is asked for, by its number in perf's list.
pub const MASK: u64 = 0x00ff_01ff;

/// Those registers in that order.
const ORDER: [Register; 17] = [
    Register::RAX,
    Register::RBX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::RIP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// What they hold, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Registers([Option<u64>; ORDER.len()]);

impl Registers {
    /// Reads perf's list; `None` if it is not as long as what was asked for.
    pub fn read(values: &[u64]) -> Option<Registers> {
        let values: [u64; ORDER.len()] = values.try_into().ok()?;
        Some(Registers(values.map(Some)))
    }

    /// The instruction that comes next.
    pub fn ip(&self) -> u64 {
        self.0[8].unwrap_or(0)
    }

    /// Puts something into a register; nothing, and what it holds is not known from now on. What is
    /// narrower than 32 bits leaves the rest as it was, which is not followed.
    pub fn set(&mut self, register: Register, value: Option<u64>) {
        let whole = register.full_register();
        if let Some(at) = ORDER.iter().position(|known| *known == whole) {
            self.0[at] = match register.size() {
                8 => value,
                4 => value.map(|value| value & 0xffff_ffff),
                _ => None,
            };
        }
    }

    /// What a register holds; the lower part of one that is narrower. Segments of 64-bit programs begin at
    /// zero, but for FS and GS, which nobody notes.
    pub fn get(&self, register: Register) -> Option<u64> {
        if matches!(register, Register::CS | Register::DS | Register::ES | Register::SS) {
            return Some(0);
        }
        let whole = register.full_register();
        let value = self.0[ORDER.iter().position(|known| *known == whole)?]?;
        match register.size() {
            8 => Some(value),
            4 => Some(value & 0xffff_ffff),
            _ => None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// All zero but these.
    pub fn holding(held: &[(Register, u64)]) -> Registers {
        let mut all = Registers([Some(0); ORDER.len()]);
        held.iter().for_each(|(register, value)| all.set(*register, Some(*value)));
        all
    }

    #[test]
    fn perf_has_them_by_its_numbers() {
        assert_eq!(MASK.count_ones() as usize, ORDER.len());
        let values: Vec<u64> = (0..17).map(|n| n << 32 | n).collect();
        let registers = Registers::read(&values).unwrap();
        // RSP is 7, RIP 8, R8 is 16 and the ninth that is asked for.
        for (register, n) in [(Register::RAX, 0), (Register::RSP, 7), (Register::RIP, 8)] {
            assert_eq!(registers.get(register), Some(n << 32 | n));
        }
        assert_eq!(registers.get(Register::R8), Some(9 << 32 | 9));
        assert_eq!(registers.get(Register::R15D), Some(16));
        assert_eq!((registers.get(Register::DS), registers.get(Register::FS)), (Some(0), None));
        assert_eq!(registers.get(Register::XMM1), None);
        assert!(Registers::read(&values[1..]).is_none());
        let mut registers = registers;
        registers.set(Register::EAX, Some(1 << 32 | 5));
        registers.set(Register::BL, Some(5));
        assert_eq!((registers.get(Register::RAX), registers.get(Register::RBX)), (Some(5), None));
    }
}
