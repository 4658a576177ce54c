// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! Uses of the crate's objects: programs keep them in one struct, hand them to threads, and
//! build them on objects that another binding has opened.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use xrc_rcv::ffi::{ibv_context, ibv_device, ibv_xrcd};
use xrc_rcv::verbs_sys::verbs_xrcd;
use xrc_rcv::*;

fn owned<T: Send + Sync + 'static>() {}

#[test]
fn objects_are_owned_and_may_be_used_from_any_thread() {
    owned::<Device>();
    owned::<Domain>();
    owned::<EventChannel>();
    owned::<Registration>();
    owned::<QpInfos>();
    owned::<Error>();
    owned::<Pd>();
    #[cfg(feature = "verbs")]
    {
        owned::<verbs::Srq>();
        owned::<verbs::Initiator>();
        owned::<verbs::Region>();
        owned::<verbs::Memory>();
        owned::<verbs::TargetQp>();
        owned::<verbs::RcQp>();
        #[cfg(feature = "tokio")]
        {
            owned::<verbs::MessageStream>();
            owned::<verbs::Requests>();
        }
    }
}

/// Another binding's device and domain.
struct Foreign {
    _device: Box<ibv_device>,
    context: Box<ibv_context>,
    xrcd: Box<verbs_xrcd>,
    _count: Counted,
}

// SAFETY: The pointers are to the other boxes.
unsafe impl Send for Foreign {}
// SAFETY: The boxes are read only, from any thread.
unsafe impl Sync for Foreign {}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn foreign(cmd_fd: i32, closed: &Arc<AtomicUsize>) -> Arc<Foreign> {
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(b"foreign_0") {
        *to = *from as c_char;
    }
    let mut device = Box::new(ibv_device {
        _ops: [std::ptr::null_mut(); 2],
        node_type: 1,
        transport_type: 0,
        name,
        dev_name: [0; 64],
    });
    let mut context = Box::new(ibv_context {
        device: &mut *device,
        ops: [std::ptr::null_mut(); 32],
        cmd_fd,
        async_fd: -1,
        num_comp_vectors: 1,
    });
    let xrcd = Box::new(verbs_xrcd {
        xrcd: ibv_xrcd {
            context: &mut *context,
        },
        comp_mask: 0,
        handle: 3,
    });
    Arc::new(Foreign {
        _device: device,
        context,
        xrcd,
        _count: Counted(closed.clone()),
    })
}

fn open(foreign: &Arc<Foreign>) -> (Device, Domain) {
    let context = NonNull::from(&*foreign.context);
    // SAFETY: The context is there as long as `foreign` is.
    let device = unsafe { Device::from_ibv(context, foreign.clone()) };
    let xrcd = NonNull::from(&*foreign.xrcd).cast();
    // SAFETY: The domain is there as long as `foreign` is.
    let domain = unsafe { Domain::from_ibv(&device, xrcd, foreign.clone()) };
    (device, domain)
}

#[test]
fn the_other_binding_is_kept_until_nothing_is_left() {
    let closed = Arc::default();
    let (device, domain) = open(&foreign(-1, &closed));
    assert_eq!(device.name(), "foreign_0");
    let clone = domain.clone();
    drop(device);
    drop(domain);
    assert_eq!(closed.load(Ordering::Relaxed), 0);
    let error = thread::spawn(move || clone.query(0x11).unwrap_err());
    let error = error.join().unwrap();
    assert_eq!(closed.load(Ordering::Relaxed), 1);
    assert_eq!(error.device(), "foreign_0");
    assert_eq!(error.qp_num(), Some(0x11));
    assert_eq!(error.cause(), Cause::Unavailable);
}

#[test]
fn a_domain_that_is_in_use_does_not_close() {
    let closed = Arc::default();
    let (_device, domain) = open(&foreign(-1, &closed));
    let clone = domain.clone();
    let error = domain.close().unwrap_err();
    assert_eq!(error.errno(), libc::EBUSY);
    clone.close().unwrap();
}

#[test]
fn errors_name_the_missing_object() {
    let closed = Arc::default();
    // Not a device: the kernel answers ENOTTY.
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&null);
    let (device, domain) = open(&foreign(fd, &closed));
    let error = device.open_domain_at("/nonexistent/file").unwrap_err();
    assert_eq!(
        error.to_string(),
        "foreign_0: open the file /nonexistent/file: No such file or directory (os error 2)"
    );
    let error = domain.query(0x17).unwrap_err().to_string();
    assert!(error.starts_with("foreign_0: query receive QP 0x17: the device has no"));
}
