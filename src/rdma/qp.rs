// SPDX-License-Identifier: GPL-2.0

//! XRC target queue pairs that the kernel owns.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

#[cfg(hooked)]
use super::module::ModuleReference;
use super::{
    bindings,
    device::Device,
    pd::ProtectionDomain,
    qp_attr::{
        QpAttr,
        QpAttrMask, //
    },
    security::{
        Partitions,
        SecurityLabel, //
    },
    udata::UData,
    xrcd::Xrcd, //
};
use crate::kernel_ext::not_supported;
#[cfg(hooked)]
use crate::kernel_ext::this_module;
use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLock, //
    }, //
};

/// A handler of asynchronous events of a queue pair.
///
/// It is `'static` because events of a queue pair that is leaked are reported to it for ever.
pub(crate) trait EventHandler: Send + Sync + Sized + 'static {
    /// Handles an event. Called in any context, with locks of the provider held and, without
    /// PREEMPT_RT, interrupts disabled: it must not sleep, allocate memory or call verbs.
    fn event(self: ArcBorrow<'_, Self>, qpn: u32, event: u32);
}

/// A queue pair of type `XRC_TGT` that the kernel owns. No process has a handle to it.
///
/// It does not count as a user of its XRC domain and does not keep it from being closed. The owner
/// must drop the queue pair before the domain is closed.
///
/// # Invariants
///
/// * `qp` is owned by `self`, and valid as long as `self` is.
/// * `handler` is its context.
/// * `pd` is its protection domain, and keeps the device registered.
/// * One [`Modifier`] has a reference to `settings`.
pub(crate) struct TargetQp<H> {
    qp: NonNull<bindings::ib_qp>,
    handler: Arc<H>,
    pd: Arc<ProtectionDomain>,
    settings: Arc<SpinLock<Settings>>,
    /// Nothing else keeps the module as long as the queue pair exists: the device does not.
    #[cfg(hooked)]
    _module: ModuleReference,
}

/// The one object whose owner can modify a queue pair, one request after the other: providers
/// serialise their access to a queue pair, but ib_core does not serialise all of its own.
///
/// # Invariants
///
/// The settings are those of one queue pair, and no other `Modifier` has a reference to them.
pub(crate) struct Modifier(Arc<SpinLock<Settings>>);

/// What a queue pair was modified to, as far as later requests depend on it.
#[derive(Clone, Copy, Default)]
struct Settings {
    port: u32,
    partitions: Partitions,
}

impl Settings {
    /// Returns the settings after the queue pair is modified.
    fn after(self, attributes: &QpAttr) -> Self {
        Self {
            port: if attributes.mask.has(QpAttrMask::PORT) {
                attributes.attr.port_num
            } else {
                self.port
            },
            partitions: self.partitions.after(attributes),
        }
    }
}

// SAFETY: Any thread may modify, query and destroy a queue pair: verbs belong to no thread. The
// handler is `Send` and `Sync`, and so is the protection domain.
unsafe impl<H: EventHandler> Send for TargetQp<H> {}

// SAFETY: A shared reference gives access to the number, the device and the domain, which are
// constant, to the settings, which a lock guards, and to verbs. Of these, providers serialise what
// needs it; `modify`, which ib_core does not serialise, takes the `Modifier` of the queue pair.
unsafe impl<H: EventHandler> Sync for TargetQp<H> {}

impl<H: EventHandler> TargetQp<H> {
    /// Creates a queue pair in RESET, and its modifier. `owner` is the name that `rdma resource`
    /// shows. `EINVAL` if the protection domain and the XRC domain are of different devices.
    ///
    /// # Safety
    ///
    /// The caller must drop the queue pair before `xrcd` is closed, that is, before the client's
    /// [`domain_closed`](super::attachment::ClientOperations::domain_closed) returns for it.
    pub(crate) unsafe fn new(
        pd: Arc<ProtectionDomain>,
        xrcd: &Xrcd,
        handler: Arc<H>,
        owner: &'static CStr,
    ) -> Result<(Self, Modifier)> {
        if !core::ptr::eq(pd.device(), xrcd.device()) {
            return Err(EINVAL);
        }

        let settings = Arc::pin_init(
            new_spinlock!(Settings::default(), "TargetQp::settings"),
            GFP_KERNEL_ACCOUNT,
        )?;
        #[cfg(hooked)]
        let module = ModuleReference::new(this_module())?;
        let mut init = bindings::ib_qp_init_attr {
            qp_type: bindings::ib_qp_type_IB_QPT_XRC_TGT,
            xrcd: xrcd.as_ptr(),
            event_handler: Some(Self::event_callback),
            qp_context: Arc::as_ptr(&handler).cast_mut().cast(),
            ..pin_init::zeroed()
        };

        init.cap.max_send_wr = 1;
        init.cap.max_send_sge = 1;

        // SAFETY:
        // * The protection domain is valid and keeps its device registered. The `TargetQp` has a
        //   reference to it, which it drops after it has destroyed the queue pair.
        // * The XRC domain is open and of the same device. By the requirements of this function, it
        //   is closed after the queue pair is destroyed.
        // * The context is the handler, which `event_callback` expects. The `TargetQp` has a
        //   reference to it, which it drops after it has destroyed the queue pair.
        // * ib_core keeps a pointer to `owner`, which is static.
        let qp = from_err_ptr(unsafe {
            bindings::ib_xrc_rcv_create_qp(pd.as_ptr(), &mut init, owner.as_char_ptr())
        })?;

        // Providers read the XRC domain from this member when they modify or destroy. ib_core sets
        // it only for QPs of processes, which count as users of the domain.
        // SAFETY: The queue pair is newly created, so only its events use it, which do not read the
        // member.
        unsafe { (*qp).xrcd = xrcd.as_ptr() };
        // INVARIANT: The settings are new, and this is the one modifier with a reference to them.
        let modifier = Modifier(settings.clone());

        // INVARIANT: The queue pair is newly created, with that context, in that protection domain.
        Ok((
            Self {
                qp: NonNull::new(qp).ok_or(ENOMEM)?,
                handler,
                pd,
                settings,
                #[cfg(hooked)]
                _module: module,
            },
            modifier,
        ))
    }

    /// Returns the port, which is 0 before INIT.
    pub(crate) fn port(&self) -> u32 {
        self.settings.lock().port
    }

    fn device(&self) -> &Device {
        // SAFETY:
        // * By the type invariant, the queue pair is valid, and so is its device as long as it is.
        // * `device` is constant. It is read through the pointer: a reference would cover members
        //   that ib_core changes meanwhile.
        unsafe { Device::from_ptr((*self.qp.as_ptr()).device) }
    }

    /// Modifies the queue pair. A RoCE address vector must be resolved already: for a request with
    /// `udata`, ib_core would resolve it, while other requests wait for the queue pair.
    ///
    /// `udata` is `None` for a kernel user. For a process, it is passed on, because providers use
    /// it to distinguish QPs of processes from QPs of the kernel. It is not passed on with a RoCE
    /// address vector, so that ib_core does not resolve the address again, unless the provider
    /// modifies for processes only; then ib_core finds the neighbour that was just resolved.
    ///
    /// * `EINVAL` if `attributes` or `udata` is for another device, or `modifier` for another
    ///   queue pair.
    /// * `EOPNOTSUPP` for a kernel user if the provider modifies for processes only, or if the
    ///   provider would let a QP in a domain of processes use the reserved `L_Key`.
    /// * `EACCES` if a security module denies the creator of the QP, or the process of `udata`, a
    ///   partition that the QP uses after the request.
    pub(crate) fn modify(
        &self,
        modifier: &mut Modifier,
        attributes: &mut QpAttr,
        udata: Option<&UData<'_>>,
    ) -> Result {
        if !Arc::ptr_eq(&modifier.0, &self.settings) {
            return Err(EINVAL);
        }
        if udata.is_some_and(|udata| !core::ptr::eq(udata.device(), self.device())) {
            return Err(EINVAL);
        }
        attributes.check_are_for(self.device())?;

        let for_processes_only = self.device().modifies_for_processes_only();
        let passed_on = match udata {
            Some(_) if attributes.has_roce_address() && !for_processes_only => {
                core::ptr::null_mut()
            }
            Some(udata) => udata.as_ptr(),
            None if for_processes_only || self.would_leak_reserved_key(attributes) => {
                return Err(not_supported());
            }
            None => core::ptr::null_mut(),
        };
        let settings = (*self.settings.lock()).after(attributes);

        if udata.is_some() {
            SecurityLabel::of_caller()?.may_use(self.device(), settings.partitions)?;
        }

        // SAFETY:
        // * By the type invariant, the queue pair is valid, and its device registered.
        // * `attributes` are initialised. If they point to a GID table entry, they own a reference
        //   to it, or a kernel user keeps it valid by the requirements of `to_attributes`.
        // * `passed_on` is null, or valid for the call that `udata` is borrowed from, which is on a
        //   file of the same device, as was checked.
        // * Nothing else modifies the queue pair: the caller has `&mut` of its modifier, as was
        //   checked, of which there is one by the type invariants.
        to_result(unsafe {
            bindings::ib_modify_qp_with_udata(
                self.qp.as_ptr(),
                &mut attributes.attr,
                attributes.mask.bits() as c_int,
                passed_on,
            )
        })?;
        *self.settings.lock() = settings;
        Ok(())
    }

    /// Whether the provider would let the queue pair use the reserved `L_Key`, if the kernel
    /// modified it, in a domain of processes. The processes could access all memory through
    /// receives that they post to an SRQ.
    fn would_leak_reserved_key(&self, attributes: &QpAttr) -> bool {
        // SAFETY:
        // * By the type invariant, the queue pair is valid. By the requirements of `new`, its XRC
        //   domain is closed after it is destroyed.
        // * `xrcd` is constant since `new`, and so is the inode of an XRC domain. Both are read
        //   through the pointer.
        let shared = unsafe { !(*(*self.qp.as_ptr()).xrcd).inode.is_null() };

        shared && attributes.enters_init() && self.device().gives_kernel_reserved_key()
    }

    /// Checks whether a process may use the partitions of the queue pair. `EACCES` if not.
    pub(crate) fn admits(&self, label: &SecurityLabel) -> Result {
        let partitions = self.settings.lock().partitions;

        label.may_use(self.device(), partitions)
    }

    /// Returns all attributes.
    pub(crate) fn query(&self) -> Result<QpAttr> {
        let mut attributes = QpAttr::new();
        let mut init: bindings::ib_qp_init_attr = pin_init::zeroed();

        // SAFETY:
        // * By the type invariant, the queue pair is valid, and its device registered.
        // * Both structures are valid for reads and writes.
        // * ib_core passes the request on to the provider, which serialises its access to the queue
        //   pair: processes query and modify QPs of their own at the same time.
        to_result(unsafe {
            bindings::ib_query_qp(
                self.qp.as_ptr(),
                &mut attributes.attr,
                QpAttrMask::STANDARD.bits() as c_int,
                &mut init,
            )
        })?;
        attributes.mask = QpAttrMask::STANDARD;
        Ok(attributes)
    }

    /// # Safety
    ///
    /// Called by ib_core only, for an event of a queue pair whose `qp_context` is `handler`.
    unsafe extern "C" fn event_callback(event: *mut bindings::ib_event, handler: *mut c_void) {
        // SAFETY:
        // * By the requirements of this function, ib_core passes a valid event, of a queue pair
        //   that is valid until this returns, with the context of that queue pair.
        // * Only `new` creates queue pairs with this callback. Their context is a handler, which
        //   `new` and then the `TargetQp` holds a reference to until the queue pair is destroyed.
        //   Destroying it waits for events that are being reported.
        // * `qp_num` is constant. It is read through the pointer: a reference would cover members
        //   that change meanwhile.
        let (handler, qpn, event) = unsafe {
            (
                ArcBorrow::from_raw(handler.cast_const().cast::<H>()),
                (**(*event).element.qp).qp_num,
                (*event).event,
            )
        };

        handler.event(qpn, event);
    }
}

impl<H> TargetQp<H> {
    /// Returns the QP number.
    pub(crate) fn qpn(&self) -> u32 {
        // SAFETY:
        // * By the type invariant, the queue pair is valid.
        // * `qp_num` is constant. It is read through the pointer: a reference would cover members
        //   that ib_core changes meanwhile.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }
}

impl<H> Drop for TargetQp<H> {
    /// Destroys the queue pair. No event is reported after this.
    fn drop(&mut self) {
        let qpn = self.qpn();
        // SAFETY:
        // * By the type invariant, we own the queue pair, and its device is registered.
        // * By the requirements of `new`, its XRC domain, which providers look at, is open.
        // * Providers wait for events that are being reported, so none of them finds the handler
        //   freed. qedr does not wait, and such an event finds the queue pair itself freed.
        let result = to_result(unsafe {
            bindings::ib_destroy_qp_user(self.qp.as_ptr(), core::ptr::null_mut())
        });

        if let Err(e) = result {
            let device = self.pd.device().name();

            // The provider still has the queue pair, whose context is the handler: leak both. With
            // hooks, also a reference to the module, whose code its events call.
            pr_err!("{device}: failed to destroy QP {qpn:#x}: {e:?}\n");
            core::mem::forget(self.handler.clone());
            self.pd.abandon();
            #[cfg(hooked)]
            core::mem::forget(ModuleReference::new(this_module()));
        }
    }
}
