// SPDX-License-Identifier: GPL-2.0

//! Labels of processes, by which a security module decides who may use which partition.
//!
//! ib_core gives a QP the label of the process that creates it, and checks that label whenever the
//! QP's partitions or the tables behind them change. That is enough for a QP that one process has.
//! Others that use it are checked here, each with its own label.
//!
//! Without `CONFIG_SECURITY_INFINIBAND` everybody may use everything.
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

/// Whether ib_core and this module check labels at all.
pub(crate) const ENFORCED: bool = cfg!(CONFIG_SECURITY_INFINIBAND);

/// The label of a process, as a QP of its own would get it.
///
/// # Invariants
///
/// The pointer is what `security_ib_alloc_security()` gave, and `self` owns it.
pub(crate) struct Label(*mut c_void);

impl Label {
    /// That of the calling process.
    pub(crate) fn of_caller() -> Result<Self> {
        let mut label = core::ptr::null_mut();

        // SAFETY: `label` is valid for writes. The function may sleep, and so may every caller: each is a
        // method that a process calls.
        to_result(unsafe { bindings::ib_xrc_rcv_alloc_label(&mut label) })?;
        // INVARIANT: Newly allocated, so nothing else owns it.
        Ok(Self(label))
    }

    /// Whether its process may use partitions. `EACCES` if it may not.
    pub(super) fn may_use(&self, device: &Device, partitions: Partitions) -> Result {
        for Partition { port, index } in [partitions.path, partitions.alternate]
            .into_iter()
            .flatten()
        {
            // SAFETY:
            // * The device is valid as long as it is borrowed; the function checks port and index.
            // * By the type invariant, the label is one that was allocated and not freed.
            to_result(unsafe {
                bindings::ib_xrc_rcv_pkey_access(self.0, device.as_ptr(), port, index)
            })?;
        }
        Ok(())
    }
}

impl Drop for Label {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, we own the label, and this is the one call that frees it.
        unsafe { bindings::ib_xrc_rcv_free_label(self.0) }
    }
}

/// A place in the pkey table of a port.
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
    /// Those that the QP uses once it is modified. By the rules of `ib_security_modify_qp()`: the
    /// first is known from when port and index are given together.
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
