// SPDX-License-Identifier: GPL-2.0

//! The methods of `src/commands.rs`, as a process calls them.

use crate::{
    bindings::uapi::ib_uverbs_qp_attr,
    commands::OBJECTS,
    device::AttachedDevice,
    event::EventMask,
    member::Member,
    qp_status::Lifetime,
    rdma::{
        passed,
        qp_attr::{QpAttrMask, QpState, UserQpAttr},
        uverbs::{
            call::{Contents, Passed},
            table,
        },
        xrcd::Xrcd,
    },
    uapi::*,
};
use core::cell::{Cell, OnceCell, RefCell};
use kernel::{prelude::*, sync::Arc, transmute::AsBytes};

/// The size of records and of other structures: the processes know longer ones than the kernel.
pub(crate) const SIZE: usize = XRC_RCV_RECORD_SIZE_MAX as usize;

/// The label of each QP.
pub(crate) const LABEL: u64 = 0x1234_5678_9abc;

/// The attributes with which a QP is modified from RESET to INIT.
const INIT: QpAttrMask = QpAttrMask::PKEY_INDEX
    .or(QpAttrMask::PORT)
    .or(QpAttrMask::ACCESS_FLAGS);

/// Changes attributes.
pub(crate) type Spoil<'a> = dyn Fn(&mut Vec<Passed<'_>>) + 'a;

/// A process with a handle of a domain calls them.
pub(crate) struct Methods<'a> {
    pub(crate) data: Pin<&'a AttachedDevice>,
    pub(crate) xrcd: &'a Xrcd,
    /// Changes the attributes of each call.
    pub(crate) spoil: Option<&'a Spoil<'a>>,
}

/// Memory that a method copies a number to.
#[derive(Default)]
struct Number<T>(Cell<T>);

impl Number<u32> {
    fn write(&self, bytes: &[u8]) -> Result {
        let bytes = bytes.try_into().map_err(|_| EINVAL)?;

        self.0.set(u32::from_ne_bytes(bytes));
        Ok(())
    }
}

impl Number<u64> {
    fn write(&self, bytes: &[u8]) -> Result {
        let bytes = bytes.try_into().map_err(|_| EINVAL)?;

        self.0.set(u64::from_ne_bytes(bytes));
        Ok(())
    }
}

/// Memory that a method copies an array to, whose elements the process knows longer.
#[derive(Default)]
struct Array(RefCell<Vec<u8>>);

impl Array {
    fn write(&self, bytes: &[u8]) -> Result {
        *self.0.borrow_mut() = bytes.into();
        Ok(())
    }

    /// Returns the elements, after which are zeroes.
    fn elements<T: Copy + AsBytes>(self) -> Vec<T> {
        let bytes = self.0.into_inner();

        bytes.chunks(SIZE).map(element).collect()
    }
}

/// Returns the structure that bytes begin with.
fn element<T: Copy + AsBytes>(bytes: &[u8]) -> T {
    let (element, longer) = bytes.split_at(size_of::<T>());

    assert!(longer.iter().all(|byte| *byte == 0), "a longer structure");
    // SAFETY: The structures of the interface consist of integers.
    unsafe { element.as_ptr().cast::<T>().read_unaligned() }
}

fn input(value: &impl AsBytes) -> Contents<'static> {
    Contents::In(value.as_bytes().into())
}

fn numbers(qpns: &[u32]) -> Contents<'static> {
    Contents::In(qpns.iter().flat_map(|qpn| qpn.to_ne_bytes()).collect())
}

impl Methods<'_> {
    fn of_qp(&self, method: u32, attributes: &[Passed<'_>]) -> Result {
        self.call(XRC_RCV_OBJECT_QP, method, attributes)
    }

    fn of_channel(&self, method: u32, attributes: &[Passed<'_>]) -> Result {
        self.call(XRC_RCV_OBJECT_EVENT_CHANNEL, method, attributes)
    }

    fn call(&self, object: u32, method: u32, attributes: &[Passed<'_>]) -> Result {
        let mut attributes = attributes.to_vec();

        if let Some(spoil) = self.spoil {
            spoil(&mut attributes);
        }
        table::call(&OBJECTS, object, method, self.data, &attributes)
    }

    /// `XRC_RCV_METHOD_QUERY_CAPS`
    pub(crate) fn query_caps(&self) -> Result<xrc_rcv_caps> {
        let caps = Array::default();

        self.of_qp(
            XRC_RCV_METHOD_QUERY_CAPS,
            &[Passed(
                XRC_RCV_ATTR_QUERY_CAPS_RESP,
                Contents::Out(size_of::<xrc_rcv_caps>(), &|bytes| caps.write(bytes)),
            )],
        )?;
        Ok(element(&caps.0.into_inner()))
    }

    /// `XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC`
    pub(crate) fn open_channel(&self, mask: EventMask, flags: u32) -> Result<Arc<Member>> {
        let file = OnceCell::<Arc<Member>>::new();

        self.of_channel(
            XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC,
            &[
                Passed(
                    XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD,
                    Contents::NewFile(&file),
                ),
                Passed(
                    XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE,
                    Contents::Xrcd(self.xrcd),
                ),
                Passed(
                    XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE,
                    input(&(SIZE as u32)),
                ),
                Passed(
                    XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS,
                    input(&mask.as_raw()),
                ),
                Passed(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS, input(&flags)),
            ],
        )?;
        file.into_inner().ok_or(EIO)
    }

    /// `XRC_RCV_METHOD_QP_ALLOC` of a QP in INIT. Calls `copied` with its number and its serial
    /// number when these are copied to the process: an error is that of a bad pointer.
    pub(crate) fn alloc(
        &self,
        member: &Arc<Member>,
        lifetime: Lifetime,
        copied: impl Fn(u32, u64) -> Result,
    ) -> Result<(u32, u64)> {
        let attributes = passed::to(INIT, QpState::Init);

        self.alloc_with(member, lifetime, &attributes, copied)
    }

    /// `XRC_RCV_METHOD_QP_ALLOC` with any attributes.
    pub(crate) fn alloc_with(
        &self,
        member: &Arc<Member>,
        lifetime: Lifetime,
        attributes: &UserQpAttr,
        copied: impl Fn(u32, u64) -> Result,
    ) -> Result<(u32, u64)> {
        let qpn = Number::<u32>::default();
        let serial = Number::<u64>::default();
        let copy_serial = |bytes: &[u8]| {
            serial.write(bytes)?;
            copied(qpn.0.get(), serial.0.get())
        };
        let flags = match lifetime {
            Lifetime::Domain => XRC_RCV_ALLOC_LIFETIME_DOMAIN,
            Lifetime::Registrations => 0,
        };

        self.of_qp(
            XRC_RCV_METHOD_QP_ALLOC,
            &[
                Passed(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, Contents::Xrcd(self.xrcd)),
                Passed(XRC_RCV_ATTR_QP_ALLOC_FLAGS, input(&flags)),
                Passed(XRC_RCV_ATTR_QP_ALLOC_ATTR, input(attributes)),
                Passed(XRC_RCV_ATTR_QP_ALLOC_CHANNEL, Contents::File(member)),
                Passed(XRC_RCV_ATTR_QP_ALLOC_LABEL, input(&LABEL)),
                Passed(
                    XRC_RCV_ATTR_QP_ALLOC_RESP_QPN,
                    Contents::Out(size_of::<u32>(), &|bytes| qpn.write(bytes)),
                ),
                Passed(
                    XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL,
                    Contents::Out(size_of::<u64>(), &copy_serial),
                ),
            ],
        )?;
        Ok((qpn.0.get(), serial.0.get()))
    }

    /// `XRC_RCV_METHOD_QP_MODIFY`
    pub(crate) fn modify(&self, qpn: u32, attributes: &UserQpAttr) -> Result {
        self.of_qp(
            XRC_RCV_METHOD_QP_MODIFY,
            &[
                Passed(
                    XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE,
                    Contents::Xrcd(self.xrcd),
                ),
                Passed(XRC_RCV_ATTR_QP_MODIFY_QPN, input(&qpn)),
                Passed(XRC_RCV_ATTR_QP_MODIFY_ATTR, input(attributes)),
            ],
        )
    }

    /// `XRC_RCV_METHOD_QP_QUERY`
    pub(crate) fn query(&self, qpn: u32) -> Result<xrc_rcv_qp_info> {
        let info = Array::default();

        self.of_qp(
            XRC_RCV_METHOD_QP_QUERY,
            &[
                Passed(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, Contents::Xrcd(self.xrcd)),
                Passed(XRC_RCV_ATTR_QP_QUERY_QPN, input(&qpn)),
                Passed(
                    XRC_RCV_ATTR_QP_QUERY_RESP_INFO,
                    Contents::Out(size_of::<xrc_rcv_qp_info>(), &|bytes| info.write(bytes)),
                ),
            ],
        )?;
        Ok(element(&info.0.into_inner()))
    }

    /// `XRC_RCV_METHOD_QP_QUERY` of the attributes.
    pub(crate) fn query_attributes(&self, qpn: u32) -> Result<ib_uverbs_qp_attr> {
        let attributes = Array::default();

        self.of_qp(
            XRC_RCV_METHOD_QP_QUERY,
            &[
                Passed(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, Contents::Xrcd(self.xrcd)),
                Passed(XRC_RCV_ATTR_QP_QUERY_QPN, input(&qpn)),
                Passed(
                    XRC_RCV_ATTR_QP_QUERY_RESP_ATTR,
                    Contents::Out(size_of::<ib_uverbs_qp_attr>(), &|bytes| {
                        attributes.write(bytes)
                    }),
                ),
            ],
        )?;

        let bytes = attributes.0.into_inner();

        assert_eq!(bytes.len(), size_of::<ib_uverbs_qp_attr>());
        // SAFETY: The structure consists of integers, and was copied whole.
        Ok(unsafe { bytes.as_ptr().cast::<ib_uverbs_qp_attr>().read_unaligned() })
    }

    /// `XRC_RCV_METHOD_QP_DESTROY`
    pub(crate) fn destroy(&self, qpn: u32, force: bool) -> Result {
        let flags = if force { XRC_RCV_DESTROY_FORCE } else { 0 };

        self.of_qp(
            XRC_RCV_METHOD_QP_DESTROY,
            &[
                Passed(
                    XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE,
                    Contents::Xrcd(self.xrcd),
                ),
                Passed(XRC_RCV_ATTR_QP_DESTROY_QPN, input(&qpn)),
                Passed(XRC_RCV_ATTR_QP_DESTROY_FLAGS, input(&flags)),
            ],
        )
    }

    /// `XRC_RCV_METHOD_QP_REG`. Returns what it copies of the QPs that are done.
    pub(crate) fn register(
        &self,
        member: &Arc<Member>,
        qpns: &[u32],
    ) -> (Vec<xrc_rcv_reg_info>, Result) {
        let done = Number::<u32>::default();
        let infos = Array::default();
        let result = self.of_channel(
            XRC_RCV_METHOD_QP_REG,
            &[
                Passed(XRC_RCV_ATTR_QP_REG_CHANNEL, Contents::File(member)),
                Passed(XRC_RCV_ATTR_QP_REG_QPNS, numbers(qpns)),
                Passed(
                    XRC_RCV_ATTR_QP_REG_RESP_DONE,
                    Contents::Out(size_of::<u32>(), &|bytes| done.write(bytes)),
                ),
                Passed(
                    XRC_RCV_ATTR_QP_REG_RESP_INFO,
                    Contents::Out(qpns.len() * SIZE, &|bytes| infos.write(bytes)),
                ),
                Passed(XRC_RCV_ATTR_QP_REG_INFO_SIZE, input(&(SIZE as u32))),
            ],
        );
        let infos = infos.elements();

        assert_eq!(infos.len(), done.0.get() as usize);
        (infos, result)
    }

    /// `XRC_RCV_METHOD_QP_UNREG`. Returns how many are done.
    pub(crate) fn unregister(&self, member: &Arc<Member>, qpns: &[u32]) -> (usize, Result) {
        let done = Number::<u32>::default();
        let result = self.of_channel(
            XRC_RCV_METHOD_QP_UNREG,
            &[
                Passed(XRC_RCV_ATTR_QP_UNREG_CHANNEL, Contents::File(member)),
                Passed(XRC_RCV_ATTR_QP_UNREG_QPNS, numbers(qpns)),
                Passed(
                    XRC_RCV_ATTR_QP_UNREG_RESP_DONE,
                    Contents::Out(size_of::<u32>(), &|bytes| done.write(bytes)),
                ),
            ],
        );

        (done.0.get() as usize, result)
    }

    /// `XRC_RCV_METHOD_QUERY_DOMAIN` of the QPs with numbers greater than `after`, into a buffer
    /// for so many. Returns those, and the number of all.
    pub(crate) fn query_domain(
        &self,
        after: u32,
        room: usize,
    ) -> Result<(Vec<xrc_rcv_qp_info>, usize)> {
        let [count, total] = [(); 2].map(|()| Number::<u32>::default());
        let infos = Array::default();

        self.of_channel(
            XRC_RCV_METHOD_QUERY_DOMAIN,
            &[
                Passed(
                    XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE,
                    Contents::Xrcd(self.xrcd),
                ),
                Passed(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN, input(&after)),
                Passed(
                    XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO,
                    Contents::Out(room * SIZE, &|bytes| infos.write(bytes)),
                ),
                Passed(
                    XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT,
                    Contents::Out(size_of::<u32>(), &|bytes| count.write(bytes)),
                ),
                Passed(
                    XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL,
                    Contents::Out(size_of::<u32>(), &|bytes| total.write(bytes)),
                ),
                Passed(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE, input(&(SIZE as u32))),
            ],
        )?;

        let infos = infos.elements();

        assert_eq!(infos.len(), count.0.get() as usize);
        Ok((infos, total.0.get() as usize))
    }
}
