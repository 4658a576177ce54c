// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! An event channel as a stream of tokio's.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::channel::{Event, EventChannel, Events};
use crate::error::{Cause, Error};

/// The events of a channel, as a [`Stream`] that ends after its first error, such as `EIO` when the device was
/// removed.
///
/// Events are read many at a time. Those that were read and not returned are lost when the stream is dropped.
///
/// # Examples
///
/// ```no_run
/// use xrc_rcv::{EventStream, RegisterOptions};
///
/// # async fn example(device: xrc_rcv::Device, domain: xrc_rcv::Domain) -> std::io::Result<()> {
/// let mut events = EventStream::new(device.create_event_channel()?)?;
/// let options = RegisterOptions::new().channel(events.channel());
/// let qps = domain.adopt(&options)?;
/// while let Some(event) = events.next().await {
///     println!("{}", event?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EventStream {
    channel: AsyncFd<EventChannel>,
    /// Read, and not yet returned.
    events: Events,
    /// After an error.
    ended: bool,
}

impl EventStream {
    /// The stream of the events of `channel`, which it makes non-blocking.
    ///
    /// # Errors
    ///
    /// Those of `fcntl(2)` and `epoll_ctl(2)`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio's with I/O enabled.
    pub fn new(channel: EventChannel) -> io::Result<EventStream> {
        channel.set_nonblocking(true)?;
        // SAFETY: A channel owns its descriptor, which is open and the same until it is dropped.
        let channel = unsafe { AsyncFd::register_with_interest(channel, Interest::READABLE) }?;
        Ok(EventStream {
            channel,
            events: Events::default(),
            ended: false,
        })
    }

    /// The channel, to register with.
    pub fn channel(&self) -> &EventChannel {
        self.channel.get_ref()
    }

    /// The next event; `None` after an error. No event is lost if the future is dropped.
    #[expect(
        clippy::should_implement_trait,
        reason = "the name that streams have for it"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<Event, Error>>> + Send + '_ {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx))
    }
}

impl Stream for EventStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some(event) = stream.events.next() {
                return Poll::Ready(Some(Ok(event)));
            }
            if stream.ended {
                return Poll::Ready(None);
            }
            let read = match ready!(stream.channel.poll_read_ready(cx)) {
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
                    Err(stream.channel().error(cause))
                }
            };
            match read {
                Ok(events) => stream.events = events,
                Err(error) => {
                    stream.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.events.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::channel::tests::{SIZE, pipe, record};

    #[tokio::test]
    async fn events_are_streamed() {
        let (channel, mut kernel) = pipe(SIZE);
        let mut events = EventStream::new(channel).unwrap();
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
    async fn an_error_ends_the_stream() {
        let (channel, mut kernel) = pipe(0);
        kernel.write_all(&record(1, 3, 1)).unwrap();
        let mut events = EventStream::new(channel).unwrap();
        let error = events.next().await.unwrap().unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(events.next().await.is_none());
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
