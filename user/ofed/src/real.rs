// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! The functions behind ours, which programs would call if this library were not there.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use xrc_rcv::ffi::{ibv_context, ibv_device, ibv_qp_attr};
use xrc_rcv::verbs_sys::{ibv_pd, ibv_qp};

use crate::ffi::{ibv_async_event, ibv_qp_init_attr};

/// A function of the next library that has it.
struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static CStr) -> Symbol {
        Symbol {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: The name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }

    fn get(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // A library that was loaded before this one calls it from its constructor.
            address = self.look_up();
            // This library needs libibverbs, so it is loaded.
            assert!(!address.is_null(), "{:?} not found", self.name);
        }
        address
    }
}

macro_rules! real {
    ($($name:ident, $symbol:literal, ($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        #[allow(non_upper_case_globals)]
        mod symbols {
            $(pub(super) static $name: super::Symbol = super::Symbol::new($symbol);)*
        }

        /// Looks everything up: a thread that is cancelled in `dlsym()` would leave its lock.
        pub(crate) fn look_up_all() {
            $(symbols::$name.look_up();)*
        }

        $(
            #[doc = concat!("`", stringify!($name), "()` of the library behind this one.")]
            ///
            /// # Safety
            ///
            /// As the C function's.
            pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
                type Function = unsafe extern "C" fn($($type),*) -> $ret;
                let address = symbols::$name.get();
                // SAFETY: This is the C function's type.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
                // SAFETY: By the caller's word.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

real! {
    open_device, c"ibv_open_device", (device: *mut ibv_device) -> *mut ibv_context;
    import_device, c"ibv_import_device", (cmd_fd: c_int) -> *mut ibv_context;
    close_device, c"ibv_close_device", (context: *mut ibv_context) -> c_int;
    create_qp, c"ibv_create_qp", (pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp, c"ibv_modify_qp", (qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    query_qp, c"ibv_query_qp",
        (qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int;
    destroy_qp, c"ibv_destroy_qp", (qp: *mut ibv_qp) -> c_int;
    get_async_event, c"ibv_get_async_event",
        (context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    ack_async_event, c"ibv_ack_async_event", (event: *mut ibv_async_event) -> ();
}
