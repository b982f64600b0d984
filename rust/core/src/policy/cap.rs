//! How large a delay may grow, by the kind of machine.

use super::constants::{CAP_GUEST_UNITS, CAP_NATIVE_UNITS};

/// The kind of machine, as far as the cap cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// No hypervisor, or the partition that is the host's own (Hyper-V root).
    Native,
    /// A guest whose pauses the processor can trap (VMX, SVM and their like).
    Guest,
    /// A Xen paravirtual guest: it runs without hardware virtualisation, so no pause-loop exit backs off for it.
    XenPv,
}

/// The cap in units: 16 for guests, 16000 elsewhere. Whether pause-loop exits are on cannot be seen from inside a guest,
/// so a guest without them gets the small cap too (`TICKETLOCK_DELAY_CAP` overrides it).
#[must_use]
pub const fn delay_cap_units(platform: Platform) -> u32 {
    match platform {
        Platform::Guest => CAP_GUEST_UNITS,
        Platform::Native | Platform::XenPv => CAP_NATIVE_UNITS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trapping_guest_gets_the_small_cap() {
        assert_eq!(delay_cap_units(Platform::Native), 16_000);
        assert_eq!(delay_cap_units(Platform::XenPv), 16_000);
        assert_eq!(delay_cap_units(Platform::Guest), 16);
    }
}
