// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An event channel as a stream of tokio's.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::async_fd::readable;
use crate::channel::{Event, EventChannel, Events};
use crate::error::{Cause, Result};

/// The events of a channel, as a [`Stream`] that ends after its first error, such as `EIO` when the
/// device was removed.
///
/// Events are read many at a time. Those that were read and not returned are lost when the stream
/// is dropped.
///
/// # Examples
///
/// A task registers while another waits for events:
///
/// ```no_run
/// use xrc_rcv::{EventStream, RegisterOptions};
///
/// # async fn example(domain: xrc_rcv::Domain) -> std::io::Result<()> {
/// let events = EventStream::new(domain.create_event_channel()?)?;
/// let channel = events.channel().clone();
/// tokio::spawn(async move {
///     while let Some(Ok(event)) = events.next().await {
///         println!("{event}");
///     }
/// });
/// let qp = domain.register(17, &RegisterOptions::new().channel(&channel))?;
/// # Ok(())
/// # }
/// ```
///
/// A wait for an event does not borrow the stream for itself:
///
/// ```no_run
/// # use xrc_rcv::{Domain, EventStream, RegisterOptions};
/// # async fn example(events: EventStream, domain: Domain) -> xrc_rcv::Result<()> {
/// let next = events.next();
/// let qp = domain.register(17, &RegisterOptions::new().channel(events.channel()))?;
/// println!("{:?}", next.await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventStream {
    channel: AsyncFd<Arc<EventChannel>>,
    unread: Mutex<Unread>,
}

/// The events that were read from the channel, and not yet from the stream.
#[derive(Debug, Default)]
struct Unread {
    events: Events,
    /// An error has ended the stream.
    ended: bool,
}

impl EventStream {
    /// The stream of the events of `channel`, which it makes non-blocking. Others who have the
    /// channel use it to register; an event that one of them reads is not in the stream.
    ///
    /// # Errors
    ///
    /// Those of `fcntl(2)` and `epoll_ctl(2)`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio's with I/O enabled.
    pub fn new(channel: impl Into<Arc<EventChannel>>) -> io::Result<EventStream> {
        let channel = channel.into();
        channel.set_nonblocking(true)?;
        // SAFETY: A channel owns its descriptor, which is open and the same until its last `Arc` is
        // dropped.
        let channel = unsafe { readable(channel) }?;
        Ok(EventStream {
            channel,
            unread: Mutex::default(),
        })
    }

    /// The channel, to register with, also by tasks that have a clone of it.
    pub fn channel(&self) -> &Arc<EventChannel> {
        self.channel.get_ref()
    }

    /// The next event; `None` after an error. Of several tasks that wait, each event is returned to
    /// one. No event is lost if the future is dropped.
    pub async fn next(&self) -> Option<Result<Event>> {
        loop {
            if let Some(item) = self.unread().next() {
                return item;
            }
            let ready = self.channel.readable().await;
            if let Some(item) = self.read(ready) {
                return item;
            }
        }
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the channel, unless another task did so meanwhile. `None` if there was no event.
    fn read(
        &self,
        ready: io::Result<AsyncFdReadyGuard<'_, Arc<EventChannel>>>,
    ) -> Option<Option<Result<Event>>> {
        let mut unread = self.unread();
        if let Some(item) = unread.next() {
            return Some(item);
        }
        let read = match ready {
            Ok(mut ready) => {
                let read = ready.get_inner().wait(None);
                if matches!(&read, Ok(events) if events.len() == 0) {
                    ready.clear_ready();
                }
                read
            }
            // The runtime is shutting down.
            Err(error) => {
                let cause = Cause::Os(error.raw_os_error().unwrap_or(libc::ECANCELED));
                Err(self.channel().error(cause))
            }
        };
        match read {
            Ok(events) => {
                unread.events = events;
                unread.next()
            }
            Err(error) => {
                unread.ended = true;
                Some(Some(Err(error)))
            }
        }
    }
}

impl Unread {
    /// The next item of the stream, `None` if it is to be read from the channel.
    fn next(&mut self) -> Option<Option<Result<Event>>> {
        match self.events.next() {
            Some(event) => Some(Some(Ok(event))),
            None => self.ended.then_some(None),
        }
    }
}

impl Stream for EventStream {
    type Item = Result<Event>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(item) = self.unread().next() {
                return Poll::Ready(item);
            }
            let ready = ready!(self.channel.poll_read_ready(cx));
            if let Some(item) = self.read(ready) {
                return Poll::Ready(item);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.unread().events.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::channel::tests::{SIZE, pipe, record, register};

    #[tokio::test]
    async fn events_are_streamed() {
        let (channel, mut kernel) = pipe(SIZE);
        let events = EventStream::new(channel).unwrap();
        // A future that is dropped loses nothing.
        let none = tokio::time::timeout(std::time::Duration::from_millis(10), events.next());
        assert!(none.await.is_err());
        let writer = tokio::task::spawn_blocking(move || {
            for qpn in 1..=100 {
                kernel.write_all(&record(qpn, 3, 1)).unwrap();
            }
        });
        for qpn in 1..=100 {
            assert_eq!(events.next().await.unwrap().unwrap().qp_num(), qpn);
        }
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn an_event_that_a_mask_excludes_is_waited_past() {
        let (channel, mut kernel) = pipe(SIZE);
        let fatal = crate::RegisterOptions::new().events(crate::EventTypes::QP_FATAL);
        register(&channel, &[101], &fatal);
        let events = EventStream::new(channel).unwrap();
        kernel.write_all(&record(101, 3, 1)).unwrap();
        let none = tokio::time::timeout(std::time::Duration::from_millis(10), events.next());
        assert!(none.await.is_err());
        kernel.write_all(&record(101, 3, 2)).unwrap();
        kernel.write_all(&record(101, 1, 3)).unwrap();
        let event = events.next().await.unwrap().unwrap();
        assert_eq!((event.qp_num(), event.count()), (101, 3));
    }

    #[tokio::test]
    async fn an_error_ends_the_stream() {
        let (channel, mut kernel) = pipe(0);
        kernel.write_all(&record(1, 3, 1)).unwrap();
        let events = EventStream::new(channel).unwrap();
        let error = events.next().await.unwrap().unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn the_channel_is_used_while_a_task_waits() {
        let (channel, mut kernel) = pipe(SIZE);
        let events = EventStream::new(channel).unwrap();
        let channel = events.channel().clone();
        let waiting = tokio::spawn(async move { events.next().await.unwrap().unwrap().qp_num() });
        tokio::task::yield_now().await;
        let _ = crate::RegisterOptions::new().channel(&channel);
        kernel.write_all(&record(7, 3, 1)).unwrap();
        assert_eq!(waiting.await.unwrap(), 7);
        // The stream is gone, and its channel is not.
        assert_eq!(channel.wait(None).unwrap().len(), 0);
    }

    #[tokio::test]
    async fn each_event_is_returned_to_one_of_the_tasks_that_wait() {
        let (channel, mut kernel) = pipe(SIZE);
        let events = Arc::new(EventStream::new(channel).unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let events = events.clone();
            tasks.spawn(async move { events.next().await.unwrap().unwrap().qp_num() });
        }
        tokio::task::yield_now().await;
        for qpn in 1..=4 {
            kernel.write_all(&record(qpn, 3, 1)).unwrap();
        }
        let mut qpns = tasks.join_all().await;
        qpns.sort();
        assert_eq!(qpns, [1, 2, 3, 4]);
    }

    fn is_send<T: Send + 'static>(_: &T) {}

    #[tokio::test]
    async fn streams_may_be_moved_to_another_task() {
        let (channel, kernel) = pipe(SIZE);
        let events = EventStream::new(channel).unwrap();
        is_send(&events);
        drop(kernel);
    }
}
