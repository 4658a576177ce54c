// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The messages to an SRQ as a stream of tokio's.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_core::Stream;
use tokio::io::unix::AsyncFd;
use tokio::task::consume_budget;

use super::object::poll_notified;
use super::srq::Srq;
use crate::async_fd::readable;
use crate::error::{Cause, Result};

/// The messages to an SRQ, as a [`Stream`].
///
/// A receive that failed, such as of a message that is too long, is an error in the stream, which
/// continues. The stream ends after an error of the SRQ, such as `EIO` when the device was removed.
///
/// # Examples
///
/// ```no_run
/// use xrc_rcv::verbs::{MessageStream, Srq};
///
/// # async fn example(domain: xrc_rcv::Domain) -> std::io::Result<()> {
/// let mut messages = MessageStream::new(Srq::new(&domain, 16, 4096)?)?;
/// println!("senders name SRQ {}", messages.srq().srq_num());
/// while let Some(message) = messages.next().await {
///     println!("{} bytes", message?.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MessageStream {
    srq: AsyncFd<Srq>,
    /// After an error of the SRQ.
    ended: bool,
}

impl MessageStream {
    /// The stream of the messages to `srq`.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl(2)`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio's with I/O enabled.
    pub fn new(srq: Srq) -> io::Result<MessageStream> {
        // SAFETY: An SRQ owns its descriptor, which is open and the same until it is dropped.
        let srq = unsafe { readable(srq) }?;
        Ok(MessageStream { srq, ended: false })
    }

    /// The SRQ.
    pub fn srq(&self) -> &Srq {
        self.srq.get_ref()
    }

    /// The next message; `None` after an error of the SRQ. No message is lost if the future is
    /// dropped.
    #[expect(
        clippy::should_implement_trait,
        reason = "the name that streams have for it"
    )]
    pub fn next(&mut self) -> impl Future<Output = Option<Result<Vec<u8>>>> + Send + '_ {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Vec<u8>>>> {
        // A fast sender would not let other tasks run.
        ready!(pin!(consume_budget()).poll(cx));
        loop {
            // If there is none, the descriptor will be readable with the next one.
            if let Some(message) = self.srq.get_mut().receive_until(Some(Instant::now()))? {
                return Poll::Ready(Ok(message));
            }
            if let Err(error) = ready!(poll_notified(&self.srq, cx)) {
                // The runtime is shutting down.
                let cause = Cause::Os(error.raw_os_error().unwrap_or(libc::ECANCELED));
                let device = self.srq().domain().device();
                return Poll::Ready(Err(device.error("receive a message")(cause)));
            }
        }
    }
}

impl Stream for MessageStream {
    type Item = Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let message = ready!(self.poll_message(cx));
        self.ended = message.is_err();
        Poll::Ready(Some(message.and_then(|message| message)))
    }
}
