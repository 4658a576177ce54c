// SPDX-License-Identifier: GPL-2.0

//! In place of `src/rdma/`: an RDMA device and the objects of uverbs.

pub(crate) mod attachment;
pub(crate) mod device;
pub(crate) mod qp;
pub(crate) mod qp_attr;
pub(crate) mod uverbs;

/// Charges of the RDMA cgroup.
pub(crate) mod cgroup {
    use super::device::{Device, Verb};
    use core::sync::atomic::Ordering;
    use kernel::{prelude::*, runtime, sync::aref::ARef};

    pub(crate) struct Charge {
        device: ARef<Device>,
        cgroup: usize,
    }

    impl Charge {
        pub(crate) fn hca_object(device: &Device) -> Result<Self> {
            device.check(Verb::Charge)?;
            device.charges.fetch_add(1, Ordering::SeqCst);
            Ok(Self {
                device: device.into(),
                cgroup: runtime::user().map_or(0, |user| user.cgroup),
            })
        }

        pub(crate) fn cgroup(&self) -> usize {
            self.cgroup
        }
    }

    impl Drop for Charge {
        fn drop(&mut self) {
            self.device.charges.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Protection domains.
pub(crate) mod pd {
    use super::device::Device;
    use kernel::prelude::*;

    pub(crate) struct ProtectionDomain;

    impl ProtectionDomain {
        pub(crate) fn new(_device: &Device, _owner: &'static CStr) -> Result<Self> {
            Ok(Self)
        }
    }
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
    use crate::{bindings, right::Right};
    use core::cell::Cell;
    use kernel::{prelude::*, runtime, sync::aref::ARef};

    runtime::thread_local! {
        /// The right of the calling process by the domain's inode.
        static RIGHT: Cell<Right> = const { Cell::new(Right::Own) };
    }

    /// Calls a function as a process with a right by the inodes of domains. Else it owns them.
    pub(crate) fn with_right<R>(right: Right, call: impl FnOnce() -> R) -> R {
        let before = RIGHT.with(|now| now.replace(right));
        let result = call();

        RIGHT.with(|now| now.set(before));
        result
    }

    /// Returns that right.
    pub(crate) fn right() -> Right {
        RIGHT.with(Cell::get)
    }

    pub(crate) struct Xrcd {
        pub(crate) device: ARef<Device>,
        pub(crate) id: usize,
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct XrcdId(usize);

    impl Xrcd {
        /// # Safety
        ///
        /// As in the module.
        pub(crate) unsafe fn from_ptr<'a>(xrcd: *mut bindings::ib_xrcd) -> &'a Self {
            // SAFETY: By the requirements of this function.
            unsafe { &*xrcd.cast() }
        }

        pub(crate) fn device(&self) -> &Device {
            &self.device
        }

        pub(crate) fn id(&self) -> XrcdId {
            XrcdId(self.id)
        }

        pub(crate) fn check_is_private(&self) -> Result {
            Ok(())
        }

        pub(crate) fn caller_owns(&self) -> bool {
            right() >= Right::Own
        }

        pub(crate) fn caller_may_write(&self) -> bool {
            right() >= Right::Write
        }
    }
}
