//! Who runs this machine: bare metal, a guest, or a partition that only looks like one.
//!
//! On x86 the processor itself answers (CPUID); elsewhere the kernel's files or `sysctl` do. Whether pauses are trapped
//! (pause-loop exits) cannot be seen from inside a guest and is never guessed.

use super::cpuid::{
    CpuidSource, HYPERVISOR_BIT, HYPERVISOR_LEAVES, HYPERVISOR_LEAVES_LAST, HYPERVISOR_LEAVES_STEP, LEAF_FEATURES,
    signature_bytes,
};
use super::env::HypervisorMode;
use crate::policy::Platform;
use std::fmt;

/// A hypervisor's maker. [`Display`](fmt::Display) gives the stable identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Linux KVM, under whatever user-space monitor.
    Kvm,
    /// `VMware`.
    VMware,
    /// Microsoft Hyper-V (Azure too).
    HyperV,
    /// Xen.
    Xen,
    /// `bhyve` of the BSDs.
    Bhyve,
    /// QEMU without hardware help.
    QemuTcg,
    /// Parallels.
    Parallels,
    /// ACRN.
    Acrn,
    /// `VirtualBox`.
    VirtualBox,
    /// A hypervisor that does not say, or whose name is not known here.
    Unknown,
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kvm => "KVM",
            Self::VMware => "VMware",
            Self::HyperV => "Hyper-V",
            Self::Xen => "Xen",
            Self::Bhyve => "bhyve",
            Self::QemuTcg => "QEMU-TCG",
            Self::Parallels => "Parallels",
            Self::Acrn => "ACRN",
            Self::VirtualBox => "VirtualBox",
            Self::Unknown => "unknown",
        })
    }
}

/// Where the answer came from. [`Display`](fmt::Display) gives the stable identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The processor's CPUID instruction: `cpuid`.
    Cpuid,
    /// The kernel's `/sys/hypervisor`: `sysfs`.
    Sysfs,
    /// The device tree: `device-tree`.
    DeviceTree,
    /// The firmware's DMI strings: `dmi`.
    Dmi,
    /// `sysctl kern.hv_vmm_present`: `sysctl`.
    Sysctl,
    /// `TICKETLOCK_HYPERVISOR`: `override`.
    Override,
    /// Nothing on this platform could be asked, or nothing answered: `none`.
    None,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpuid => "cpuid",
            Self::Sysfs => "sysfs",
            Self::DeviceTree => "device-tree",
            Self::Dmi => "dmi",
            Self::Sysctl => "sysctl",
            Self::Override => "override",
            Self::None => "none",
        })
    }
}

/// What is known of the hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypervisor {
    /// Whether this is a guest. A Hyper-V root partition is not one, though it has a vendor and a signature.
    pub present: bool,
    /// The maker, `None` where no hypervisor was seen.
    pub vendor: Option<Vendor>,
    /// What it calls itself (CPUID signature, device tree or DMI text), printable ASCII, `None` where it says nothing.
    pub signature: Option<String>,
    /// Where this comes from.
    pub source: Source,
    /// The kind of machine, for the delay cap.
    pub platform: Platform,
}

impl Hypervisor {
    /// No hypervisor, says `source`.
    #[must_use]
    pub const fn absent(source: Source) -> Self {
        Self { present: false, vendor: None, signature: None, source, platform: Platform::Native }
    }

    /// An ordinary guest of `vendor`, says `source`. `signature` is trimmed and made printable.
    #[must_use]
    pub fn guest(vendor: Vendor, signature: &[u8], source: Source) -> Self {
        Self { present: true, vendor: Some(vendor), signature: printable(signature), source, platform: Platform::Guest }
    }
}

/// `EBX` of Hyper-V's third leaf, which repeats the upper half of the partition's privileges. A root partition may create
/// partitions and manage CPUs; a confidential guest must not be believed when it claims so. Source: Hyper-V's functional
/// specification; Linux decides the same way.
const HYPERV_PRIVILEGES_LEAF: u32 = 3;
const HYPERV_CREATE_PARTITIONS: u32 = 1 << 0;
const HYPERV_CPU_MANAGEMENT: u32 = 1 << 12;
const HYPERV_ISOLATION: u32 = 1 << 22;

/// Printable text of raw signature bytes without the padding (NULs and blanks) around it.
fn printable(raw: &[u8]) -> Option<String> {
    let padding = |byte: &u8| *byte == 0 || byte.is_ascii_whitespace();
    let start = raw.iter().position(|byte| !padding(byte))?;
    let end = raw.iter().rposition(|byte| !padding(byte))? + 1;
    Some(raw[start..end].escape_ascii().to_string())
}

/// The vendor of a trimmed CPUID signature. Sources: the vendors' documents and public detection tools.
fn vendor_of(signature: &str) -> Option<Vendor> {
    Some(match signature {
        // The second is KVM showing Hyper-V's interface under its own name, the third its small cousin kvmtool.
        "KVMKVMKVM" | "Linux KVM Hv" | "LKVMLKVMLKVM" => Vendor::Kvm,
        "VMwareVMware" => Vendor::VMware,
        "Microsoft Hv" => Vendor::HyperV,
        "XenVMMXenVMM" => Vendor::Xen,
        "bhyve bhyve" | "BHyVE BHyVE" => Vendor::Bhyve,
        "TCGTCGTCGTCG" => Vendor::QemuTcg,
        // The second is the first with each register's bytes the wrong way round, as real versions have it.
        "prl hyperv" | "lrpepyh vr" => Vendor::Parallels,
        "ACRNACRNACRN" => Vendor::Acrn,
        "VBoxVBoxVBox" => Vendor::VirtualBox,
        _ => return None,
    })
}

/// The verdict of CPUID alone.
///
/// The hypervisor bit without a known signature is a guest of an unknown vendor. A known signature without the bit is a
/// guest too (the bit can be hidden); an unknown one without it is what bare metal answers for leaves that it does not
/// have. A hypervisor that shows Hyper-V's interface first and its own further up is named by its own.
#[must_use]
pub fn from_cpuid(cpu: &(impl CpuidSource + ?Sized)) -> Hypervisor {
    let bit = (cpu.leaf(LEAF_FEATURES, 0)[2] >> HYPERVISOR_BIT) & 1 == 1;
    let mut hyperv = None;
    for base in (HYPERVISOR_LEAVES..=HYPERVISOR_LEAVES_LAST).step_by(HYPERVISOR_LEAVES_STEP as usize) {
        let registers = cpu.leaf(base, 0);
        let signature = signature_bytes(registers);
        match printable(&signature).as_deref().and_then(vendor_of) {
            Some(Vendor::HyperV) => hyperv = hyperv.or(Some((base, registers[0], signature))),
            Some(vendor) => return Hypervisor::guest(vendor, &signature, Source::Cpuid),
            // Each reading traps in a guest: go on only where there may be something left to find.
            None if base > HYPERVISOR_LEAVES && (hyperv.is_some() || !bit) => break,
            None => {}
        }
    }
    match hyperv {
        Some((base, highest, signature)) => {
            let guest = Hypervisor::guest(Vendor::HyperV, &signature, Source::Cpuid);
            if is_hyperv_root(cpu, base, highest) {
                Hypervisor { present: false, platform: Platform::Native, ..guest }
            } else {
                guest
            }
        }
        None if bit => Hypervisor::guest(Vendor::Unknown, &signature_bytes(cpu.leaf(HYPERVISOR_LEAVES, 0)), Source::Cpuid),
        None => Hypervisor::absent(Source::Cpuid),
    }
}

fn is_hyperv_root(cpu: &(impl CpuidSource + ?Sized), base: u32, highest: u32) -> bool {
    let leaf = base + HYPERV_PRIVILEGES_LEAF;
    if highest < leaf {
        return false;
    }
    let privileges = cpu.leaf(leaf, 0)[1];
    let root = HYPERV_CREATE_PARTITIONS | HYPERV_CPU_MANAGEMENT;
    privileges & root == root && privileges & HYPERV_ISOLATION == 0
}

/// The answer under `TICKETLOCK_HYPERVISOR`: `none` asks nobody, `present` keeps the detected vendor but insists on an
/// ordinary guest, `auto` is what `detect` says.
#[must_use]
pub fn resolve(mode: HypervisorMode, detect: impl FnOnce() -> Hypervisor) -> Hypervisor {
    match mode {
        HypervisorMode::Auto => detect(),
        HypervisorMode::None => Hypervisor::absent(Source::Override),
        HypervisorMode::Present => {
            let seen = detect();
            let vendor = seen.vendor.or(Some(Vendor::Unknown));
            Hypervisor { present: true, vendor, signature: seen.signature, source: Source::Override, platform: Platform::Guest }
        }
    }
}

/// Asks this machine, most specific source first. Reads files and CPUID anew at every call;
/// [`machine::hypervisor`](super::hypervisor()) keeps the answer.
#[must_use]
pub fn detect() -> Hypervisor {
    let root = std::path::Path::new("/");
    // First, since CPUID cannot tell a paravirtual Xen guest from one with hardware help.
    if cfg!(any(target_os = "linux", target_os = "android")) {
        if let Some(seen) = super::firmware::xen_paravirtual(root) {
            return seen;
        }
    }
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        let seen = from_cpuid(&super::cpuid::Processor);
        #[cfg(target_vendor = "apple")]
        let seen = if seen.present { seen } else { from_sysctl().unwrap_or(seen) };
        seen
    }
    #[cfg(all(target_vendor = "apple", not(any(target_arch = "x86", target_arch = "x86_64"))))]
    {
        from_sysctl().unwrap_or_else(|| Hypervisor::absent(Source::Sysctl))
    }
    #[cfg(not(any(target_vendor = "apple", target_arch = "x86", target_arch = "x86_64")))]
    {
        super::firmware::from_files(root)
    }
}

/// A guest, if `kern.hv_vmm_present` says so. It names no vendor.
#[cfg(target_vendor = "apple")]
fn from_sysctl() -> Option<Hypervisor> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>();
    // SAFETY: the name is a NUL-terminated literal, `value` and `size` are valid for the call, and nothing is written to
    // the kernel (null, 0).
    let failed = unsafe {
        libc::sysctlbyname(c"kern.hv_vmm_present".as_ptr(), (&raw mut value).cast(), &raw mut size, std::ptr::null_mut(), 0)
    };
    (failed == 0 && value != 0).then(|| Hypervisor::guest(Vendor::Unknown, b"", Source::Sysctl))
}

#[cfg(test)]
#[path = "hypervisor_tests.rs"]
mod tests;
