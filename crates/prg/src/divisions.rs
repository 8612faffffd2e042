//! Which divisions a piece of code executes, and of what.
//!
//! A processor's division takes a time that depends on its operands, and valgrind does not see it
//! (see [`valgrind`](crate::valgrind)). So a test runs the optimised code one instruction at a time,
//! by the processor's trap flag, and writes down the operands of each `div` and `idiv` that comes by,
//! whatever function or library it is in: they must be the same whatever the secrets are.
//!
//! Written for x86-64 Linux; elsewhere nothing is recorded. A step costs about a microsecond.

/// A division that was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what there is to know of one")]
pub struct Division {
    /// Where the instruction is, from the start of the program's image on, as `addr2line -e` takes
    /// it; a library's is where it happens to be loaded.
    pub at: u64,
    /// The dividend, low word and high word, and the divisor: as many bits as the instruction reads.
    pub operands: [u64; 3],
}

/// What [`during`] keeps.
pub const DIVISIONS_MAX: usize = 1 << 18;

/// Runs `run` and returns the divisions that this thread executed, the first [`DIVISIONS_MAX`] of
/// them; `None` where it cannot (another platform, a debugger that keeps the trap for itself).
pub fn during(run: impl FnOnce()) -> Option<Vec<Division>> {
    steps::during(run)
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod steps {
    pub fn during(run: impl FnOnce()) -> Option<Vec<super::Division>> {
        run();
        None
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod steps {
    use std::arch::asm;
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    use super::{DIVISIONS_MAX, Division};

    /// One recording at a time: there is one handler of the trap for all threads.
    static TURN: Mutex<()> = Mutex::new(());
    static LOG: AtomicPtr<Division> = AtomicPtr::new(std::ptr::null_mut());
    static LOGGED: AtomicUsize = AtomicUsize::new(0);
    static STEPS: AtomicUsize = AtomicUsize::new(0);

    pub fn during(run: impl FnOnce()) -> Option<Vec<Division>> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut log = vec![Division::default(); DIVISIONS_MAX];
        LOG.store(log.as_mut_ptr(), Ordering::SeqCst);
        LOGGED.store(0, Ordering::SeqCst);
        STEPS.store(0, Ordering::SeqCst);
        {
            let _handler = Handler::install()?;
            let _trap = Trap::set();
            run();
        }
        LOG.store(std::ptr::null_mut(), Ordering::SeqCst);
        log.truncate(LOGGED.load(Ordering::SeqCst));
        let base = image_base();
        log.iter_mut().for_each(|division| division.at = division.at.wrapping_sub(base));
        (STEPS.load(Ordering::SeqCst) > 0).then_some(log)
    }

    /// Where the program's image starts: the address of the first mapping of its file.
    fn image_base() -> u64 {
        let program = std::env::current_exe().unwrap_or_default();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines()
            .find(|line| line.ends_with(&*program.to_string_lossy()))
            .and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
            .unwrap_or(0)
    }

    /// The trap's handler, until it is dropped; then the one before it.
    struct Handler {
        before: libc::sigaction,
    }

    impl Handler {
        fn install() -> Option<Self> {
            // SAFETY: all zeros are a `sigaction` without handler, mask and flags.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = step as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            let mut before = action;
            // SAFETY: two places for actions. The handler does what a handler may: it reads memory and
            // stores atomics.
            let is_installed = unsafe { libc::sigaction(libc::SIGTRAP, &action, &mut before) } == 0;
            is_installed.then_some(Self { before })
        }
    }

    impl Drop for Handler {
        fn drop(&mut self) {
            // SAFETY: what was there before.
            unsafe { libc::sigaction(libc::SIGTRAP, &self.before, std::ptr::null_mut()) };
        }
    }

    /// This thread traps after every instruction until it is dropped.
    struct Trap;

    impl Trap {
        fn set() -> Self {
            // SAFETY: sets the trap flag, for which a handler is there; the stack is as before.
            unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
            Self
        }
    }

    impl Drop for Trap {
        fn drop(&mut self) {
            // SAFETY: clears the trap flag; the stack is as before.
            unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        }
    }

    extern "C" fn step(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
        STEPS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: with SA_SIGINFO the third argument is the interrupted thread's context.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let registers = &context.uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as u64;
        let Some(operands) = decode(at, registers) else { return };
        let number = LOGGED.load(Ordering::Relaxed);
        let log = LOG.load(Ordering::Relaxed);
        if !log.is_null() && number < DIVISIONS_MAX {
            // SAFETY: the log has DIVISIONS_MAX places and lives as long as the handler is installed;
            // only the one thread that traps writes to it.
            unsafe { log.add(number).write(Division { at, operands }) };
            LOGGED.store(number + 1, Ordering::Relaxed);
        }
    }

    /// Registers in the order of their numbers in instructions.
    const NUMBERED: [c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    /// The operands, if the instruction at `at` is a `div` or `idiv`: opcode F6 or F7, with 6 or 7 in
    /// the middle of the byte that follows (Intel's manual, volume 2, section 2.1 and appendix A).
    fn decode(at: u64, registers: &[i64; 23]) -> Option<[u64; 3]> {
        let register = |number: usize| registers[NUMBERED[number] as usize] as u64;
        // SAFETY: bytes of an instruction that is about to be executed, read one by one as far as it
        // goes.
        let byte = |offset: u64| unsafe { ((at + offset) as *const u8).read() };
        let next = Cell::new(0);
        let take = || byte(next.replace(next.get() + 1));
        let (mut is_short, mut rex, mut opcode) = (false, 0, take());
        while matches!(opcode, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 | 0xf3) {
            is_short |= opcode == 0x66;
            opcode = take();
        }
        if opcode & 0xf0 == 0x40 {
            (rex, opcode) = (opcode, take());
        }
        if !matches!(opcode, 0xf6 | 0xf7) {
            return None;
        }
        let modrm = take();
        if !matches!(modrm >> 3 & 7, 6 | 7) {
            return None;
        }
        let bits = match (opcode, rex & 8 != 0, is_short) {
            (0xf6, ..) => 8,
            (_, true, _) => 64,
            (_, _, true) => 16,
            _ => 32,
        };
        let cut = |value: u64, bits: u32| value & (u64::MAX >> (64 - bits));
        let extended = |low: u8, is_extended: bool| usize::from(low) + 8 * usize::from(is_extended);
        let signed = |bytes: u32| {
            let little = (0..bytes).map(|i| u64::from(take()) << (8 * i)).sum::<u64>();
            let unused = 64 - 8 * bytes;
            ((little << unused) as i64 >> unused) as u64
        };
        let (mode, low) = (modrm >> 6, modrm & 7);
        let divisor = match (mode, low) {
            // ah, ch, dh, bh.
            (3, 4..) if bits == 8 && rex == 0 => register(usize::from(low - 4)) >> 8,
            (3, _) => register(extended(low, rex & 1 != 0)),
            _ => {
                let base = match low {
                    4 => {
                        let sib = take();
                        let (scale, index, base) = (sib >> 6, sib >> 3 & 7, sib & 7);
                        let base = match (base, mode) {
                            (5, 0) => signed(4),
                            _ => register(extended(base, rex & 1 != 0)),
                        };
                        match extended(index, rex & 2 != 0) {
                            // Stands for none.
                            4 => base,
                            index => base.wrapping_add(register(index) << scale),
                        }
                    }
                    5 if mode == 0 => {
                        // From the instruction's end on, which is here.
                        let distance = signed(4);
                        at.wrapping_add(next.get()).wrapping_add(distance)
                    }
                    _ => register(extended(low, rex & 1 != 0)),
                };
                let distance = match mode {
                    1 => signed(1),
                    2 => signed(4),
                    _ => 0,
                };
                let address = base.wrapping_add(distance) as *const u8;
                // SAFETY: what the instruction is about to read; nothing is divided by in segments.
                let byte = |i: u32| u64::from(unsafe { address.add(i as usize).read() }) << (8 * i);
                (0..bits / 8).map(byte).sum()
            }
        };
        Some(match bits {
            8 => [cut(register(0), 16), 0, cut(divisor, 8)],
            _ => [cut(register(0), bits), cut(register(2), bits), cut(divisor, bits)],
        })
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use std::arch::asm;
    use std::hint::black_box;

    use super::{Division, during};

    fn operands(divisions: &[Division]) -> Vec<[u64; 3]> {
        divisions.iter().map(|division| division.operands).collect()
    }

    #[test]
    fn divisions_of_every_size_and_operand_are_seen() {
        let divisor = [0u64, 77, 0];
        let found = during(|| {
            // SAFETY: divisions by numbers other than zero whose quotients fit.
            unsafe {
                asm!("div {}", in(reg) black_box(10u64), inout("rax") 1_000u64 => _, inout("rdx") 0u64 => _);
                asm!("idiv {:e}", in(reg) black_box(-9i32), inout("eax") 100i32 => _, inout("edx") 0 => _);
                asm!("div {:x}", in(reg) black_box(8u16), inout("ax") 70u16 => _, inout("dx") 0u16 => _);
                asm!("div cl", in("cl") black_box(7u8), inout("ax") 60u16 => _);
                asm!("div ch", in("cx") black_box(6u16 << 8), inout("ax") 50u16 => _);
                asm!("div qword ptr [{}]", in(reg) &divisor[1], inout("rax") 1_001u64 => _, inout("rdx") 0u64 => _);
                asm!("div qword ptr [{} + 8]", in(reg) &divisor, inout("rax") 1_002u64 => _, inout("rdx") 0u64 => _);
                asm!(
                    "div qword ptr [{} + 8 * {} - 16]",
                    in(reg) &divisor, in(reg) 3u64,
                    inout("rax") 1_003u64 => _, inout("rdx") 0u64 => _,
                );
                asm!("div r13d", in("r13d") 5, inout("eax") 1_004 => _, inout("edx") 0 => _);
                asm!("div dword ptr [r12 + 8]", in("r12") &divisor, inout("eax") 1_005 => _, inout("edx") 0 => _);
            }
        })
        .expect("this thread traps");
        let word = 0xffff_ffff;
        assert_eq!(
            operands(&found),
            [
                [1_000, 0, 10],
                [100, 0, word - 8],
                [70, 0, 8],
                [60, 0, 7],
                [50, 0, 6],
                [1_001, 0, 77],
                [1_002, 0, 77],
                [1_003, 0, 77],
                [1_004, 0, 5],
                [1_005, 0, 77],
            ]
        );
    }

    #[test]
    fn other_instructions_are_none() {
        let found = during(|| {
            let mut sum = 1u64;
            for i in 0..100u64 {
                sum = black_box(sum).wrapping_mul(i | 1) ^ !black_box(i).wrapping_neg();
            }
            black_box(sum);
        });
        assert_eq!(found, Some(Vec::new()));
    }
}
