# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The functions of libxrc_rcv and libibverbs, each of which raises OSError where it fails in C:
with the errno, the name of the function, and the cause where the header names it."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ssize_t, c_uint8, c_uint32, c_uint64, c_void_p
from errno import (EACCES, EAGAIN, EBUSY, EDQUOT, EINVAL, EIO, ENODEV, ENOSYS, EOPNOTSUPP, EPERM)
from typing import Any

from . import _headers as c

_NO_QP = "the domain has no receive QP of this number"
_NO_DEVICE = "the device was removed"
_NOT_REGULAR = "the domain's file is not a regular file that a process made"
_CAUSES = {
    "": {EOPNOTSUPP: "the device has no receive QPs: ib_xrc_rcv is not loaded, was loaded after ib_uverbs had exposed "
                     "the device, or the device has no XRC", EIO: _NO_DEVICE},
    "ibv_get_device_list": {ENOSYS: "ib_uverbs is not loaded"},
    "xrc_rcv_open_domain": {EAGAIN: "the file has no domain", EINVAL: "it has a domain", EOPNOTSUPP: "the device has no XRC"},
    "xrc_rcv_close_domain": {EBUSY: "an SRQ or a QP of the domain is open"},
    "xrc_rcv_create_srq": {EINVAL: "depth or size is 0, or more than the device can have"},
    "xrc_rcv_receive": {EAGAIN: "no message has arrived", EIO: "the receive failed, as of a message that was too long, "
                                                              "or the device was removed"},
    "xrc_rcv_create_event_channel": {EPERM: _NOT_REGULAR},
    "xrc_rcv_create_event_channel_of_all": {EPERM: _NOT_REGULAR,
                                            EDQUOT: "the domain has as many such channels as it may have"},
    "xrc_rcv_read_events": {EAGAIN: "there is no unread event"},
    "xrc_rcv_alloc_qp": {EACCES: "the caller may not write to the domain's file, or use the partition",
                         EAGAIN: "the RDMA cgroup has as many objects as it may have",
                         EPERM: _NOT_REGULAR,
                         EDQUOT: "the domain or the user has as many receive QPs as it may have",
                         EINVAL: "an attribute is missing or wrong, or the channel is of another domain, or one of all QPs "
                                 "that keeps none"},
    "xrc_rcv_reg_qp_ex": {EACCES: "the caller may not use the partition of the QP",
                          EDQUOT: "the QP has as many registrations as it may have",
                          EINVAL: f"{_NO_QP}, which is that of the channel, or there are no such events"},
    "xrc_rcv_modify_qp": {EACCES: "the caller may not write to the domain's file, or use the partition",
                          EINVAL: f"{_NO_QP}, or it has no such transition"},
    "xrc_rcv_query_qp": {EINVAL: _NO_QP},
    "xrc_rcv_destroy_qp": {EACCES: "the caller may not", EBUSY: "a registration keeps the QP",
                           EINVAL: f"{_NO_QP}, or its registrations keep it, so that force is needed"},
}


def error(function: str, errno: int) -> OSError:
    cause = _CAUSES.get(function, {}).get(errno) or _CAUSES[""].get(errno)
    return OSError(errno, f"{function}: {os.strerror(errno)}" + (f": {cause}" if cause else ""))


def _made(result: Any, function: Any, _arguments: Any) -> Any:
    if not result:
        raise error(function.__name__, ctypes.get_errno())
    return result


def _done(result: int, function: Any, _arguments: Any) -> None:
    if result:
        raise error(function.__name__, result)


def _counted(result: int, function: Any, _arguments: Any) -> int:
    if result < 0:
        raise error(function.__name__, ctypes.get_errno())
    return result


def _library(name: str, functions: dict[str, tuple[Any, ...]]) -> ctypes.CDLL:
    """The library, with the types of its functions: NAME: (RESULT, its check, ARGUMENT…)."""
    loaded = ctypes.CDLL(name, use_errno=True)
    for function, (result, check, *arguments) in functions.items():
        symbol = getattr(loaded, function)
        symbol.restype, symbol.argtypes = result, arguments
        if check:
            symbol.errcheck = check
    return loaded


_channel, _qp, _srq = POINTER(c.xrc_rcv_event_channel), POINTER(c.xrc_rcv_qp), POINTER(c.xrc_rcv_srq)

verbs = _library("libibverbs.so.1", {
    "ibv_get_device_list": (POINTER(c_void_p), _made, POINTER(c_int)),
    "ibv_free_device_list": (None, None, POINTER(c_void_p)),
    "ibv_get_device_name": (c_char_p, None, c_void_p),
    "ibv_open_device": (c_void_p, _made, c_void_p),
    "ibv_close_device": (c_int, _done, c_void_p),
    "ibv_query_port": (c_int, _done, c_void_p, c_uint8, POINTER(c.ibv_port_attr)),
    "ibv_query_gid": (c_int, _done, c_void_p, c_uint8, c_int, c_char_p),
})
xrc_rcv = _library("libxrc_rcv.so.1", {
    "xrc_rcv_query_caps": (c_int, _done, c_void_p, POINTER(c.xrc_rcv_caps), c_size_t),
    "xrc_rcv_open_domain": (c_void_p, _made, c_void_p, c_int, c_int),
    "xrc_rcv_close_domain": (c_int, _done, c_void_p),
    "xrc_rcv_create_srq": (_srq, _made, c_void_p, c_uint32, c_uint32),
    "xrc_rcv_destroy_srq": (c_int, _done, _srq),
    "xrc_rcv_receive": (c_ssize_t, _counted, _srq, c_void_p, c_size_t, c_int),
    "xrc_rcv_create_event_channel": (_channel, _made, c_void_p),
    "xrc_rcv_create_event_channel_of_all": (_channel, _made, c_void_p, c_uint32),
    "xrc_rcv_destroy_event_channel": (c_int, _done, _channel),
    "xrc_rcv_read_events": (c_ssize_t, _counted, _channel, POINTER(c.xrc_rcv_event), c_size_t, c_size_t),
    "xrc_rcv_alloc_qp": (_qp, _made, c_void_p, POINTER(c.xrc_rcv_init_attr), POINTER(c.ibv_qp_attr), c_int),
    "xrc_rcv_reg_qp_ex": (_qp, _made, c_void_p, c_uint32, POINTER(c.xrc_rcv_reg_attr)),
    "xrc_rcv_unreg_qp": (c_int, _done, _qp),
    "xrc_rcv_modify_qp": (c_int, _done, c_void_p, c_uint32, POINTER(c.ibv_qp_attr), c_int),
    "xrc_rcv_query_qp": (c_int, _done, c_void_p, c_uint32, POINTER(c.ibv_qp_attr), POINTER(c.xrc_rcv_qp_info), c_size_t),
    "xrc_rcv_destroy_qp": (c_int, _done, c_void_p, c_uint32, c_uint32),
    "xrc_rcv_query_domain": (c_int, _done, c_void_p, c_uint32, POINTER(c.xrc_rcv_qp_info), c_size_t, POINTER(c_size_t),
                             POINTER(c_uint32)),
    "xrc_rcv_adopt_domain": (c_int, _done, c_void_p, POINTER(c.xrc_rcv_reg_attr), POINTER(POINTER(c.xrc_rcv_adopted_qp)),
                             c_size_t, POINTER(c_size_t)),
    "xrc_rcv_event_type_str": (c_char_p, None, c_uint32),
})
free = ctypes.CDLL(None).free
free.restype, free.argtypes = None, [c_void_p]


def number(name: str, value: int, bits: int) -> int:
    """The value, which ctypes would cut off."""
    if not 0 <= value < 1 << bits:
        raise OverflowError(f"{name} has {bits} bits: {value}")
    return value


def fill(struct: ctypes.Structure, **values: int) -> None:
    for name, value in values.items():
        setattr(struct, name, number(name, value, 8 * getattr(type(struct), name).size))
