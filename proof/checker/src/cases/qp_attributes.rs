// SPDX-License-Identifier: GPL-2.0

//! Attributes of a QP: QUERY returns those that a process passes; values out of range are refused;
//! and processes need the partitions that a QP uses.

use super::run_as;
use crate::{
    bindings::uapi::{ib_uverbs_ah_attr, ib_uverbs_global_route, ib_uverbs_qp_attr},
    ib_verbs::{self, ib_qp_attr, rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE},
    kernel_user::{KernelUser, INIT as KERNEL_INIT},
    qp_status::Lifetime,
    rdma::{
        passed,
        qp_attr::{KernelQpAttr, QpAttrMask, QpState},
    },
    scenarios::Rest,
    uverbs::{Attached, File},
};
use kernel::{prelude::*, runtime};
use xrc_rcv_spec::Membership;

/// The attributes with which a QP is created in INIT.
const INIT: QpAttrMask = QpAttrMask::PKEY_INDEX
    .or(QpAttrMask::PORT)
    .or(QpAttrMask::ACCESS_FLAGS);

/// All with which one is created in RTR.
const RTR: QpAttrMask = INIT
    .or(QpAttrMask::AV)
    .or(QpAttrMask::PATH_MTU)
    .or(QpAttrMask::DEST_QPN)
    .or(QpAttrMask::RQ_PSN)
    .or(QpAttrMask::MAX_DEST_RD_ATOMIC)
    .or(QpAttrMask::MIN_RNR_TIMER)
    .or(QpAttrMask::ALT_PATH);

/// Returns an address vector of which each member has another value.
fn address(port: u8) -> ib_uverbs_ah_attr {
    let number = |index: u8| 0x10 * port + index;

    ib_uverbs_ah_attr {
        grh: ib_uverbs_global_route {
            dgid: core::array::from_fn(|index| 0x80 + number(index as u8)),
            flow_label: 0x1_2340 + u32::from(port),
            sgid_index: number(1),
            hop_limit: number(2),
            traffic_class: number(3),
            reserved: 0,
        },
        dlid: 0x4500 + u16::from(port),
        sl: number(4) & 0xf,
        src_path_bits: number(5),
        static_rate: number(6),
        is_global: 1,
        port_num: port,
        reserved: 0,
    }
}

/// Returns attributes of which each has another value, for a QP in RTR with port 1 and another path
/// through port 2.
pub(super) fn distinct() -> ib_uverbs_qp_attr {
    ib_uverbs_qp_attr {
        path_mtu: 3,
        rq_psn: 0x12_3456,
        dest_qp_num: 0xab_cdef,
        qp_access_flags: 0b1011,
        ah_attr: address(1),
        alt_ah_attr: address(2),
        pkey_index: 4,
        alt_pkey_index: 9,
        max_dest_rd_atomic: 11,
        min_rnr_timer: 13,
        alt_port_num: 2,
        alt_timeout: 17,
        ..passed::attributes(RTR, QpState::Rtr)
    }
}

/// Returns what a query returns of a QP that was modified to attributes.
fn queried(attributes: ib_uverbs_qp_attr) -> ib_uverbs_qp_attr {
    ib_uverbs_qp_attr {
        cur_qp_state: attributes.qp_state,
        ..passed::with_mask(attributes, QpAttrMask::STANDARD)
    }
}

/// A process creates a QP that the domain keeps.
fn create(attached: &Attached, file: &File, attributes: ib_uverbs_qp_attr) -> Result<u32> {
    let member = file.channel().member();
    let methods = attached.methods();

    methods
        .alloc_with(
            member,
            Lifetime::Domain,
            &passed::passed(attributes),
            |_, _| Ok(()),
        )
        .map(|(qpn, _)| qpn)
}

fn end(attached: std::sync::Arc<Attached>, qpn: u32, file: std::sync::Arc<File>) {
    attached.methods().destroy(qpn, true).unwrap();
    attached.device.check_ended();
    file.channel().lose();
    drop(file);
    Rest::default().finish(attached, false);
}

#[cfg(not(miri))]
#[test]
fn what_is_set_is_queried() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let mut set = distinct();
        let qpn = create(&attached, &file, set).unwrap();
        let query = || attached.methods().query_attributes(qpn).unwrap();
        let modify = |attributes: ib_uverbs_qp_attr, mask| {
            let attributes = passed::passed(passed::with_mask(attributes, mask));

            attached.methods().modify(qpn, &attributes)
        };

        assert_eq!(query(), queried(set));

        // A QP takes some later, and ignores those of a sender.
        set.qp_state = QpState::Rts as u32;
        set.cur_qp_state = QpState::Rtr as u32;
        set.sq_psn = 0x65_4321;
        set.timeout = 19;
        set.path_mig_state = 1;
        set.qkey = 0x8765_4321;
        set.en_sqd_async_notify = 1;
        (set.max_rd_atomic, set.retry_cnt, set.rnr_retry) = (3, 5, 6);
        modify(
            set,
            QpAttrMask::STATE
                | QpAttrMask::CUR_STATE
                | QpAttrMask::SQ_PSN
                | QpAttrMask::TIMEOUT
                | QpAttrMask::PATH_MIG_STATE
                | QpAttrMask::QKEY
                | QpAttrMask::EN_SQD_ASYNC_NOTIFY
                | QpAttrMask::MAX_QP_RD_ATOMIC
                | QpAttrMask::RETRY_CNT
                | QpAttrMask::RNR_RETRY,
        )
        .unwrap();
        (set.max_rd_atomic, set.retry_cnt, set.rnr_retry) = (0, 0, 0);
        assert_eq!(query(), queried(set));

        // A sequence number has 24 bits, and a process may pass 32.
        (set.rq_psn, set.sq_psn) = (0xff12_3456, 0xff65_4321);
        modify(set, QpAttrMask::RQ_PSN | QpAttrMask::SQ_PSN).unwrap();
        (set.rq_psn, set.sq_psn) = (0x12_3456, 0x65_4321);
        assert_eq!(query(), queried(set));

        // The other path is the first, and the address is one of the subnet.
        set.ah_attr = address(2);
        set.alt_ah_attr = address(1);
        (set.ah_attr.is_global, set.alt_port_num) = (0, 1);
        modify(set, QpAttrMask::AV | QpAttrMask::ALT_PATH).unwrap();
        set.ah_attr.grh = ib_uverbs_global_route::default();
        // The QP is where its path begins.
        set.port_num = 2;
        assert_eq!(query(), queried(set));

        end(attached, qpn, file);
    });
}

/// An address of RoCE is resolved, and has neither LID nor path bits.
#[cfg(not(miri))]
#[test]
fn addresses_of_roce() {
    runtime::check(2, 0x18, || {
        let attached = Attached::with_roce(1 << 1);
        let file = attached.open();
        let mut set = distinct();
        let objects = runtime::objects();

        set.ah_attr.is_global = 0;
        assert_eq!(create(&attached, &file, set), Err(EINVAL));
        assert_eq!(runtime::objects(), objects);

        set.ah_attr.is_global = 1;

        let qpn = create(&attached, &file, set).unwrap();

        (set.ah_attr.dlid, set.ah_attr.src_path_bits) = (0, 0);
        assert_eq!(attached.methods().query_attributes(qpn), Ok(queried(set)));

        end(attached, qpn, file);
    });
}

/// A structure of attributes with another number in each.
#[cfg(not(miri))]
macro_rules! numbered {
    ($attributes:ident) => {
        $attributes {
            qp_state: 1,
            cur_qp_state: 2,
            path_mtu: 3,
            path_mig_state: 4,
            qkey: 5,
            rq_psn: 6,
            sq_psn: 7,
            dest_qp_num: 8,
            qp_access_flags: 9,
            pkey_index: 10,
            alt_pkey_index: 11,
            en_sqd_async_notify: 12,
            sq_draining: 13,
            max_rd_atomic: 14,
            max_dest_rd_atomic: 15,
            min_rnr_timer: 16,
            port_num: 17,
            timeout: 18,
            retry_cnt: 19,
            rnr_retry: 20,
            alt_port_num: 21,
            alt_timeout: 22,
            ..Default::default()
        }
    };
}

/// A process gets each attribute that a device returns.
#[cfg(not(miri))]
#[test]
fn all_that_a_device_says_is_returned() {
    let mut attr = numbered!(ib_qp_attr);

    attr.ah_attr.type_ = rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
    (attr.ah_attr.sl, attr.alt_ah_attr.sl) = (23, 24);

    let attr: *const ib_qp_attr = &attr;
    // SAFETY: The structure is valid, and has no pointer but null.
    let of_kernel = unsafe { KernelQpAttr::from_ptr(attr).unwrap().to_attributes(RTR) };
    let mut expected = numbered!(ib_uverbs_qp_attr);

    (expected.ah_attr.sl, expected.alt_ah_attr.sl) = (23, 24);
    assert_eq!(
        passed::contents(of_kernel.to_user()),
        passed::with_mask(expected, QpAttrMask::STANDARD)
    );
}

type Spoil = fn(&mut ib_uverbs_qp_attr);

/// The greatest and the least value of each attribute are taken, and the next ones refused.
#[cfg(not(miri))]
#[test]
fn values_out_of_range() {
    const VALUES: [(QpAttrMask, Spoil, Result); 32] = [
        (QpAttrMask::MIN_RNR_TIMER, |a| a.min_rnr_timer = 31, Ok(())),
        (
            QpAttrMask::MIN_RNR_TIMER,
            |a| a.min_rnr_timer = 32,
            Err(EINVAL),
        ),
        (QpAttrMask::TIMEOUT, |a| a.timeout = 31, Ok(())),
        (QpAttrMask::TIMEOUT, |a| a.timeout = 32, Err(EINVAL)),
        (QpAttrMask::ALT_PATH, |a| a.alt_timeout = 31, Ok(())),
        (QpAttrMask::ALT_PATH, |a| a.alt_timeout = 32, Err(EINVAL)),
        (QpAttrMask::ALT_PATH, |a| a.alt_port_num = 1, Err(EINVAL)),
        (
            QpAttrMask::ALT_PATH,
            |a| (a.alt_port_num, a.alt_ah_attr.port_num) = (3, 3),
            Err(EINVAL),
        ),
        (
            QpAttrMask::ALT_PATH,
            |a| (a.alt_port_num, a.alt_ah_attr.port_num) = (0, 0),
            Err(EINVAL),
        ),
        (QpAttrMask::PATH_MTU, |a| a.path_mtu = 1, Ok(())),
        (QpAttrMask::PATH_MTU, |a| a.path_mtu = 5, Ok(())),
        (QpAttrMask::PATH_MTU, |a| a.path_mtu = 0, Err(EINVAL)),
        (QpAttrMask::PATH_MTU, |a| a.path_mtu = 6, Err(EINVAL)),
        (QpAttrMask::PATH_MIG_STATE, |a| a.path_mig_state = 2, Ok(())),
        (
            QpAttrMask::PATH_MIG_STATE,
            |a| a.path_mig_state = 3,
            Err(EINVAL),
        ),
        (QpAttrMask::DEST_QPN, |a| a.dest_qp_num = 0xff_ffff, Ok(())),
        (
            QpAttrMask::DEST_QPN,
            |a| a.dest_qp_num = 0x100_0000,
            Err(EINVAL),
        ),
        (
            QpAttrMask::ACCESS_FLAGS,
            |a| a.qp_access_flags = ib_verbs::ib_access_flags_IB_ACCESS_SUPPORTED,
            Ok(()),
        ),
        (
            QpAttrMask::ACCESS_FLAGS,
            |a| a.qp_access_flags = 1 << 10,
            Err(EINVAL),
        ),
        (QpAttrMask::PORT, |a| a.port_num = 2, Ok(())),
        (QpAttrMask::PORT, |a| a.port_num = 0, Err(EINVAL)),
        (QpAttrMask::PORT, |a| a.port_num = 3, Err(EINVAL)),
        (QpAttrMask::AV, |a| a.ah_attr.port_num = 0, Err(EINVAL)),
        (QpAttrMask::AV, |a| a.ah_attr.port_num = 3, Err(EINVAL)),
        (QpAttrMask::NONE, |a| a.qp_state = 7, Err(EINVAL)),
        (QpAttrMask::CUR_STATE, |a| a.cur_qp_state = 6, Ok(())),
        (QpAttrMask::CUR_STATE, |a| a.cur_qp_state = 7, Err(EINVAL)),
        (QpAttrMask::NONE, |a| a.qp_attr_mask |= 1 << 21, Err(EINVAL)),
        // Reserved members are 0, whatever the mask has.
        (QpAttrMask::NONE, |a| a.reserved[4] = 1, Err(EINVAL)),
        (QpAttrMask::NONE, |a| a.ah_attr.reserved = 1, Err(EINVAL)),
        (
            QpAttrMask::NONE,
            |a| a.alt_ah_attr.grh.reserved = 1,
            Err(EINVAL),
        ),
        // Members that the mask leaves out are not looked at.
        (
            QpAttrMask::NONE,
            |a| (a.min_rnr_timer, a.timeout, a.path_mtu, a.port_num) = (32, 32, 0, 0),
            Ok(()),
        ),
    ];

    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();

        let methods = attached.methods();
        let destroy = |qpn| {
            methods.destroy(qpn, true).unwrap();
            attached.device.check_ended();
        };

        for (index, (bit, change, expected)) in VALUES.into_iter().enumerate() {
            let qpn = create(&attached, &file, distinct()).unwrap();
            let before = methods.query_attributes(qpn);
            let mut set = passed::with_mask(distinct(), bit | QpAttrMask::STATE);

            change(&mut set);

            let result = methods.modify(qpn, &passed::passed(set));
            let after = methods.query_attributes(qpn);

            destroy(qpn);
            assert_eq!(result, expected, "value {index}");
            assert!(result.is_ok() || after == before, "value {index}");
        }

        // ALLOC checks the same, of the attributes that it takes.
        const REFUSED: [Spoil; 6] = [
            |a| a.min_rnr_timer = 32,
            |a| a.alt_timeout = 32,
            |a| a.path_mtu = 6,
            |a| a.dest_qp_num = 1 << 24,
            |a| a.qp_access_flags = 1 << 10,
            |a| a.ah_attr.port_num = 2,
        ];

        for change in REFUSED {
            let mut set = distinct();

            change(&mut set);

            let result = create(&attached, &file, set).map(destroy);

            assert_eq!(result, Err(EINVAL));
        }

        let qpn = create(&attached, &file, distinct()).unwrap();

        end(attached, qpn, file);
    });
}

/// A process needs the partitions that a QP uses after a call, each with the port that it has then.
#[cfg(not(miri))]
#[test]
fn partitions_of_a_path() {
    const PROCESS: u32 = 5;
    const OTHER: u32 = 6;

    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let (file, reader) = (attached.open(), attached.open());
        let mut set = distinct();

        run_as(PROCESS, PROCESS);

        // At creation: of the path and of the other one.
        for (port, index) in [(1, 4), (2, 9)] {
            attached.device.deny(PROCESS, port, index);
            assert_eq!(create(&attached, &file, set), Err(EACCES));
        }
        attached.device.deny(PROCESS, 1, 9);

        let qpn = create(&attached, &file, set).unwrap();
        let modify = |attributes: ib_uverbs_qp_attr, mask| {
            let attributes = passed::passed(passed::with_mask(attributes, mask));

            attached.methods().modify(qpn, &attributes)
        };

        // The port alone, and the index alone.
        set.port_num = 2;
        attached.device.deny(PROCESS, 2, 4);
        assert_eq!(modify(set, QpAttrMask::PORT), Err(EACCES));
        attached.device.deny(PROCESS, 1, 4);
        assert_eq!(modify(set, QpAttrMask::TIMEOUT), Err(EACCES), "as it is");
        modify(set, QpAttrMask::PORT).unwrap();
        attached.device.deny(PROCESS, 2, 4);
        assert_eq!(modify(set, QpAttrMask::TIMEOUT), Err(EACCES), "as it is");
        set.pkey_index = 3;
        attached.device.deny(PROCESS, 2, 3);
        assert_eq!(modify(set, QpAttrMask::PKEY_INDEX), Err(EACCES));
        attached.device.deny(PROCESS, 1, 3);
        modify(set, QpAttrMask::PKEY_INDEX).unwrap();
        // The path takes the QP to another port.
        set.ah_attr.port_num = 1;
        attached.device.deny(PROCESS, 1, 3);
        assert_eq!(modify(set, QpAttrMask::AV), Err(EACCES));
        attached.device.deny(PROCESS, 2, 3);
        modify(set, QpAttrMask::AV).unwrap();
        modify(set, QpAttrMask::TIMEOUT).unwrap();
        // The other path.
        (set.alt_port_num, set.alt_ah_attr.port_num) = (1, 1);
        set.alt_pkey_index = 8;
        attached.device.deny(PROCESS, 1, 8);
        assert_eq!(modify(set, QpAttrMask::ALT_PATH), Err(EACCES));
        attached.device.deny(PROCESS, 2, 9);
        modify(set, QpAttrMask::ALT_PATH).unwrap();

        // A process that registers, for what the QP uses then.
        run_as(OTHER, OTHER);

        let register = || {
            attached
                .methods()
                .register(reader.channel().member(), &[qpn])
                .1
        };

        for (port, index) in [(1, 3), (1, 8)] {
            attached.device.deny(OTHER, port, index);
            assert_eq!(register(), Err(EACCES));
        }
        attached.device.deny(OTHER, 2, 9);
        register().unwrap();

        reader.channel().lose();
        drop(reader);
        end(attached, qpn, file);
    });
}

/// A kernel user modifies no QP with the driver of qedr, and none to INIT with that of mlx4 in a
/// domain of processes.
#[test]
fn drivers_that_take_a_kernel_user_for_an_owner() {
    runtime::check(2, 0x18, || {
        let attached = Attached::new();
        let file = attached.open();
        let user = KernelUser::open(&attached, Membership::Named);
        let set = passed::attributes(INIT, QpState::Init);
        let qpn = create(&attached, &file, set).unwrap();
        let not_supported = Err(crate::kernel_ext::not_supported());
        let modify = |state: QpState| {
            let attr = ib_qp_attr {
                qp_state: state as u32,
                port_num: 1,
                ..Default::default()
            };

            user.modify_with(
                qpn,
                &attr,
                match state {
                    QpState::Init => KERNEL_INIT,
                    _ => ib_verbs::ib_qp_attr_mask_IB_QP_STATE,
                },
            )
        };

        modify(QpState::Reset).unwrap();
        attached
            .device
            .is_of(ib_verbs::rdma_driver_id_RDMA_DRIVER_QEDR);
        assert_eq!(modify(QpState::Init), not_supported);
        assert_eq!(modify(QpState::Err), not_supported);
        attached
            .device
            .is_of(ib_verbs::rdma_driver_id_RDMA_DRIVER_MLX4);
        assert_eq!(modify(QpState::Init), not_supported);
        modify(QpState::Err).unwrap();
        attached
            .device
            .is_of(ib_verbs::rdma_driver_id_RDMA_DRIVER_UNKNOWN);
        modify(QpState::Init).unwrap();

        user.leave(&attached);
        user.close_domain(&attached);
        drop(user);
        end(attached, qpn, file);
    });
}
