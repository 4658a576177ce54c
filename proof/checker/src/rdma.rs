// SPDX-License-Identifier: GPL-2.0

//! In place of `src/rdma/`: an RDMA device and the objects of uverbs.

pub(crate) mod device;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod uverbs;

/// Charges of the RDMA cgroup.
pub(crate) mod cgroup {
    use super::device::Device;
    use core::sync::atomic::Ordering;
    use kernel::{prelude::*, sync::aref::ARef};

    pub(crate) struct Charge(ARef<Device>);

    impl Charge {
        pub(crate) fn hca_object(device: &Device) -> Result<Self> {
            device.charges.fetch_add(1, Ordering::SeqCst);
            Ok(Self(device.into()))
        }

        pub(crate) fn cgroup(&self) -> usize {
            0
        }
    }

    impl Drop for Charge {
        fn drop(&mut self) {
            self.0.charges.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Protection domains.
pub(crate) mod pd {
    pub(crate) struct ProtectionDomain;
}

/// Security modules.
pub(crate) mod security {
    use kernel::prelude::*;

    pub(crate) const ENFORCED: bool = false;

    pub(crate) struct SecurityLabel;

    impl SecurityLabel {
        pub(crate) fn of_caller() -> Result<Self> {
            Ok(Self)
        }
    }
}

/// Data of drivers in calls of processes.
pub(crate) mod udata {
    use core::marker::PhantomData;

    pub(crate) struct UData<'a>(PhantomData<&'a ()>);

    impl UData<'_> {
        pub(crate) fn none() -> Self {
            Self(PhantomData)
        }
    }
}

/// XRC domains of ib_core.
pub(crate) mod xrcd {
    use super::device::Device;
    use kernel::sync::aref::ARef;

    pub(crate) struct Xrcd {
        pub(crate) device: ARef<Device>,
        pub(crate) id: usize,
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct XrcdId(usize);

    impl Xrcd {
        pub(crate) fn device(&self) -> &Device {
            &self.device
        }

        pub(crate) fn id(&self) -> XrcdId {
            XrcdId(self.id)
        }

        pub(crate) fn caller_owns(&self) -> bool {
            true
        }

        pub(crate) fn caller_may_write(&self) -> bool {
            true
        }
    }
}
