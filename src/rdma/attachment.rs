// SPDX-License-Identifier: GPL-2.0

//! Adding uverbs objects of a client to the uverbs interface of a device, and informing the client
//! of the end of XRC domains.
//!
//! A kernel with the hooks of `upstream/core/hooks` has functions for both, see [`hooked`]. Any
//! other has not: [`chained`] has the objects among those of the driver.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

#[cfg(not(hooked))]
mod chained;
#[cfg(hooked)]
mod hooked;
mod operations;

use super::client;

#[cfg(not(hooked))]
pub(crate) use chained::Attachment;
#[cfg(hooked)]
pub(crate) use hooked::Extended as Attachment;

pub(crate) use operations::{
    ClientOperations,
    DataRef,
    HasClient, //
};

/// Declares the client of a type that implements [`ClientOperations`].
macro_rules! declare_client {
    ($operations:ty, $name:expr) => {
        // SAFETY: The function returns a reference to its one static.
        unsafe impl $crate::rdma::attachment::HasClient for $operations {
            type Attachment = $crate::rdma::attachment::Attachment<Self>;

            fn client(
            ) -> &'static $crate::rdma::client::Client<$crate::rdma::attachment::Attachment<Self>>
            {
                static CLIENT: $crate::rdma::client::Client<
                    $crate::rdma::attachment::Attachment<$operations>,
                > = $crate::rdma::client::Client::new($name);

                &CLIENT
            }
        }
    };
}
pub(crate) use declare_client;

/// The registered client of a type that implements [`ClientOperations`].
pub(crate) type AttachmentClient<T> = client::RegisteredClient<Attachment<T>>;
