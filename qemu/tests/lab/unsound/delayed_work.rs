// SPDX-License-Identifier: GPL-2.0
// E0599
//! Work that is queued after the queue was destroyed.

use crate::kernel_ext::workqueue::UnboundQueue;
use kernel::{
    prelude::*,
    workqueue::RawDelayedWorkItem, //
};

pub(crate) fn too_late<W>(work: W) -> Result
where
    W: RawDelayedWorkItem<0> + Send + 'static,
{
    let queue = UnboundQueue::new(c"too late")?;
    let _ = queue.enqueue_delayed(work, 1000);

    Ok(())
}
