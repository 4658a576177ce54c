// SPDX-License-Identifier: GPL-2.0

//! Security labels, by which a security module grants access to partitions.
//!
//! ib_core gives a QP the label of the process that creates it, and checks this label when the
//! partitions of the QP or the P_Key tables change. Other processes may use a receive QP as well:
//! this module checks the label of each.
//!
//! Without `CONFIG_SECURITY_INFINIBAND`, every process may use every partition.
//!
//! C header: [`include/linux/security.h`](srctree/include/linux/security.h)

use super::{
    bindings,
    device::Device,
    qp_attr::{
        QpAttr,
        QpAttrMask, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Whether ib_core and this module check labels.
pub(crate) const ENFORCED: bool = cfg!(CONFIG_SECURITY_INFINIBAND);

/// A security label.
///
/// # Invariants
///
/// The pointer is a label of `security_ib_alloc_security()`, and owned by `self`.
pub(crate) struct SecurityLabel(*mut c_void);

impl SecurityLabel {
    /// Allocates the label that a QP of the calling process would get.
    pub(crate) fn of_caller() -> Result<Self> {
        let mut label = core::ptr::null_mut();

        // SAFETY: `label` is valid for writes. The function may sleep, and so may every caller:
        // each is a method that a process calls.
        to_result(unsafe { bindings::ib_xrc_rcv_alloc_security_label(&mut label) })?;
        // INVARIANT: Newly allocated, so `self` is the owner.
        Ok(Self(label))
    }

    /// Checks whether the process of the label may use partitions. `EACCES` if not.
    pub(super) fn may_use(&self, device: &Device, partitions: Partitions) -> Result {
        for Partition { port, index } in [partitions.path, partitions.alternate]
            .into_iter()
            .flatten()
        {
            // SAFETY:
            // * The device is valid as long as it is borrowed; the function checks port and index.
            // * By the type invariant, the label was allocated, and it is not freed yet.
            to_result(unsafe {
                bindings::ib_xrc_rcv_pkey_access(self.0, device.as_ptr(), port, index)
            })?;
        }
        Ok(())
    }
}

impl Drop for SecurityLabel {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, we own the label, and this is the one call that frees it.
        unsafe { bindings::ib_xrc_rcv_free_security_label(self.0) }
    }
}

/// An entry of the P_Key table of a port.
#[derive(Clone, Copy)]
struct Partition {
    port: u32,
    index: u16,
}

/// The partitions that a QP uses.
#[derive(Clone, Copy, Default)]
pub(super) struct Partitions {
    path: Option<Partition>,
    alternate: Option<Partition>,
}

impl Partitions {
    /// Returns the partitions after the QP is modified, by the rules of `ib_security_modify_qp()`:
    /// the partition of the primary path is known once port and index were set by the same request.
    pub(super) fn after(self, attributes: &QpAttr) -> Self {
        let (attr, mask) = (&attributes.attr, attributes.mask);
        let given = Partition {
            port: attr.port_num,
            index: attr.pkey_index,
        };
        let path = if mask.has(QpAttrMask::PORT | QpAttrMask::PKEY_INDEX) {
            Some(given)
        } else {
            self.path.map(|old| Partition {
                port: if mask.has(QpAttrMask::PORT) {
                    given.port
                } else {
                    old.port
                },
                index: if mask.has(QpAttrMask::PKEY_INDEX) {
                    given.index
                } else {
                    old.index
                },
            })
        };
        let alternate = if mask.has(QpAttrMask::ALT_PATH) {
            Some(Partition {
                port: attr.alt_port_num,
                index: attr.alt_pkey_index,
            })
        } else {
            self.alternate
        };

        Self { path, alternate }
    }
}
