// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The process: the fabric behind its mutex, the engine thread that does the work that is due, and
//! one vfio-user connection per adapter.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_BAR2_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use crate::engine::adapter::Adapter;
use crate::engine::fabric::Fabric;
use crate::engine::pci::{Identity, CONFIG_SIZE, VECTORS};

/// Rounds of the fabric that are run right after an action.
const ROUNDS: usize = 16;

/// The fabric with its adapters, and the lock of all of them.
pub struct SharedFabric {
    fabric: Mutex<Fabric>,
    /// There may be something to do.
    work: Condvar,
}

impl SharedFabric {
    /// A fabric of these adapters, which are on one subnet.
    pub fn new(hcas: Vec<Box<dyn Adapter>>) -> Arc<Self> {
        Arc::new(Self {
            fabric: Mutex::new(Fabric::new(hcas)),
            work: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Fabric> {
        // Nothing panics under the lock; if something did, the state is still the best there is.
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the fabric. Work that this makes due is done before the lock is released,
    /// up to [`ROUNDS`] rounds; the engine does the rest.
    pub fn with<T>(&self, action: impl FnOnce(&mut Fabric) -> T) -> T {
        let mut fabric = self.lock();
        let result = action(&mut fabric);
        let now = Instant::now();
        for _ in 0..ROUNDS {
            match fabric.run(now) {
                Some(deadline) if deadline <= now => {}
                Some(_) => break,
                None => return result,
            }
        }
        self.work.notify_one();
        result
    }

    /// Does the work that is due, forever.
    pub fn engine(&self) {
        let mut fabric = self.lock();
        loop {
            let now = Instant::now();
            fabric = match fabric.run(now) {
                Some(deadline) if deadline <= now => {
                    // Let the others in between two bursts.
                    drop(fabric);
                    std::thread::yield_now();
                    self.lock()
                }
                Some(deadline) => {
                    let wait = deadline.saturating_duration_since(now);
                    let woken = self.work.wait_timeout(fabric, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.work.wait(fabric);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// One adapter, as the vfio-user server calls it.
pub struct Backend {
    shared: Arc<SharedFabric>,
    index: usize,
}

impl Backend {
    /// Adapter `index` of `shared`.
    pub fn new(shared: Arc<SharedFabric>, index: usize) -> Self {
        Self { shared, index }
    }

    fn with<T>(
        &self,
        action: impl FnOnce(&mut (dyn Adapter + 'static)) -> T,
    ) -> Result<T, std::io::Error> {
        self.shared
            .with(|fabric| fabric.hca(self.index).map(action))
            .ok_or_else(|| std::io::Error::other("no such adapter"))
    }

    /// QEMU has exited, and with it the guest.
    pub fn disconnect(&self) {
        let result = self.with(|hca| {
            hca.reset();
            hca.faults().set_removed(false);
            hca.memory().unmap_all();
            for vector in 0..usize::from(VECTORS) {
                hca.msix().connect(vector, None);
            }
        });
        if let Err(error) = result {
            log::warn!("{error}");
        }
    }
}

impl ServerBackend for Backend {
    fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), std::io::Error> {
        let now = Instant::now();
        self.with(|hca| {
            if hca.faults().is_removed() {
                data.fill(0xff);
                return;
            }
            match region {
                VFIO_PCI_CONFIG_REGION_INDEX => hca.read_config(offset, data),
                bar => hca.read_bar(bar, offset, data, now),
            }
        })
    }

    fn region_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), std::io::Error> {
        let now = Instant::now();
        self.with(|hca| {
            if hca.faults().is_removed() {
                return;
            }
            match region {
                VFIO_PCI_CONFIG_REGION_INDEX => hca.write_config(offset, data),
                bar => hca.write_bar(bar, offset, data, now),
            }
        })
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), std::io::Error> {
        // ROM comes without a file; the device has no business there.
        let Some(file) = fd else {
            return Ok(());
        };
        let writable = flags.contains(DmaMapFlags::WRITE);
        log::debug!("RAM at {address:#x}+{size:#x}");
        self.with(|hca| hca.memory().map(address, size, file, offset, writable))?
    }

    fn dma_unmap(
        &mut self,
        flags: DmaUnmapFlags,
        address: u64,
        size: u64,
    ) -> Result<(), std::io::Error> {
        self.with(|hca| {
            if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
                hca.memory().unmap_all();
            } else {
                hca.memory().unmap(address, size);
            }
        })
    }

    fn reset(&mut self) -> Result<(), std::io::Error> {
        self.with(|hca| hca.reset())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> Result<(), std::io::Error> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        // No vectors at all: disable every one.
        let (start, count) = match count {
            0 => (0, u32::from(VECTORS)),
            _ => (start, count.min(u32::from(VECTORS))),
        };
        let mut fds = fds.into_iter();
        self.with(|hca| {
            for vector in (start..).take(count as usize) {
                hca.msix().connect(vector as usize, fds.next());
            }
        })
    }
}

/// The vfio-user server of one adapter, listening on `path`.
pub fn bind(path: &Path, identity: &Identity) -> Result<Server, vfio_user::Error> {
    let regions = (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => identity.bars[0],
                VFIO_PCI_BAR2_REGION_INDEX => identity.bars[1],
                VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE as u64,
                _ => 0,
            };
            let mut region = ServerRegion {
                region_info: Default::default(),
                sparse_areas: Vec::new(),
                mmap_fd: None,
            };
            region.region_info.argsz = size_of_val(&region.region_info) as u32;
            region.region_info.index = index;
            region.region_info.size = size;
            if size != 0 {
                region.region_info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
            }
            region
        })
        .collect();
    let irqs = (0..VFIO_PCI_NUM_IRQS)
        .map(|index| IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            count: match index {
                VFIO_PCI_MSIX_IRQ_INDEX => u32::from(VECTORS),
                // It is never raised, but without it QEMU warns that the device cannot be
                // recovered.
                VFIO_PCI_ERR_IRQ_INDEX => 1,
                _ => 0,
            },
        })
        .collect();
    Server::new(path, true, irqs, regions)
}
