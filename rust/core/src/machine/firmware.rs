//! Hypervisors as the kernel's and the firmware's files show them: the only witnesses where there is no CPUID, and the
//! only ones anywhere that tell a paravirtual Xen guest from one with hardware help.
//!
//! Every function takes the root of the file tree, `/` on a real machine.

use super::hypervisor::{Hypervisor, Source, Vendor};
use crate::policy::Platform;
use std::path::Path;

/// Longest prefix of a file that is looked at, in bytes: these files hold one line.
const READ_LIMIT: u64 = 4_096;

fn read(root: &Path, path: &str) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(root.join(path)).ok()?.take(READ_LIMIT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn read_line(root: &Path, path: &str) -> Option<String> {
    let bytes = read(root, path)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next()?.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    (!line.is_empty()).then(|| line.to_owned())
}

/// A paravirtual Xen guest (dom0 of a PV Xen too). It has no hardware virtualisation, hence no pause-loop exits, and keeps
/// the native cap. Source: `/sys/hypervisor/type` and `guest_type` of Linux.
#[must_use]
pub fn xen_paravirtual(root: &Path) -> Option<Hypervisor> {
    let xen = read_line(root, "sys/hypervisor/type")? == "xen" && read_line(root, "sys/hypervisor/guest_type")? == "PV";
    xen.then(|| Hypervisor { platform: Platform::XenPv, ..Hypervisor::guest(Vendor::Xen, b"xen PV", Source::Sysfs) })
}

/// The verdict of all files: `/sys/hypervisor`, then the device tree, then DMI.
#[must_use]
pub fn from_files(root: &Path) -> Hypervisor {
    xen_paravirtual(root)
        .or_else(|| from_sysfs(root))
        .or_else(|| from_device_tree(root))
        .or_else(|| from_dmi(root))
        .unwrap_or_else(|| Hypervisor::absent(if has_any(root) { Source::Dmi } else { Source::None }))
}

fn has_any(root: &Path) -> bool {
    DMI_FILES.iter().any(|file| read_line(root, file).is_some())
}

fn from_sysfs(root: &Path) -> Option<Hypervisor> {
    let kind = read_line(root, "sys/hypervisor/type")?;
    // The other user of this directory is s390's own firmware interface, which says nothing of a guest.
    (kind == "xen").then(|| Hypervisor::guest(Vendor::Xen, kind.as_bytes(), Source::Sysfs))
}

/// `/hypervisor/compatible` names the hypervisor; a machine that is compatible with `linux,dummy-virt` is the made-up board
/// of QEMU, Firecracker and others and says no more than that.
fn from_device_tree(root: &Path) -> Option<Hypervisor> {
    let strings = |path: &str| -> Vec<String> {
        let bytes = read(root, path).unwrap_or_default();
        let parts = bytes.split(|byte| *byte == 0).map(<[u8]>::trim_ascii).filter(|part| !part.is_empty());
        parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
    };
    let names = strings("proc/device-tree/hypervisor/compatible");
    if let Some(first) = names.first() {
        let vendor = names.iter().find_map(|name| match name.as_str() {
            "linux,kvm" => Some(Vendor::Kvm),
            "acrn,hypervisor" | "acrn" => Some(Vendor::Acrn),
            "microsoft,hyperv" => Some(Vendor::HyperV),
            name if name.starts_with("xen") => Some(Vendor::Xen),
            name if name.contains("vmware") => Some(Vendor::VMware),
            _ => None,
        });
        return Some(Hypervisor::guest(vendor.unwrap_or(Vendor::Unknown), first.as_bytes(), Source::DeviceTree));
    }
    let boards = strings("proc/device-tree/compatible");
    let board = boards.iter().find(|name| *name == "linux,dummy-virt" || *name == "qemu,pseries")?;
    Some(Hypervisor::guest(Vendor::Unknown, board.as_bytes(), Source::DeviceTree))
}

/// In order of trust: the product names a guest more exactly than the maker of its machine.
const DMI_FILES: [&str; 4] = [
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/board_vendor",
    "sys/class/dmi/id/bios_vendor",
];

/// Prefixes of DMI texts that only guests have. QEMU's says nothing of who runs the guest's instructions, Apple's
/// framework has no name in our list. Sources: public detection tools and the clouds' documentation.
const DMI_PREFIXES: [(&str, Vendor); 16] = [
    ("KVM", Vendor::Kvm),
    ("OpenStack", Vendor::Kvm),
    ("KubeVirt", Vendor::Kvm),
    ("Amazon EC2", Vendor::Kvm),
    ("Google Compute Engine", Vendor::Kvm),
    ("VMware", Vendor::VMware),
    ("VMW", Vendor::VMware),
    ("innotek GmbH", Vendor::VirtualBox),
    ("VirtualBox", Vendor::VirtualBox),
    ("Xen", Vendor::Xen),
    ("Parallels", Vendor::Parallels),
    ("BHYVE", Vendor::Bhyve),
    ("Hyper-V", Vendor::HyperV),
    ("QEMU", Vendor::Unknown),
    ("Bochs", Vendor::Unknown),
    ("Apple Virtualization", Vendor::Unknown),
];

fn from_dmi(root: &Path) -> Option<Hypervisor> {
    let product = read_line(root, DMI_FILES[0]).unwrap_or_default();
    let maker = read_line(root, DMI_FILES[1]).unwrap_or_default();
    // The cloud that puts its name on rented bare metal too says so in the product ("c6g.metal", "m7g.metal-48xl").
    if maker == "Amazon EC2" && product.contains(".metal") {
        return None;
    }
    let guest = |vendor, text: &str| Some(Hypervisor::guest(vendor, text.as_bytes(), Source::Dmi));
    // The maker alone also builds laptops.
    if maker == "Microsoft Corporation" && product == "Virtual Machine" {
        return guest(Vendor::HyperV, &format!("{maker} {product}"));
    }
    DMI_FILES.iter().filter_map(|file| read_line(root, file)).find_map(|text| {
        let (_, vendor) = DMI_PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix))?;
        guest(*vendor, &text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::testing::Tree;

    fn dmi(maker: &str, product: &str) -> Hypervisor {
        let tree = Tree::new();
        tree.file("sys/class/dmi/id/sys_vendor", format!("{maker}\n"));
        tree.file("sys/class/dmi/id/product_name", format!("{product}\n"));
        from_files(tree.root())
    }

    #[test]
    fn an_empty_tree_says_nothing() {
        assert_eq!(from_files(Tree::new().root()), Hypervisor::absent(Source::None));
        assert_eq!(xen_paravirtual(Tree::new().root()), None);
    }

    #[test]
    fn only_a_paravirtual_xen_guest_keeps_the_native_cap() {
        for (kind, guest, expected) in [
            ("xen\n", "PV\n", Some(Platform::XenPv)),
            ("xen\n", "HVM\n", Some(Platform::Guest)),
            ("xen\n", "PVH\n", Some(Platform::Guest)),
            ("s390\n", "PV\n", None),
            ("", "", None),
        ] {
            let tree = Tree::new();
            tree.file("sys/hypervisor/type", kind);
            tree.file("sys/hypervisor/guest_type", guest);
            let seen = from_files(tree.root());
            assert_eq!(seen.present.then_some(seen.platform), expected, "{kind:?} {guest:?}");
            assert_eq!(xen_paravirtual(tree.root()).is_some(), expected == Some(Platform::XenPv));
            if expected.is_some() {
                assert_eq!((seen.vendor, seen.source), (Some(Vendor::Xen), Source::Sysfs));
            }
        }
    }

    #[test]
    fn device_trees() {
        for (text, vendor, signature) in [
            ("linux,kvm\0", Vendor::Kvm, "linux,kvm"),
            ("xen,xen-4.17\0xen,xen\0", Vendor::Xen, "xen,xen-4.17"),
            ("vmware\0", Vendor::VMware, "vmware"),
            ("acme,thing\0", Vendor::Unknown, "acme,thing"),
        ] {
            let tree = Tree::new();
            tree.file("proc/device-tree/hypervisor/compatible", text);
            assert_eq!(from_files(tree.root()), Hypervisor::guest(vendor, signature.as_bytes(), Source::DeviceTree));
        }
        let board = Tree::new();
        board.file("proc/device-tree/compatible", "linux,dummy-virt\0");
        assert_eq!(from_files(board.root()).vendor, Some(Vendor::Unknown));
        let metal = Tree::new();
        metal.file("proc/device-tree/compatible", "raspberrypi,4-model-b\0brcm,bcm2711\0");
        assert!(!from_files(metal.root()).present);
    }

    #[test]
    fn dmi_texts() {
        for (maker, product, vendor) in [
            ("QEMU", "KVM Virtual Machine", Vendor::Kvm),
            ("QEMU", "QEMU Virtual Machine", Vendor::Unknown),
            ("Amazon EC2", "c6g.large", Vendor::Kvm),
            ("Google", "Google Compute Engine", Vendor::Kvm),
            ("VMware, Inc.", "VMware20,1", Vendor::VMware),
            ("innotek GmbH", "VirtualBox", Vendor::VirtualBox),
            ("Parallels International GmbH.", "Parallels ARM Virtual Machine", Vendor::Parallels),
            ("Microsoft Corporation", "Virtual Machine", Vendor::HyperV),
            ("Apple Inc.", "Apple Virtualization Generic Platform", Vendor::Unknown),
        ] {
            let seen = dmi(maker, product);
            assert_eq!((seen.present, seen.vendor, seen.source), (true, Some(vendor), Source::Dmi), "{maker} {product}");
        }
        for (maker, product) in
            [("Amazon EC2", "c6g.metal"), ("Microsoft Corporation", "Surface Pro X"), ("Ampere(R)", "Altra"), ("HPE", "RL300")]
        {
            assert_eq!(dmi(maker, product), Hypervisor::absent(Source::Dmi), "{maker} {product}");
        }
    }
}
