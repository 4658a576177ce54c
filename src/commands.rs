// SPDX-License-Identifier: GPL-2.0

//! The uverbs methods of the module.
//!
//! Each method parses its attributes into typed values and calls one of the objects below. A method
//! that creates an object writes its output attributes before the object becomes visible, so that
//! an error is undone by dropping the object.

use crate::{
    attributes::InitialState,
    device::AttachedDevice,
    domain::{
        Domain,
        QpInitAttr, //
    },
    event::{
        EventMask,
        EventType, //
    },
    kernel_ext::process::{
        is_killed,
        Process, //
    },
    limits,
    member::{
        Member,
        Terms, //
    },
    qp_status::Lifetime,
    rdma::{
        qp_attr::{
            QpAttr,
            UserQpAttr, //
        },
        uverbs::{
            attribute::{
                Attribute,
                Declarations,
                Fd,
                Flags,
                In,
                InArray,
                InStruct,
                NewFd,
                Out,
                OutBytes,
                OutStruct,
                XrcdHandle, //
            },
            call::{
                Call,
                Handler, //
            },
            table::{
                Method,
                Object, //
            }, //
        }, //
    },
    receive_qp::ReceiveQp,
    right::Right,
    uapi::*, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The uverbs objects that the module adds to a device.
pub(crate) static OBJECTS: [&Object<AttachedDevice>; 2] = [&QP, &EVENT_CHANNEL];

static QP: Object<AttachedDevice> = Object::methods(
    XRC_RCV_OBJECT_QP,
    &[
        &Method::new::<Alloc>(),
        &Method::new::<Modify>(),
        &Method::new::<Query>(),
        &Method::new::<Destroy>(),
        &Method::new::<QueryCaps>(),
    ],
);

static EVENT_CHANNEL: Object<AttachedDevice> = Object::file::<Member>(&[
    &Method::new::<AllocEventChannel>(),
    &Method::new::<Register>(),
    &Method::new::<Unregister>(),
    &Method::new::<QueryDomain>(),
]);

/// A method of the module.
trait Command: Handler<Data = AttachedDevice> {}

impl<H: Handler<Data = AttachedDevice>> Command for H {}

/// Returns the domain of an XRCD handle, if it has or had members or QPs. The handle is the
/// authority to use the QPs; see [`Right`] for more.
fn domain<H: Command, const X: u32>(
    call: &Call<'_, H>,
    xrcd: Attribute<XrcdHandle, X>,
) -> Result<Arc<Domain>> {
    call.data().domains().get(call.xrcd(xrcd)?).ok_or(EINVAL)
}

/// Returns a QP of the domain of an XRCD handle.
fn qp<H: Command, const X: u32, const Q: u32>(
    call: &Call<'_, H>,
    xrcd: Attribute<XrcdHandle, X>,
    qpn: Attribute<In<u32>, Q>,
) -> Result<Arc<ReceiveQp>> {
    domain(call, xrcd)?.find(call.mandatory(qpn)?)
}

/// Returns the right of the calling process over a QP of the domain of an XRCD handle.
fn right<H: Command, const X: u32>(
    call: &Call<'_, H>,
    xrcd: Attribute<XrcdHandle, X>,
    qp: &ReceiveQp,
) -> Result<Right> {
    Ok(Right::of_caller(
        call.xrcd(xrcd)?,
        Some(qp.status().creator()),
    ))
}

/// `XRC_RCV_METHOD_QP_ALLOC`
struct Alloc;

impl Alloc {
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE> = Attribute::new();
    const FLAGS: Attribute<Flags, XRC_RCV_ATTR_QP_ALLOC_FLAGS> = Attribute::new();
    const ATTR: Attribute<InStruct<UserQpAttr>, XRC_RCV_ATTR_QP_ALLOC_ATTR> = Attribute::new();
    const CHANNEL: Attribute<Fd<Member>, XRC_RCV_ATTR_QP_ALLOC_CHANNEL> = Attribute::new();
    const RESP_QPN: Attribute<Out<u32>, XRC_RCV_ATTR_QP_ALLOC_RESP_QPN> = Attribute::new();
    const LABEL: Attribute<In<u64>, XRC_RCV_ATTR_QP_ALLOC_LABEL> = Attribute::new();
    const RESP_SERIAL: Attribute<Out<u64>, XRC_RCV_ATTR_QP_ALLOC_RESP_SERIAL> = Attribute::new();

    fn lifetime(call: &Call<'_, Self>) -> Result<Lifetime> {
        let flags = call.flags(Self::FLAGS, XRC_RCV_ALLOC_LIFETIME_DOMAIN)?;

        Ok(if flags & XRC_RCV_ALLOC_LIFETIME_DOMAIN != 0 {
            Lifetime::Domain
        } else {
            Lifetime::Registrations
        })
    }

    /// Returns the state that the QP is modified to, and the attributes for that.
    fn initial_state(call: &Call<'_, Self>) -> Result<(InitialState, QpAttr)> {
        let Some(user) = call.input(Self::ATTR)? else {
            return Ok((InitialState::Reset, QpAttr::new()));
        };
        let mask = user.mask()?;
        let initial_state = InitialState::new(mask, user.state(mask)?)?;
        let attributes = user.resolve(call.device(), initial_state.mask().and(mask))?;

        Ok((initial_state, attributes))
    }
}

impl Handler for Alloc {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_ALLOC;
    const ATTRIBUTES: Declarations = &[
        &Self::XRCD.mandatory(),
        &Self::FLAGS.optional(),
        &Self::ATTR.optional(),
        &Self::CHANNEL.optional(),
        &Self::RESP_QPN.mandatory(),
        &Self::LABEL.optional(),
        &Self::RESP_SERIAL.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let device = call.data();
        let xrcd = call.xrcd(Self::XRCD)?;

        xrcd.check_is_private()?;

        Right::of_caller(xrcd, None).check(Right::Write)?;

        let lifetime = Self::lifetime(call)?;
        let domain = device.domains().get_or_new(xrcd)?;
        let member = call.event_file(Self::CHANNEL)?;

        match &member {
            Some(member) => member.check_domain(&domain)?,
            // No registration would keep it.
            None if lifetime == Lifetime::Registrations => return Err(EINVAL),
            None => (),
        }

        let (initial_state, mut attributes) = Self::initial_state(call)?;
        let init_attr = QpInitAttr {
            lifetime,
            label: call.input(Self::LABEL)?.unwrap_or(0),
            initial_state,
            attributes: &mut attributes,
            udata: Some(call.udata()),
        };
        let holder = match member {
            Some(member) => member.first_holder(lifetime)?,
            None => None,
        };
        let qp = domain.create(xrcd, device.pd(), init_attr, holder)?;

        call.output(Self::RESP_QPN, &qp.qpn())?;
        call.output(Self::RESP_SERIAL, &qp.serial())?;
        qp.publish();
        Ok(())
    }
}

/// `XRC_RCV_METHOD_QP_MODIFY`
struct Modify;

impl Modify {
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE> = Attribute::new();
    const QPN: Attribute<In<u32>, XRC_RCV_ATTR_QP_MODIFY_QPN> = Attribute::new();
    const ATTR: Attribute<InStruct<UserQpAttr>, XRC_RCV_ATTR_QP_MODIFY_ATTR> = Attribute::new();
}

impl Handler for Modify {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_MODIFY;
    const ATTRIBUTES: Declarations = &[
        &Self::XRCD.mandatory(),
        &Self::QPN.mandatory(),
        &Self::ATTR.mandatory(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let qp = qp(call, Self::XRCD, Self::QPN)?;

        right(call, Self::XRCD, &qp)?.check(Right::Write)?;
        qp.modify(&call.mandatory(Self::ATTR)?, &call.udata())
    }
}

/// Describes a QP; `attributes` were just queried.
fn info(qp: &ReceiveQp, attributes: &QpAttr) -> Result<xrc_rcv_qp_info> {
    Ok(xrc_rcv_qp_info {
        qp_num: qp.qpn(),
        state: attributes.state()? as u32,
        lifetime: qp.status().lifetime().as_raw(),
        registrations: u32::try_from(qp.registrations().registered())?,
        label: qp.status().label(),
        dest_qp_num: attributes.destination(),
        reserved: 0,
    })
}

/// `XRC_RCV_METHOD_QP_QUERY`
struct Query;

impl Query {
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE> = Attribute::new();
    const QPN: Attribute<In<u32>, XRC_RCV_ATTR_QP_QUERY_QPN> = Attribute::new();
    const RESP_ATTR: Attribute<OutStruct<UserQpAttr>, XRC_RCV_ATTR_QP_QUERY_RESP_ATTR> =
        Attribute::new();
    const RESP_INFO: Attribute<OutStruct<xrc_rcv_qp_info>, XRC_RCV_ATTR_QP_QUERY_RESP_INFO> =
        Attribute::new();
}

impl Handler for Query {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_QUERY;
    const ATTRIBUTES: Declarations = &[
        &Self::XRCD.mandatory(),
        &Self::QPN.mandatory(),
        &Self::RESP_ATTR.optional(),
        &Self::RESP_INFO.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let qp = qp(call, Self::XRCD, Self::QPN)?;
        let attributes = qp.query()?.ok_or(EINVAL)?;

        call.output_struct(Self::RESP_ATTR, &attributes.to_user())?;
        call.output_struct(Self::RESP_INFO, &info(&qp, &attributes)?)
    }
}

/// `XRC_RCV_METHOD_QP_DESTROY`
struct Destroy;

impl Destroy {
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE> = Attribute::new();
    const QPN: Attribute<In<u32>, XRC_RCV_ATTR_QP_DESTROY_QPN> = Attribute::new();
    const FLAGS: Attribute<Flags, XRC_RCV_ATTR_QP_DESTROY_FLAGS> = Attribute::new();
}

impl Handler for Destroy {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_DESTROY;
    const ATTRIBUTES: Declarations = &[
        &Self::XRCD.mandatory(),
        &Self::QPN.mandatory(),
        &Self::FLAGS.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let domain = domain(call, Self::XRCD)?;
        let qp = domain.find(call.mandatory(Self::QPN)?)?;
        let force = call.flags(Self::FLAGS, XRC_RCV_DESTROY_FORCE)? & XRC_RCV_DESTROY_FORCE != 0;
        let needed = if force { Right::Own } else { Right::Write };

        right(call, Self::XRCD, &qp)?.check(needed)?;
        domain.destroy(&qp, force)
    }
}

/// Returns up to `room` QPs with numbers greater than `after`, and the number of all QPs.
fn page(
    domain: &Domain,
    mut after: Option<u32>,
    room: usize,
) -> Result<(KVVec<xrc_rcv_qp_info>, usize)> {
    loop {
        let (qps, total) = domain.list(after, room)?;
        let mut infos = KVVec::with_capacity(qps.len(), GFP_KERNEL)?;

        for qp in &qps {
            if is_killed() {
                return Err(EINTR);
            }
            // Skip QPs that were destroyed after they were listed.
            if let Some(attributes) = qp.query()? {
                infos.push(info(qp, &attributes)?, GFP_KERNEL)?;
            }
        }
        // An empty page means the end of the list: skip pages whose QPs were all destroyed.
        match qps.last() {
            Some(last) if infos.is_empty() => after = Some(last.qpn()),
            _ => return Ok((infos, total)),
        }
    }
}

/// `XRC_RCV_METHOD_QUERY_DOMAIN`
struct QueryDomain;

impl QueryDomain {
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE> = Attribute::new();
    const AFTER_QPN: Attribute<In<u32>, XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN> = Attribute::new();
    const RESP_INFO: Attribute<OutBytes, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO> = Attribute::new();
    const RESP_COUNT: Attribute<Out<u32>, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT> = Attribute::new();
    const RESP_TOTAL: Attribute<Out<u32>, XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL> = Attribute::new();
    const INFO_SIZE: Attribute<In<u32>, XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE> = Attribute::new();
}

impl Handler for QueryDomain {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QUERY_DOMAIN;
    const ATTRIBUTES: Declarations = &[
        &Self::XRCD.mandatory(),
        &Self::AFTER_QPN.optional(),
        &Self::RESP_INFO.optional(),
        &Self::RESP_COUNT.mandatory(),
        &Self::RESP_TOTAL.optional(),
        &Self::INFO_SIZE.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let xrcd = call.xrcd(Self::XRCD)?;
        let after = call.input(Self::AFTER_QPN)?;
        let size = RecordSize::<xrc_rcv_qp_info>::new(call.input(Self::INFO_SIZE)?)?;
        let room = call.output_len(Self::RESP_INFO)?.unwrap_or(0) / size.bytes();
        let (found, total) = match call.data().domains().get(xrcd) {
            Some(domain) => page(&domain, after, room)?,
            None => (KVVec::new(), 0),
        };
        let mut infos = KVVec::with_capacity(found.len() * size.bytes(), GFP_KERNEL)?;

        for info in &found {
            size.push(info, &mut infos)?;
        }

        call.output_bytes(Self::RESP_INFO, &infos)?;
        call.output(Self::RESP_COUNT, &u32::try_from(found.len())?)?;
        call.output(Self::RESP_TOTAL, &u32::try_from(total)?)
    }
}

/// `XRC_RCV_METHOD_QUERY_CAPS`
struct QueryCaps;

impl QueryCaps {
    const RESP: Attribute<OutStruct<xrc_rcv_caps>, XRC_RCV_ATTR_QUERY_CAPS_RESP> = Attribute::new();
}

impl Handler for QueryCaps {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QUERY_CAPS;
    const ATTRIBUTES: Declarations = &[&Self::RESP.mandatory()];

    fn run(call: &Call<'_, Self>) -> Result {
        call.output_struct(
            Self::RESP,
            &xrc_rcv_caps {
                version: XRC_RCV_VERSION,
                alloc_flags: XRC_RCV_ALLOC_LIFETIME_DOMAIN,
                event_types: EventType::all(),
                max_qps_per_domain: limits::per_domain(),
                max_qps_per_user: limits::per_user(),
                record_size: size_of::<xrc_rcv_record>() as u32,
                max_registrations_per_qp: limits::per_qp(),
            },
        )
    }
}

/// `XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC`
struct AllocEventChannel;

impl AllocEventChannel {
    const FD: Attribute<NewFd<Member>, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD> = Attribute::new();
    const XRCD: Attribute<XrcdHandle, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_XRCD_HANDLE> =
        Attribute::new();
    const RECORD_SIZE: Attribute<In<u32>, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_RECORD_SIZE> =
        Attribute::new();
    const EVENTS: Attribute<In<u64>, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENTS> = Attribute::new();
    const FLAGS: Attribute<Flags, XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FLAGS> = Attribute::new();
    const KNOWN_FLAGS: u32 = XRC_RCV_EVENT_CHANNEL_ALL | XRC_RCV_EVENT_CHANNEL_OBSERVE;
}

impl Handler for AllocEventChannel {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC;
    const ATTRIBUTES: Declarations = &[
        &Self::FD.mandatory(),
        &Self::XRCD.mandatory(),
        &Self::RECORD_SIZE.optional(),
        &Self::EVENTS.optional(),
        &Self::FLAGS.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let xrcd = call.xrcd(Self::XRCD)?;
        let size = RecordSize::new(call.input(Self::RECORD_SIZE)?)?;
        let mask = match call.input(Self::EVENTS)? {
            Some(bits) => EventMask::from_raw(bits)?,
            None => EventMask::ALL,
        };

        let flags = call.flags(Self::FLAGS, Self::KNOWN_FLAGS)?;

        xrcd.check_is_private()?;

        let terms = Terms::new(flags, Right::of_caller(xrcd, None), mask)?;
        let file = call.new_file(Self::FD)?;
        let domain = call.data().domains().get_or_new(xrcd)?;
        let member = Member::new(domain, terms, size, Some(Process::current()))?;

        member.register_with_all()?;
        file.set(member);
        Ok(())
    }
}

/// `XRC_RCV_METHOD_QP_REG`
struct Register;

impl Register {
    const CHANNEL: Attribute<Fd<Member>, XRC_RCV_ATTR_QP_REG_CHANNEL> = Attribute::new();
    const QPNS: Attribute<InArray<u32>, XRC_RCV_ATTR_QP_REG_QPNS> = Attribute::new();
    const RESP_DONE: Attribute<Out<u32>, XRC_RCV_ATTR_QP_REG_RESP_DONE> = Attribute::new();
    const RESP_INFO: Attribute<OutBytes, XRC_RCV_ATTR_QP_REG_RESP_INFO> = Attribute::new();
    const INFO_SIZE: Attribute<In<u32>, XRC_RCV_ATTR_QP_REG_INFO_SIZE> = Attribute::new();
}

impl Handler for Register {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_REG;
    const ATTRIBUTES: Declarations = &[
        &Self::CHANNEL.mandatory(),
        &Self::QPNS.mandatory(),
        &Self::RESP_DONE.optional(),
        &Self::RESP_INFO.optional(),
        &Self::INFO_SIZE.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let member = call.event_file(Self::CHANNEL)?.ok_or(EINVAL)?;
        let qpns = call.array(Self::QPNS)?;
        let size = RecordSize::<xrc_rcv_reg_info>::new(call.input(Self::INFO_SIZE)?)?;
        let room = call.output_len(Self::RESP_INFO)?;
        let mut infos = KVVec::new();

        if let Some(room) = room {
            if room / size.bytes() < qpns.len() {
                return Err(EINVAL);
            }
            // No registration is made for which there is no memory here.
            infos.reserve(qpns.len() * size.bytes(), GFP_KERNEL)?;
        }
        // A bad pointer is found before a registration is made.
        call.output(Self::RESP_DONE, &0)?;

        let push = |info: &_| size.push(info, &mut infos);
        let (done, result) = member.register_all(&qpns, room.map(|_| push));

        call.output(Self::RESP_DONE, &u32::try_from(done)?)?;
        call.output_bytes(Self::RESP_INFO, &infos)?;
        result
    }
}

/// `XRC_RCV_METHOD_QP_UNREG`
struct Unregister;

impl Unregister {
    const CHANNEL: Attribute<Fd<Member>, XRC_RCV_ATTR_QP_UNREG_CHANNEL> = Attribute::new();
    const QPNS: Attribute<InArray<u32>, XRC_RCV_ATTR_QP_UNREG_QPNS> = Attribute::new();
    const RESP_DONE: Attribute<Out<u32>, XRC_RCV_ATTR_QP_UNREG_RESP_DONE> = Attribute::new();
}

impl Handler for Unregister {
    type Data = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_UNREG;
    const ATTRIBUTES: Declarations = &[
        &Self::CHANNEL.mandatory(),
        &Self::QPNS.mandatory(),
        &Self::RESP_DONE.optional(),
    ];

    fn run(call: &Call<'_, Self>) -> Result {
        let member = call.event_file(Self::CHANNEL)?.ok_or(EINVAL)?;
        let qpns = call.array(Self::QPNS)?;

        call.output(Self::RESP_DONE, &0)?;

        let (done, result) = member.unregister_all(&qpns);

        call.output(Self::RESP_DONE, &u32::try_from(done)?)?;
        result
    }
}
