// SPDX-License-Identifier: GPL-2.0

//! A subscriber of a receive QP: the part of a registration that events are delivered to.
//!
//! Held by the QP's list of subscribers, and by the registration. It has no lock; what changes in it is atomic.

use crate::{
    event::{
        Event,
        EventType, //
    },
    event_channel::Subscription,
    kernel_ext::process::Process,
    rdma::uverbs::{
        FileId,
        RemoveReason, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Who holds a registration.
pub(crate) enum Holder {
    /// A uverbs file, and the process that had it when it registered.
    File(FileId, Process),
    /// Another part of the kernel.
    Kernel,
}

/// Where a registration's events go.
pub(crate) enum Sink {
    Nowhere,
    Channel(Subscription),
    Callback(KBox<dyn Callback>),
}

/// A kernel user's interest in events.
pub(crate) trait Callback: Send + Sync {
    /// Called in any context, with locks held: must not sleep, nor give the registration up.
    fn event(&self, event: &Event);
}

/// See the [module's documentation](self).
pub(crate) struct Subscriber {
    holder: Holder,
    sink: Sink,
    delivered: Atomic<i64>,
    /// [`EventType::QP_GONE`] was delivered.
    gone: Atomic<bool>,
}

impl Subscriber {
    pub(crate) fn new(holder: Holder, sink: Sink) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                holder,
                sink,
                delivered: Atomic::new(0),
                gone: Atomic::new(false),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The process that registered; 0 for the kernel.
    pub(crate) fn pid(&self) -> i32 {
        match self.holder {
            Holder::File(_, process) => process.pid(),
            Holder::Kernel => 0,
        }
    }

    /// The uverbs file whose it is.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self.holder {
            Holder::File(file, _) => Some(file),
            Holder::Kernel => None,
        }
    }

    /// Whether it is that of a uverbs file.
    pub(crate) fn is_of(&self, file: FileId) -> bool {
        self.file() == Some(file)
    }

    /// Whether events wait on a channel.
    pub(crate) fn has_channel(&self) -> bool {
        matches!(self.sink, Sink::Channel(_))
    }

    /// Tells the holder of an event. Returns whether it wants to know. Any context.
    pub(crate) fn deliver(&self, event: &Event) -> bool {
        if event.kind == EventType::QP_GONE && self.gone.xchg(true, Relaxed) {
            return false;
        }

        let delivered = match &self.sink {
            Sink::Nowhere => false,
            Sink::Channel(subscription) => subscription.post(event),
            Sink::Callback(callback) => {
                callback.event(event);
                true
            }
        };

        if delivered {
            self.delivered.add(1, Relaxed);
        }
        delivered
    }

    /// How many events went to the holder.
    pub(crate) fn delivered(&self) -> i64 {
        self.delivered.load(Relaxed)
    }

    /// How many records the holder has not read.
    pub(crate) fn unread(&self) -> usize {
        match &self.sink {
            Sink::Channel(subscription) => subscription.unread(),
            _ => 0,
        }
    }

    /// The registration was given up, and is in no list any more: unread events go. Unless the
    /// device was taken away; then the holder can still read of it.
    pub(crate) fn end(&self, qpn: u32, why: RemoveReason) {
        let Sink::Channel(subscription) = &self.sink else {
            return;
        };

        match why {
            RemoveReason::Destroyed | RemoveReason::FileClosed => subscription.cancel(),
            RemoveReason::DeviceRemoved => {
                self.deliver(&Event::now(qpn, EventType::QP_GONE));
                subscription.abandon();
            }
        }
    }
}
