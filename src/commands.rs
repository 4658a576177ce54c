// SPDX-License-Identifier: GPL-2.0

//! What processes can ask for, through the uverbs file of a device.
//!
//! Each command reads what the caller passed into typed values, and has one of the objects below
//! do the work. What creates something writes its answers before anybody else can see the new
//! thing, so that nothing has to be undone but what is dropped.

use crate::{
    attributes::Creation,
    device::AttachedDevice,
    domain::{
        Domain,
        Membership,
        Wish, //
    },
    event::EventType,
    event_channel::EventChannel,
    limits,
    rdma::{
        qp_attributes::{
            Attributes,
            UserAttributes, //
        },
        uverbs::{
            call::Call,
            handle::{
                Handle,
                HandleType, //
            },
            is_killed,
            object_id::XRCD,
            table::{
                Attribute,
                Handler,
                Method,
                Object, //
            },
            Process,
            Removal, //
        }, //
    },
    receive_qp::{
        Lifetime,
        ReceiveQp, //
    },
    registration::{
        Holder,
        Registration,
        Sink, //
    },
    uapi::*, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What the module adds to a device.
pub(crate) static OBJECTS: [&Object; 2] = [&QP, &EVENT_CHANNEL];

static QP: Object = Object::handle::<RegistrationHandle>(&[
    &Method::new::<Alloc>(),
    &Method::new::<Register>(),
    &Method::destroy(
        XRC_RCV_METHOD_QP_UNREG,
        &[&Attribute::destroyed_handle::<RegistrationHandle>(
            XRC_RCV_ATTR_QP_UNREG_HANDLE,
        )],
    ),
    &Method::new::<Modify>(),
    &Method::new::<Query>(),
    &Method::new::<Destroy>(),
    &Method::new::<QueryDomain>(),
    &Method::new::<QueryCaps>(),
]);

static EVENT_CHANNEL: Object = Object::file::<EventChannel>(&[&Method::new::<AllocEventChannel>()]);

type DeviceCall<'a> = Call<'a, AttachedDevice>;

/// The handle of a registration.
struct RegistrationHandle;

static REGISTRATION_HANDLE: HandleType<RegistrationHandle> = HandleType::new();

impl Handle for RegistrationHandle {
    const OBJECT: u32 = XRC_RCV_OBJECT_QP;
    const TYPE: &'static HandleType<Self> = &REGISTRATION_HANDLE;

    type Data = KBox<Membership>;

    fn destroy(membership: KBox<Membership>, why: Removal) {
        membership.leave(why);
    }
}

/// The caller's domain, if it has or had receive QPs. Holding it is what gives a right to its QPs.
fn domain(call: &DeviceCall<'_>, xrcd: u32) -> Result<Arc<Domain>> {
    call.data().domains().get(call.xrcd(xrcd)?).ok_or(EINVAL)
}

/// A QP of the caller's domain.
fn qp(call: &DeviceCall<'_>, xrcd: u32, qpn: u32) -> Result<Arc<ReceiveQp>> {
    domain(call, xrcd)?.find(call.mandatory(qpn)?)
}

/// A registration of the calling process.
fn registration(call: &DeviceCall<'_>, channel: u32, cookie: u32) -> Result<Arc<Registration>> {
    let cookie = call.input(cookie)?.unwrap_or(0);
    let sink = match call.event_file::<EventChannel>(channel)? {
        Some(channel) => Sink::Channel(channel.subscribe(cookie)?),
        None => Sink::Nowhere,
    };

    Registration::new(Holder::File(call.file(), Process::current()), sink)
}

/// `XRC_RCV_METHOD_QP_ALLOC`
struct Alloc;

impl Handler for Alloc {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_ALLOC;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::new_handle::<RegistrationHandle>(XRC_RCV_ATTR_QP_ALLOC_HANDLE),
        &Attribute::handle(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::flags(XRC_RCV_ATTR_QP_ALLOC_FLAGS),
        &Attribute::input_struct::<UserAttributes>(XRC_RCV_ATTR_QP_ALLOC_ATTR),
        &Attribute::file::<EventChannel>(XRC_RCV_ATTR_QP_ALLOC_CHANNEL),
        &Attribute::input::<u64>(XRC_RCV_ATTR_QP_ALLOC_COOKIE),
        &Attribute::output::<u32>(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN).mandatory(),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let device = call.data();
        let xrcd = call.xrcd(XRC_RCV_ATTR_QP_ALLOC_XRCD_HANDLE)?;

        xrcd.check_is_private()?;

        let flags = call.flags(XRC_RCV_ATTR_QP_ALLOC_FLAGS, XRC_RCV_ALLOC_LIFETIME_DOMAIN)?;
        let lifetime = if flags & XRC_RCV_ALLOC_LIFETIME_DOMAIN != 0 {
            xrcd.check_caller_may_write()?;
            Lifetime::Domain
        } else {
            Lifetime::Registrations
        };
        let (creation, attributes) =
            match call.input::<UserAttributes>(XRC_RCV_ATTR_QP_ALLOC_ATTR)? {
                Some(user) => {
                    let mask = user.mask()?;
                    let creation = Creation::new(mask, user.state(mask)?)?;

                    (
                        creation,
                        user.resolve(call.device(), creation.mask().and(mask))?,
                    )
                }
                None => (Creation::Reset, Attributes::new()),
            };
        let registration = registration(
            call,
            XRC_RCV_ATTR_QP_ALLOC_CHANNEL,
            XRC_RCV_ATTR_QP_ALLOC_COOKIE,
        )?;
        let wish = Wish {
            lifetime,
            creation,
            attributes,
            request: Some(call.request()),
        };
        let seat = device.uverbs_files().enter(call.file())?;
        let domain = device.domains().get_or_new(xrcd)?;
        let qp = domain.create(xrcd, device.pd(), wish, registration, Some(seat))?;
        let handle = call.new_handle::<RegistrationHandle>(XRC_RCV_ATTR_QP_ALLOC_HANDLE)?;

        call.output(XRC_RCV_ATTR_QP_ALLOC_RESP_QPN, &qp.number())?;
        handle.set(qp.publish());
        Ok(())
    }
}

/// `XRC_RCV_METHOD_QP_REG`
struct Register;

impl Handler for Register {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_REG;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::new_handle::<RegistrationHandle>(XRC_RCV_ATTR_QP_REG_HANDLE),
        &Attribute::handle(XRC_RCV_ATTR_QP_REG_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QP_REG_QPN).mandatory(),
        &Attribute::file::<EventChannel>(XRC_RCV_ATTR_QP_REG_CHANNEL),
        &Attribute::input::<u64>(XRC_RCV_ATTR_QP_REG_COOKIE),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let domain = domain(call, XRC_RCV_ATTR_QP_REG_XRCD_HANDLE)?;
        let registration = registration(
            call,
            XRC_RCV_ATTR_QP_REG_CHANNEL,
            XRC_RCV_ATTR_QP_REG_COOKIE,
        )?;
        let seat = call.data().uverbs_files().enter(call.file())?;
        let qpn = call.mandatory(XRC_RCV_ATTR_QP_REG_QPN)?;
        let handle = call.new_handle::<RegistrationHandle>(XRC_RCV_ATTR_QP_REG_HANDLE)?;

        let qp = domain.find(qpn)?;

        qp.admit_caller()?;
        handle.set(domain.register(&qp, registration, Some(seat))?);
        Ok(())
    }
}

/// `XRC_RCV_METHOD_QP_MODIFY`
struct Modify;

impl Handler for Modify {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_MODIFY;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::handle(XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QP_MODIFY_QPN).mandatory(),
        &Attribute::input_struct::<UserAttributes>(XRC_RCV_ATTR_QP_MODIFY_ATTR).mandatory(),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let qp = qp(
            call,
            XRC_RCV_ATTR_QP_MODIFY_XRCD_HANDLE,
            XRC_RCV_ATTR_QP_MODIFY_QPN,
        )?;

        qp.modify(
            &call.mandatory(XRC_RCV_ATTR_QP_MODIFY_ATTR)?,
            &call.request(),
        )
    }
}

/// A QP as it is listed, with attributes that were just queried.
fn info(qp: &ReceiveQp, attributes: &Attributes) -> Result<xrc_rcv_qp_info> {
    Ok(xrc_rcv_qp_info {
        qpn: qp.number(),
        state: attributes.state()? as u32,
        lifetime: qp.lifetime().number(),
        registrations: u32::try_from(qp.fan_out().len())?,
    })
}

/// `XRC_RCV_METHOD_QP_QUERY`
struct Query;

impl Handler for Query {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_QUERY;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::handle(XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QP_QUERY_QPN).mandatory(),
        &Attribute::output_any(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR),
        &Attribute::output_any(XRC_RCV_ATTR_QP_QUERY_RESP_INFO),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let qp = qp(
            call,
            XRC_RCV_ATTR_QP_QUERY_XRCD_HANDLE,
            XRC_RCV_ATTR_QP_QUERY_QPN,
        )?;
        let attributes = qp.query()?.ok_or(EINVAL)?;

        call.output_struct(XRC_RCV_ATTR_QP_QUERY_RESP_ATTR, &attributes.to_user())?;
        call.output_struct(XRC_RCV_ATTR_QP_QUERY_RESP_INFO, &info(&qp, &attributes)?)
    }
}

/// `XRC_RCV_METHOD_QP_DESTROY`
struct Destroy;

impl Handler for Destroy {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QP_DESTROY;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::handle(XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QP_DESTROY_QPN).mandatory(),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let domain = domain(call, XRC_RCV_ATTR_QP_DESTROY_XRCD_HANDLE)?;
        let file = call.file();

        domain.destroy(
            call.mandatory(XRC_RCV_ATTR_QP_DESTROY_QPN)?,
            |registration| registration.is_of(file),
        )
    }
}

/// Up to `room` QPs with numbers greater than `after`, and how many there are in all.
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
            // One that was destroyed meanwhile is not in the domain any more.
            if let Some(attributes) = qp.query()? {
                infos.push(info(qp, &attributes)?, GFP_KERNEL)?;
            }
        }
        // None would end the list, though there may be more after those that are gone.
        match qps.last() {
            Some(last) if infos.is_empty() => after = Some(last.number()),
            _ => return Ok((infos, total)),
        }
    }
}

/// `XRC_RCV_METHOD_QUERY_DOMAIN`
struct QueryDomain;

impl Handler for QueryDomain {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QUERY_DOMAIN;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::handle(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE, XRCD).mandatory(),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN),
        &Attribute::output_any(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO),
        &Attribute::output::<u32>(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT).mandatory(),
        &Attribute::output::<u32>(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL),
        &Attribute::input::<u32>(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let xrcd = call.xrcd(XRC_RCV_ATTR_QUERY_DOMAIN_XRCD_HANDLE)?;
        let after = call.input(XRC_RCV_ATTR_QUERY_DOMAIN_AFTER_QPN)?;
        let size =
            RecordSize::<xrc_rcv_qp_info>::new(call.input(XRC_RCV_ATTR_QUERY_DOMAIN_INFO_SIZE)?)?;
        let room = call.output_len(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO)? / size.bytes();
        let (found, total) = match call.data().domains().get(xrcd) {
            Some(domain) => page(&domain, after, room)?,
            None => (KVVec::new(), 0),
        };
        let mut infos = KVVec::<u8>::with_capacity(found.len() * size.bytes(), GFP_KERNEL)?;

        for info in &found {
            let (known, zeroes) = size.fit(info);

            infos.extend_from_slice(known, GFP_KERNEL)?;
            infos.extend_from_slice(zeroes, GFP_KERNEL)?;
        }

        call.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_INFO, infos.as_slice())?;
        call.output(
            XRC_RCV_ATTR_QUERY_DOMAIN_RESP_COUNT,
            &u32::try_from(infos.len() / size.bytes())?,
        )?;
        call.output(XRC_RCV_ATTR_QUERY_DOMAIN_RESP_TOTAL, &u32::try_from(total)?)
    }
}

/// `XRC_RCV_METHOD_QUERY_CAPS`
struct QueryCaps;

impl Handler for QueryCaps {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_QUERY_CAPS;
    const ATTRIBUTES: &'static [&'static Attribute] =
        &[&Attribute::output_any(XRC_RCV_ATTR_QUERY_CAPS_RESP).mandatory()];

    fn run(call: &DeviceCall<'_>) -> Result {
        call.output_struct(
            XRC_RCV_ATTR_QUERY_CAPS_RESP,
            &xrc_rcv_caps {
                version: XRC_RCV_VERSION,
                alloc_flags: XRC_RCV_ALLOC_LIFETIME_DOMAIN,
                event_types: EventType::all(),
                max_qps_per_domain: limits::per_domain(),
                max_qps_per_user: limits::per_user(),
                event_size: size_of::<xrc_rcv_event>() as u32,
                max_registrations_per_qp: limits::per_qp(),
            },
        )
    }
}

/// `XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC`
struct AllocEventChannel;

impl Handler for AllocEventChannel {
    type Client = AttachedDevice;

    const METHOD: u32 = XRC_RCV_METHOD_EVENT_CHANNEL_ALLOC;
    const ATTRIBUTES: &'static [&'static Attribute] = &[
        &Attribute::new_file::<EventChannel>(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD),
        &Attribute::input::<u32>(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE),
    ];

    fn run(call: &DeviceCall<'_>) -> Result {
        let size = RecordSize::new(call.input(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_EVENT_SIZE)?)?;
        let file = call.new_file::<EventChannel>(XRC_RCV_ATTR_EVENT_CHANNEL_ALLOC_FD)?;

        file.set(EventChannel::new(size)?);
        Ok(())
    }
}
