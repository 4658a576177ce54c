// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The requests of an initiator as futures.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;

use super::initiator::Initiator;
use super::object::{self, poll_notified};
use super::region::{Region, Remote};
use crate::async_fd::readable;
use crate::completion::Completion;
use crate::error::{Cause, Error, Result};

/// The requests of an [`Initiator`] as futures, of any number of tasks at once.
///
/// A future posts its request when it is first polled, and waits for room if the send queue is
/// full; requests that wait are posted in their order. It is ready when the request has completed.
///
/// A future that is dropped before does not take back a request that it has posted: the request is
/// done or fails, and holds its [`Region`] and its place in the send queue until the device has
/// completed it. A future that waits for room is polled or dropped: others wait behind it.
///
/// The first request that fails breaks the connection: this and all others end with it as their
/// [`Cause::Completion`], those that were not posted as well. When the device is removed, all end
/// with an error, of `EIO`.
///
/// A task of the runtime takes the completions. Once this is dropped it ends, and the QP with it.
///
/// # Examples
///
/// ```no_run
/// use xrc_rcv::verbs::{Initiator, Region, Remote, Requests};
///
/// # async fn example(initiator: Initiator, srq_num: u32, words: Remote, region: Region)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let requests = Requests::new(initiator)?; // is connected
/// let ticket = requests.fetch_add(srq_num, words, 1).await?;
/// let (written, sent) = tokio::join!(
///     requests.write(srq_num, words.word(1), &region, 0..8),
///     requests.send(srq_num, &region, 8..16),
/// );
/// # written?;
/// # sent?;
/// # Ok(())
/// # }
/// ```
pub struct Requests {
    shared: Arc<Outstanding>,
    driver: AbortHandle,
}

struct Outstanding {
    queue: Mutex<Queue>,
    /// A permit for each place in the send queue that is free; closed after an error.
    room: Semaphore,
}

struct Queue {
    initiator: Initiator,
    /// That of each request that has not completed, in their order.
    senders: VecDeque<oneshot::Sender<Completion>>,
    /// The cause by which all later requests fail.
    error: Option<Cause>,
}

impl Requests {
    /// The requests of `initiator`, which is connected.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl(2)`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio's with I/O enabled.
    pub fn new(initiator: Initiator) -> io::Result<Requests> {
        // No future waits for the requests that are under way.
        let earlier = (0..initiator.in_flight()).map(|_| oneshot::channel().0);
        let shared = Arc::new(Outstanding {
            room: Semaphore::new(initiator.room()),
            queue: Mutex::new(Queue {
                senders: earlier.collect(),
                initiator,
                error: None,
            }),
        });
        // SAFETY: The initiator owns its descriptor, which is open and the same until the last
        // `Arc` is dropped.
        let fd = unsafe { readable(shared.clone()) }?;
        let driver = tokio::spawn(Driver(fd).run()).abort_handle();
        Ok(Requests { shared, driver })
    }

    /// The number that the receive QP is connected to.
    pub fn qp_num(&self) -> u32 {
        self.shared.queue().initiator.qp_num()
    }

    /// The number of requests that are under way, also of futures that were dropped.
    pub fn in_flight(&self) -> usize {
        self.shared.queue().initiator.in_flight()
    }

    /// Sends the words of `range` of `region` to the SRQ `srq_num`.
    ///
    /// # Errors
    ///
    /// As [`Initiator::send`], but that it waits for room; [`Cause::Completion`] if a request has
    /// failed, `EIO` if the device was removed, `ECANCELED` if the runtime has ended.
    pub async fn send(&self, srq_num: u32, region: &Region, range: Range<usize>) -> Result<()> {
        self.request(|initiator| initiator.send(srq_num, region, range))
            .await?;
        Ok(())
    }

    /// Reads memory of the PD of the SRQ `srq_num` into the words of `range` of `region`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn read(
        &self,
        srq_num: u32,
        from: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> Result<()> {
        self.request(|initiator| initiator.read(srq_num, from, region, range))
            .await?;
        Ok(())
    }

    /// Writes the words of `range` of `region` to memory of the PD of the SRQ `srq_num`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn write(
        &self,
        srq_num: u32,
        to: Remote,
        region: &Region,
        range: Range<usize>,
    ) -> Result<()> {
        self.request(|initiator| initiator.write(srq_num, to, region, range))
            .await?;
        Ok(())
    }

    /// Adds `add` to a word of the PD of the SRQ `srq_num`, and returns its old value: see
    /// [`Initiator::fetch_add`].
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send) and [`Initiator::fetch_add`].
    pub async fn fetch_add(&self, srq_num: u32, to: Remote, add: u64) -> Result<u64> {
        self.atomic(|initiator| initiator.fetch_add(srq_num, to, add))
            .await
    }

    /// Stores `swap` to a word of the PD of the SRQ `srq_num` if it is `compare`, and returns its
    /// old value: see [`Initiator::cmp_swap`].
    ///
    /// # Errors
    ///
    /// As [`fetch_add`](Self::fetch_add).
    pub async fn cmp_swap(&self, srq_num: u32, to: Remote, compare: u64, swap: u64) -> Result<u64> {
        self.atomic(|initiator| initiator.cmp_swap(srq_num, to, compare, swap))
            .await
    }

    async fn atomic(&self, post: impl FnOnce(&mut Initiator) -> Result<()>) -> Result<u64> {
        let completion = self.request(post).await?;
        Ok(completion.old_value().expect("an atomic was done"))
    }

    async fn request(&self, post: impl FnOnce(&mut Initiator) -> Result<()>) -> Result<Completion> {
        let room = self.shared.room.acquire().await;
        let receiver = self.shared.queue().post(post)?;
        // The place is free when the request has completed, whether this future still waits or not.
        if let Ok(room) = room {
            room.forget();
        }
        receiver.await.map_err(|_| self.shared.queue().error())
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Queue {
    fn post(
        &mut self,
        post: impl FnOnce(&mut Initiator) -> Result<()>,
    ) -> Result<oneshot::Receiver<Completion>> {
        if self.error.is_some() {
            return Err(self.error());
        }
        post(&mut self.initiator)?;
        let (sender, receiver) = oneshot::channel();
        self.senders.push_back(sender);
        Ok(receiver)
    }

    /// The error of requests whose sender was dropped.
    fn error(&self) -> Error {
        let cause = self.error.unwrap_or(Cause::Os(libc::ECANCELED));
        self.initiator.error(cause)
    }
}

impl Outstanding {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has each request that completed wake its future. Afterwards, the channel becomes readable
    /// with the next completion.
    fn take_completions(&self) -> object::Result<()> {
        let mut queue = self.queue();
        while let Some(completion) = queue.initiator.complete(Some(Instant::now()))? {
            let sender = queue.senders.pop_front();
            if completion.is_success() {
                // It may be of a future that was dropped.
                let _ = sender.map(|sender| sender.send(completion));
                self.room.add_permits(1);
            } else {
                // Those behind it are flushed: each ends with this cause, when the device is done
                // with its memory.
                self.fail(&mut queue, Cause::Completion(completion));
            }
        }
        Ok(())
    }

    fn fail(&self, queue: &mut Queue, cause: Cause) {
        queue.error.get_or_insert(cause);
        self.room.close();
    }
}

/// The descriptor of the initiator.
impl AsRawFd for Outstanding {
    fn as_raw_fd(&self) -> RawFd {
        self.queue().initiator.as_raw_fd()
    }
}

/// Takes the completions, until the device is removed or the runtime ends.
struct Driver(AsyncFd<Arc<Outstanding>>);

impl Driver {
    async fn run(self) {
        let shared = self.0.get_ref();
        loop {
            if let Err(cause) = shared.take_completions() {
                return shared.fail(&mut shared.queue(), cause);
            }
            if poll_fn(|cx| poll_notified(&self.0, cx)).await.is_err() {
                return; // the runtime is shutting down
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let shared = self.0.get_ref();
        let mut queue = shared.queue();
        shared.fail(&mut queue, Cause::Os(libc::ECANCELED));
        // The device may still access the memory of the requests, which the initiator holds.
        queue.senders.clear();
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requests")
            .field(&self.shared.queue().initiator)
            .finish()
    }
}
