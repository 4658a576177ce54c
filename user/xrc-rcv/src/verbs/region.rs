// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! A memory region.

use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::memory::Memory;
use super::object::{Object, ibv_dereg_mr, ibv_reg_mr};
use crate::attr::Access;
use crate::error::{Cause, Result};
use crate::pd::Pd;
use crate::verbs_sys::{IBV_ACCESS_LOCAL_WRITE, ibv_mr, ibv_sge};

/// [`Memory`] that is registered with a device; clones are the same region.
///
/// It is deregistered when the last clone is dropped; a request that is under way holds one. Peers
/// that know its key then get an error.
#[derive(Clone)]
pub struct Region(Arc<Inner>);

struct Inner {
    // Each is dropped before the objects it uses.
    mr: Object<ibv_mr>,
    memory: Memory,
    pd: Pd,
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The address as its owner gives it, as in [`Region::remote`].
    pub address: u64,
    /// The key of it.
    pub key: u32,
}

impl Remote {
    /// The memory from word `index` on.
    pub fn word(self, index: usize) -> Remote {
        let offset = (index as u64).wrapping_mul(size_of::<u64>() as u64);
        Remote {
            address: self.address.wrapping_add(offset),
            ..self
        }
    }
}

impl Region {
    /// Registers `memory` in `pd`: for requests of this process, and for those of peers that
    /// `remote` permits, by an SRQ of the same PD.
    ///
    /// # Errors
    ///
    /// Those of `ibv_reg_mr()`.
    pub fn new(pd: &Pd, memory: &Memory, remote: Access) -> Result<Region> {
        let access = IBV_ACCESS_LOCAL_WRITE | remote.bits() as c_int;
        let address = memory.as_ptr().cast_mut().cast();
        // SAFETY: The PD is allocated as long as `pd` exists, and the memory is mapped as long as
        // the MR is registered. It may be written at any time.
        let mr = unsafe { ibv_reg_mr(pd.as_ibv(), address, size_of_val(&**memory), access) };
        let mr = Object::new(mr, ibv_dereg_mr).map_err(pd.device().error("register memory"))?;
        Ok(Region(Arc::new(Inner {
            mr,
            memory: memory.clone(),
            pd: pd.clone(),
        })))
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The PD.
    pub fn pd(&self) -> &Pd {
        &self.0.pd
    }

    /// What a peer has to know to access the memory, from its first word on.
    pub fn remote(&self) -> Remote {
        Remote {
            address: self.address(),
            // SAFETY: The MR is alive.
            key: unsafe { (*self.0.mr.as_ptr()).rkey },
        }
    }

    /// The number by which another process of the same open device imports the region
    /// ([`ImportedRegion`](super::ImportedRegion)).
    pub fn handle(&self) -> u32 {
        // SAFETY: The MR is alive.
        unsafe { (*self.0.mr.as_ptr()).handle }
    }

    fn address(&self) -> u64 {
        self.0.memory.as_ptr().expose_provenance() as u64
    }

    /// The words of `range`, for a request.
    pub(super) fn sge(&self, range: Range<usize>) -> std::result::Result<ibv_sge, Cause> {
        let invalid = Cause::Os(libc::EINVAL);
        let words = self.0.memory.get(range.clone()).ok_or(invalid)?;
        Ok(ibv_sge {
            addr: self.address() + (range.start * size_of::<u64>()) as u64,
            length: size_of_val(words).try_into().map_err(|_| invalid)?,
            // SAFETY: The MR is alive.
            lkey: unsafe { (*self.0.mr.as_ptr()).lkey },
        })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("memory", &self.0.memory)
            .field("remote", &self.remote())
            .finish_non_exhaustive()
    }
}
