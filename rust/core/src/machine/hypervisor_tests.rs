//! Every vendor, on one machine.

use super::*;
use crate::machine::cpuid::Registers;
use crate::policy::delay_cap_units;
use std::cell::Cell;
use std::collections::HashMap;

/// A made-up processor. Leaves that it does not have answer zero, as AMD's do, or `junk`, as Intel's repeat the highest
/// basic leaf.
#[derive(Default)]
struct Made {
    leaves: HashMap<u32, Registers>,
    junk: Registers,
    readings: Cell<u32>,
}

impl Made {
    fn new(bit: bool) -> Self {
        let mut made = Self::default();
        made.leaves.insert(1, [0, 0, if bit { 0x8000_0000 } else { 0x7fff_ffff }, 0]);
        made
    }

    fn block(mut self, base: u32, highest: u32, signature: &[u8; 12]) -> Self {
        let word = |at: usize| u32::from_le_bytes(signature[at..at + 4].try_into().unwrap());
        self.leaves.insert(base, [highest, word(0), word(4), word(8)]);
        self
    }

    fn hyperv(self, privileges: u32) -> Self {
        let mut made = self.block(0x4000_0000, 0x4000_000b, b"Microsoft Hv");
        made.leaves.insert(0x4000_0003, [0, privileges, 0, 0]);
        made
    }
}

impl CpuidSource for Made {
    fn leaf(&self, leaf: u32, _subleaf: u32) -> Registers {
        self.readings.set(self.readings.get() + 1);
        self.leaves.get(&leaf).copied().unwrap_or(self.junk)
    }
}

#[test]
fn every_vendor_is_known_by_its_signature() {
    let table: [(&[u8; 12], Vendor, &str, &str); 14] = [
        (b"KVMKVMKVM\0\0\0", Vendor::Kvm, "KVM", "KVMKVMKVM"),
        (b"Linux KVM Hv", Vendor::Kvm, "KVM", "Linux KVM Hv"),
        (b"LKVMLKVMLKVM", Vendor::Kvm, "KVM", "LKVMLKVMLKVM"),
        (b"VMwareVMware", Vendor::VMware, "VMware", "VMwareVMware"),
        (b"Microsoft Hv", Vendor::HyperV, "Hyper-V", "Microsoft Hv"),
        (b"XenVMMXenVMM", Vendor::Xen, "Xen", "XenVMMXenVMM"),
        (b"bhyve bhyve ", Vendor::Bhyve, "bhyve", "bhyve bhyve"),
        (b"BHyVE BHyVE ", Vendor::Bhyve, "bhyve", "BHyVE BHyVE"),
        (b"TCGTCGTCGTCG", Vendor::QemuTcg, "QEMU-TCG", "TCGTCGTCGTCG"),
        (b" prl hyperv ", Vendor::Parallels, "Parallels", "prl hyperv"),
        (b" lrpepyh vr ", Vendor::Parallels, "Parallels", "lrpepyh vr"),
        (b" lrpepyh vr\0", Vendor::Parallels, "Parallels", "lrpepyh vr"),
        (b"ACRNACRNACRN", Vendor::Acrn, "ACRN", "ACRNACRNACRN"),
        (b"VBoxVBoxVBox", Vendor::VirtualBox, "VirtualBox", "VBoxVBoxVBox"),
    ];
    for (raw, vendor, name, signature) in table {
        // With the bit, and with the bit hidden.
        for bit in [true, false] {
            let seen = from_cpuid(&Made::new(bit).block(0x4000_0000, 0x4000_0001, raw));
            assert!(seen.present, "{name}");
            assert_eq!(seen.vendor, Some(vendor));
            assert_eq!(seen.vendor.unwrap().to_string(), name);
            assert_eq!(seen.signature.as_deref(), Some(signature));
            assert_eq!((seen.source, seen.platform), (Source::Cpuid, Platform::Guest));
            assert_eq!(delay_cap_units(seen.platform), 16);
        }
    }
}

#[test]
fn bare_metal_is_absent_whatever_it_answers_for_missing_leaves() {
    let zeros = Made::new(false);
    assert_eq!(from_cpuid(&zeros), Hypervisor::absent(Source::Cpuid));
    assert!(zeros.readings.get() <= 3, "{}", zeros.readings.get());
    let repeats = Made { junk: [7, 0x340, 0x340, 0], ..Made::new(false) };
    assert_eq!(from_cpuid(&repeats), Hypervisor::absent(Source::Cpuid));
    assert_eq!(delay_cap_units(from_cpuid(&repeats).platform), 16_000);
}

#[test]
fn the_bit_with_an_unknown_signature_is_a_guest_of_unknown_vendor() {
    let named = from_cpuid(&Made::new(true).block(0x4000_0000, 0x4000_0000, b"OpenBSDVMM58"));
    assert_eq!(named, Hypervisor::guest(Vendor::Unknown, b"OpenBSDVMM58", Source::Cpuid));
    assert_eq!(named.vendor.unwrap().to_string(), "unknown");
    assert_eq!(named.platform, Platform::Guest);
    let nameless = from_cpuid(&Made::new(true));
    assert_eq!((nameless.present, nameless.signature), (true, None));
    let hostile = from_cpuid(&Made::new(true).block(0x4000_0000, 0, b"\x1b[31m\xffred\0\0\0"));
    assert_eq!(hostile.signature.as_deref(), Some(r"\x1b[31m\xffred"));
}

#[test]
fn a_hypervisor_behind_hypervs_interface_is_named_by_its_own() {
    for (raw, vendor) in [(b"XenVMMXenVMM", Vendor::Xen), (b"KVMKVMKVM\0\0\0", Vendor::Kvm)] {
        let seen = from_cpuid(&Made::new(true).hyperv(0).block(0x4000_0100, 0x4000_0105, raw));
        assert_eq!(seen.vendor, Some(vendor));
        // It is not a root partition even where it copies those privileges.
        let root = Made::new(true).hyperv(0x1001).block(0x4000_0100, 0x4000_0105, raw);
        assert!(from_cpuid(&root).present);
    }
}

#[test]
fn a_signature_far_up_is_found() {
    for base in [0x4000_0200, 0x4001_0000] {
        let seen = from_cpuid(&Made::new(true).block(base, base + 4, b"XenVMMXenVMM"));
        assert_eq!(seen.vendor, Some(Vendor::Xen), "{base:#x}");
    }
    let beyond = from_cpuid(&Made::new(true).block(0x4001_0100, 0x4001_0104, b"XenVMMXenVMM"));
    assert_eq!(beyond.vendor, Some(Vendor::Unknown));
}

#[test]
fn a_plain_hyperv_guest_costs_few_readings() {
    let made = Made::new(true).hyperv(0);
    assert_eq!(from_cpuid(&made).vendor, Some(Vendor::HyperV));
    assert!(made.readings.get() <= 4, "{}", made.readings.get());
}

#[test]
fn a_hyperv_root_partition_is_not_a_guest() {
    let root = from_cpuid(&Made::new(true).hyperv(0x1001));
    assert_eq!((root.present, root.platform, root.vendor), (false, Platform::Native, Some(Vendor::HyperV)));
    // Either privilege alone, none, or a confidential guest's claim, is a guest.
    for privileges in [0, 1, 0x1000, 0x1001 | 1 << 22] {
        let seen = from_cpuid(&Made::new(true).hyperv(privileges));
        assert_eq!((seen.present, seen.platform), (true, Platform::Guest), "{privileges:#x}");
    }
    // Privileges beyond the highest leaf are noise.
    let mut short = Made::new(true).hyperv(0x1001);
    short.leaves.get_mut(&0x4000_0000).unwrap()[0] = 0x4000_0002;
    assert!(from_cpuid(&short).present);
}

#[test]
fn overrides_decide() {
    let kvm = || Hypervisor::guest(Vendor::Kvm, b"KVMKVMKVM", Source::Cpuid);
    assert_eq!(resolve(HypervisorMode::Auto, kvm), kvm());
    assert_eq!(resolve(HypervisorMode::None, || panic!("asked")), Hypervisor::absent(Source::Override));
    assert_eq!(resolve(HypervisorMode::Present, kvm), Hypervisor { source: Source::Override, ..kvm() });
    let forced = resolve(HypervisorMode::Present, || Hypervisor::absent(Source::Cpuid));
    assert_eq!((forced.present, forced.vendor, forced.platform), (true, Some(Vendor::Unknown), Platform::Guest));
    let pv = Hypervisor { platform: Platform::XenPv, ..Hypervisor::guest(Vendor::Xen, b"xen PV", Source::Sysfs) };
    assert_eq!(resolve(HypervisorMode::Present, || pv.clone()).platform, Platform::Guest);
}

#[test]
fn sources_have_stable_names() {
    let all = [Source::Cpuid, Source::Sysfs, Source::DeviceTree, Source::Dmi, Source::Sysctl, Source::Override, Source::None];
    assert_eq!(all.map(|s| s.to_string()), ["cpuid", "sysfs", "device-tree", "dmi", "sysctl", "override", "none"]);
}

#[cfg(target_os = "linux")]
#[test]
fn this_machine_agrees_with_its_kernel() {
    // The kernel lists the hypervisor bit as a processor flag.
    let Ok(cpuinfo) = std::fs::read_to_string("/proc/cpuinfo") else { return };
    let Some(flags) = cpuinfo.lines().find(|line| line.starts_with("flags")) else { return };
    let seen = detect();
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        assert!(seen.vendor.is_some(), "{seen:?}");
    } else {
        // Where the bit is hidden, only a name that is known can give the hypervisor away.
        assert_ne!(seen.vendor, Some(Vendor::Unknown), "{seen:?}");
    }
}
