# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Values that are passed to the library, or returned by it: the structs of C as dataclasses."""

from dataclasses import dataclass, fields
from ipaddress import IPv6Address
from typing import Any

from . import _headers as c
from ._headers import AttrMask, EventType, Lifetime, Mtu, QpState
from ._library import fill, xrc_rcv


@dataclass(frozen=True, kw_only=True)
class Address:
    """The way to the peer, from a local port: by LID, by GID (a global route), or both (struct
    ibv_ah_attr)."""

    port_num: int
    dlid: int = 0
    dgid: IPv6Address | str | None = None
    sgid_index: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0
    sl: int = 0
    src_path_bits: int = 0
    static_rate: int = 0

    @property
    def is_global(self) -> bool:
        return self.dgid is not None


@dataclass(frozen=True, kw_only=True)
class QpAttr:
    """Attributes of a QP; those that are None are not given (struct ibv_qp_attr, and its mask).

    INIT requires pkey_index, port_num and qp_access_flags; RTR also ah_attr, path_mtu, dest_qp_num
    and rq_psn."""

    qp_state: int | None = None
    cur_qp_state: int | None = None
    en_sqd_async_notify: int | None = None
    qp_access_flags: int | None = None
    pkey_index: int | None = None
    port_num: int | None = None
    qkey: int | None = None
    ah_attr: Address | None = None
    path_mtu: int | None = None
    timeout: int | None = None
    retry_cnt: int | None = None
    rnr_retry: int | None = None
    rq_psn: int | None = None
    max_rd_atomic: int | None = None
    alt_ah_attr: Address | None = None
    alt_pkey_index: int | None = None
    alt_port_num: int | None = None
    alt_timeout: int | None = None
    min_rnr_timer: int | None = None
    sq_psn: int | None = None
    max_dest_rd_atomic: int | None = None
    path_mig_state: int | None = None
    dest_qp_num: int | None = None
    rate_limit: int | None = None


# Most bits have the name of their attribute.
_BITS = {"qp_state": AttrMask.STATE, "cur_qp_state": AttrMask.CUR_STATE, "qp_access_flags": AttrMask.ACCESS_FLAGS,
         "port_num": AttrMask.PORT, "ah_attr": AttrMask.AV, "max_rd_atomic": AttrMask.MAX_QP_RD_ATOMIC,
         "dest_qp_num": AttrMask.DEST_QPN}
_BITS |= {name: AttrMask.ALT_PATH for name in ("alt_ah_attr", "alt_pkey_index", "alt_port_num", "alt_timeout")}
_BITS |= {field.name: AttrMask[field.name.upper()] for field in fields(QpAttr) if field.name not in _BITS}
_ROUTE = "sgid_index", "hop_limit", "traffic_class", "flow_label"
_ADDRESS = "port_num", "dlid", "sl", "src_path_bits", "static_rate"


def _from_address(address: Any) -> c.ibv_ah_attr:
    result = c.ibv_ah_attr(is_global=bool(address.is_global))
    fill(result, **{name: getattr(address, name) for name in _ADDRESS})
    if address.is_global:
        fill(result.grh, **{name: getattr(address, name) for name in _ROUTE})
        result.grh.dgid[:] = memoryview(IPv6Address(address.dgid).packed).cast("Q")
    return result


def _to_address(attr: c.ibv_ah_attr) -> Address:
    values: dict[str, Any] = {name: getattr(attr, name) for name in _ADDRESS}
    if attr.is_global:
        values |= {name: getattr(attr.grh, name) for name in _ROUTE} | {"dgid": IPv6Address(bytes(attr.grh.dgid))}
    return Address(**values)


def from_qp_attr(attr: Any, mask: int | None) -> tuple[c.ibv_qp_attr, int]:
    """The struct of `attr`, a QpAttr or an object with the same properties, and its mask."""
    if mask is None:
        if not isinstance(attr, QpAttr):
            raise TypeError(f"a mask has to say which attributes of a {type(attr).__name__} are given")
        mask = sum({bit for name, bit in _BITS.items() if getattr(attr, name) is not None})
    result = c.ibv_qp_attr()
    for name, bit in _BITS.items():
        value = getattr(attr, name, None) if mask & bit else None
        if value is not None:
            if name.endswith("ah_attr"):
                setattr(result, name, _from_address(value))
            else:
                fill(result, **{name: value})
    return result, mask


def to_qp_attr(attr: c.ibv_qp_attr) -> QpAttr:
    values: dict[str, Any] = {name: getattr(attr, name) for name in _BITS if name != "rate_limit"}
    return QpAttr(**values | {name: _to_address(values[name]) for name in ("ah_attr", "alt_ah_attr")})


@dataclass(frozen=True)
class PortAttr:
    """A port of a device (struct ibv_port_attr)."""

    state: int
    active_mtu: Mtu
    lid: int
    gid_tbl_len: int
    pkey_tbl_len: int
    link_layer: int

    @classmethod
    def _of(cls, attr: c.ibv_port_attr) -> "PortAttr":
        return cls(attr.state, Mtu(attr.active_mtu), attr.lid, attr.gid_tbl_len, attr.pkey_tbl_len,
                   attr.link_layer)


@dataclass(frozen=True)
class Caps:
    """Capabilities of the kernel and a device; a limit of 0 is none (struct xrc_rcv_caps)."""

    version: int
    event_types: frozenset[EventType]
    max_qps_per_domain: int
    max_qps_per_user: int
    max_registrations_per_qp: int

    @classmethod
    def _of(cls, caps: c.xrc_rcv_caps) -> "Caps":
        types = frozenset(EventType(bit) for bit in range(64) if caps.event_types >> bit & 1)
        return cls(caps.version, types, caps.max_qps_per_domain, caps.max_qps_per_user,
                   caps.max_registrations_per_qp)


@dataclass(frozen=True)
class QpInfo:
    """A receive QP, as a query returns it (struct xrc_rcv_qp_info)."""

    qp_num: int
    state: QpState
    lifetime: Lifetime
    registrations: int
    label: int
    dest_qp_num: int

    @classmethod
    def _of(cls, info: c.xrc_rcv_qp_info) -> "QpInfo":
        return cls(info.qp_num, QpState(info.state), Lifetime(info.lifetime), info.registrations, info.label,
                   info.dest_qp_num)


@dataclass(frozen=True)
class Event:
    """A record of an event channel (struct xrc_rcv_event); `cookie` is that of the registration, or
    the label of the QP, if the channel is of all QPs; `last_ns` is a time of CLOCK_MONOTONIC."""

    cookie: int
    last_ns: int
    qp_num: int
    type: EventType
    count: int

    @classmethod
    def _of(cls, event: c.xrc_rcv_event) -> "Event":
        return cls(event.cookie, event.last_ns, event.qp_num, EventType(event.type), event.count)

    @property
    def description(self) -> str:
        description: bytes = xrc_rcv.xrc_rcv_event_type_str(self.type)
        return description.decode()
