// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The region and the SRQ that reads of the table name.
//!
//! Where the device's provider can import, as mlx5's, they are those of the first server for ever,
//! in an open device that has nothing else, and no client needs another key. Elsewhere each server
//! has its own.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use xrc_rcv::verbs::{ImportedRegion, Memory, Region, Remote, Srq};
use xrc_rcv::{Access, Device, Pd};

use crate::Result;
use crate::store;
use crate::table::{Kept, Table};

/// The name of that device in the store.
pub(crate) const KEYS: &str = "keys";

pub(crate) struct Keys {
    pub(crate) table: Remote,
    pub(crate) srq_num: u32,
    /// Those of this server, which would be destroyed with it.
    _own: Option<(Region, Option<Srq>)>,
}

impl Keys {
    /// Makes them for this server and each after it; `None` if none could import them.
    pub(crate) fn new(device: &str, file: &Path, memory: &Memory) -> Result<Option<Keys>> {
        let device = Device::open(device)?;
        match Device::import(&device) {
            Ok(_) => {}
            Err(error) if error.errno() == Errno::OPNOTSUPP.raw_os_error() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let pd = Pd::new(&device)?;
        let region = Region::new(&pd, memory, Access::REMOTE_READ)?;
        // It takes no messages: reads name it for its PD.
        let srq = Srq::in_pd(&pd, &device.open_domain_at(file)?, 1, 8)?;
        let (table, srq_num) = (region.remote(), srq.srq_num());
        Table(memory).set_kept(Kept {
            pd: pd.handle(),
            region: region.handle(),
            address: table.address,
            srq_num,
        });
        store::keep(KEYS, &device)?;
        Ok(Some(Keys {
            table,
            srq_num,
            _own: Some((region, Some(srq))),
        }))
    }

    /// Finds those of the first server. An import takes a page of doorbells, which stays in the
    /// device if its process is killed: so this one is dropped at once.
    pub(crate) fn import(fd: &OwnedFd, memory: &Memory) -> Result<Keys> {
        let kept = Table(memory).kept();
        let pd = Pd::import(&Device::import(fd)?, kept.pd)?;
        let region = ImportedRegion::new(&pd, kept.region)?;
        if region.size() != size_of_val(&**memory) {
            return Err("the region of the table has another size".into());
        }
        let (address, key) = (kept.address, region.key());
        Ok(Keys {
            table: Remote { address, key },
            srq_num: kept.srq_num,
            _own: None,
        })
    }

    /// Those of this server alone, with the SRQ of its messages.
    pub(crate) fn of_server(pd: &Pd, memory: &Memory, srq_num: u32) -> Result<Keys> {
        let region = Region::new(pd, memory, Access::REMOTE_READ)?;
        Ok(Keys {
            table: region.remote(),
            srq_num,
            _own: Some((region, None)),
        })
    }
}
