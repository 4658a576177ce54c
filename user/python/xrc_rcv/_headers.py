# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The structs and enums of <infiniband/verbs.h>, <infiniband/xrc_rcv.h> and <rdma/ib_xrc_rcv.h>
that the package uses. Structs and their members have the names of C; PREFIXES has those of the
enums. scripts/check-layouts of the sources compares all of them with the headers. No library is
loaded here."""

from ctypes import POINTER, Structure, c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntEnum, IntFlag
from typing import Any, Self


class _Open(IntEnum):
    """An enum to which later versions of the headers may add."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._name_, unknown._value_ = f"{cls.__name__}_{value}", value
        return unknown


class EventType(_Open):
    """enum ibv_event_type, XRC_RCV_EVENT_QP_ADDED, _QP_GONE and _OVERRUN, which is in no mask."""

    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    COMM_EST = 4
    SQ_DRAINED = 5
    PATH_MIG = 6
    PATH_MIG_ERR = 7
    QP_LAST_WQE_REACHED = 16
    QP_ADDED = 61
    OVERRUN = 62
    QP_GONE = 63


class Lifetime(_Open):
    """The objects that keep a receive QP: its registrations, or its domain (enum
    xrc_rcv_lifetime)."""

    REGISTRATIONS = 0
    DOMAIN = 1


class QpState(_Open):
    """The state of a QP (enum ibv_qp_state)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Mtu(_Open):
    """The largest payload of a packet (enum ibv_mtu)."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5


class Access(IntFlag):
    """Remote access that a QP permits (enum ibv_access_flags)."""

    REMOTE_WRITE = 1 << 1
    REMOTE_READ = 1 << 2
    REMOTE_ATOMIC = 1 << 3


class AttrMask(IntFlag):
    """The attributes of a QP that are given (enum ibv_qp_attr_mask)."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    DEST_QPN = 1 << 20
    RATE_LIMIT = 1 << 25


class AllocFlags(IntFlag):
    LIFETIME_DOMAIN = 1 << 0


class DestroyFlags(IntFlag):
    FORCE = 1 << 0


class EventChannelFlags(IntFlag):
    OBSERVE = 1 << 1


class InitAttrMask(IntFlag):
    EVENTS = 1 << 0
    LABEL = 1 << 1


PREFIXES: dict[type[IntEnum] | type[IntFlag], str] = {
    EventType: "IBV_EVENT_", Lifetime: "XRC_RCV_LIFETIME_", QpState: "IBV_QPS_", Mtu: "IBV_", Access: "IBV_ACCESS_",
    AttrMask: "IBV_QP_", AllocFlags: "XRC_RCV_ALLOC_", DestroyFlags: "XRC_RCV_DESTROY_",
    EventChannelFlags: "XRC_RCV_EVENT_CHANNEL_", InitAttrMask: "XRC_RCV_INIT_ATTR_",
}


def _all(type_: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, type_) for name in names.split()]


class ibv_global_route(Structure):
    _fields_ = [("dgid", c_uint64 * 2), ("flow_label", c_uint32), *_all(c_uint8, "sgid_index hop_limit traffic_class")]


class ibv_ah_attr(Structure):
    _fields_ = [("grh", ibv_global_route), ("dlid", c_uint16),
                *_all(c_uint8, "sl src_path_bits static_rate is_global port_num")]


class ibv_qp_attr(Structure):
    _fields_ = [*_all(c_uint32, "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num "
                                "qp_access_flags"),
                ("cap", c_uint32 * 5), *_all(ibv_ah_attr, "ah_attr alt_ah_attr"),
                *_all(c_uint16, "pkey_index alt_pkey_index"),
                *_all(c_uint8, "en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num "
                               "timeout retry_cnt rnr_retry alt_port_num alt_timeout"),
                ("rate_limit", c_uint32)]


class ibv_port_attr(Structure):
    _fields_ = [*_all(c_uint32, "state max_mtu active_mtu"), ("gid_tbl_len", c_int),
                *_all(c_uint32, "port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr"),
                *_all(c_uint16, "pkey_tbl_len lid sm_lid"),
                *_all(c_uint8, "lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state "
                               "link_layer flags"),
                ("port_cap_flags2", c_uint16), ("active_speed_ex", c_uint32)]


class xrc_rcv_event_channel(Structure):
    _fields_ = [("context", c_void_p), ("fd", c_int)]


class xrc_rcv_qp(Structure):
    _fields_ = [*_all(c_void_p, "context xrcd"), ("qp_num", c_uint32)]


class xrc_rcv_srq(Structure):
    _fields_ = [("xrcd", c_void_p), ("srq_num", c_uint32), ("fd", c_int)]


class xrc_rcv_event(Structure):
    _fields_ = [*_all(c_uint64, "cookie last_ns"), *_all(c_uint32, "qp_num type count reserved")]


class xrc_rcv_init_attr(Structure):
    _fields_ = [*_all(c_uint32, "comp_mask flags"), ("channel", POINTER(xrc_rcv_event_channel)),
                *_all(c_uint64, "cookie events label")]


class xrc_rcv_reg_attr(Structure):
    _fields_ = [*_all(c_uint32, "comp_mask reserved"), ("channel", POINTER(xrc_rcv_event_channel)),
                *_all(c_uint64, "cookie events")]


class xrc_rcv_qp_info(Structure):
    _fields_ = [*_all(c_uint32, "qp_num state lifetime registrations"), ("label", c_uint64),
                *_all(c_uint32, "dest_qp_num reserved")]


class xrc_rcv_adopted_qp(Structure):
    _fields_ = [("qp", POINTER(xrc_rcv_qp)), ("error", c_int), ("reserved", c_uint32), ("info", xrc_rcv_qp_info)]


class xrc_rcv_caps(Structure):
    _fields_ = [*_all(c_uint32, "version alloc_flags"), ("event_types", c_uint64),
                *_all(c_uint32, "max_qps_per_domain max_qps_per_user record_size max_registrations_per_qp")]
