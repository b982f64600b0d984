//! CPUID readings, behind a trait so that every vendor's can be tried on one machine.

/// Leaf with the processor's feature bits.
pub const LEAF_FEATURES: u32 = 1;

/// Bit of ECX in [`LEAF_FEATURES`] that processors leave clear and hypervisors set. Source: Intel and AMD manuals.
pub const HYPERVISOR_BIT: u32 = 31;

/// First leaf kept for hypervisors: highest leaf in EAX, signature in EBX, ECX, EDX. Source: the convention that all
/// vendors follow (Hyper-V's functional specification, KVM's and Xen's CPUID documents).
pub const HYPERVISOR_LEAVES: u32 = 0x4000_0000;

/// A hypervisor that shows another one's interface first puts its own block of leaves this much higher. Source: Xen.
pub const HYPERVISOR_LEAVES_STEP: u32 = 0x100;

/// Last base at which a block is looked for. Source: Xen's and KVM's guests look just as far.
pub const HYPERVISOR_LEAVES_LAST: u32 = 0x4001_0000;

/// One reading: EAX, EBX, ECX, EDX.
pub type Registers = [u32; 4];

/// Something that answers CPUID.
pub trait CpuidSource {
    /// The registers of `leaf` and `subleaf`. Leaves that do not exist may answer anything, as real processors do.
    fn leaf(&self, leaf: u32, subleaf: u32) -> Registers;
}

/// The processor that runs this thread.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor;

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
impl CpuidSource for Processor {
    #[allow(unused_unsafe)] // a safe function from Rust 1.94 on
    fn leaf(&self, leaf: u32, subleaf: u32) -> Registers {
        #[cfg(target_arch = "x86")]
        use core::arch::x86::__cpuid_count;
        #[cfg(target_arch = "x86_64")]
        use core::arch::x86_64::__cpuid_count;
        // SAFETY: every processor of these targets has CPUID, and it only writes registers.
        let seen = unsafe { __cpuid_count(leaf, subleaf) };
        [seen.eax, seen.ebx, seen.ecx, seen.edx]
    }
}

/// The 12 signature bytes of a reading of a hypervisor's first leaf.
#[must_use]
pub fn signature_bytes([_, ebx, ecx, edx]: Registers) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (chunk, register) in bytes.chunks_exact_mut(4).zip([ebx, ecx, edx]) {
        chunk.copy_from_slice(&register.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_little_endian_in_ebx_ecx_edx() {
        let registers = [0, 0x4b4d_564b, 0x564b_4d56, 0x4d];
        assert_eq!(&signature_bytes(registers), b"KVMKVMKVM\0\0\0");
    }

    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    #[test]
    fn this_processor_answers() {
        let [highest, ebx, ecx, edx] = Processor.leaf(0, 0);
        assert!(highest >= 1);
        // Vendor order is EBX, EDX, ECX in leaf 0; only that it is text is asserted.
        let vendor = signature_bytes([0, ebx, edx, ecx]);
        assert!(vendor.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' '), "{vendor:?}");
    }
}
