#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""usage: receiver.py DEVICE FILE QPN

As "receiver DEVICE FILE QPN" of receiver.c, without a C compiler: registers with a receive QP of
the domain of FILE, prints the number of the QP and that of an SRQ, then messages and events, and
unregisters when the connection breaks.
"""

import ctypes
import errno
import os
import select
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_ssize_t, c_uint32, c_uint64, c_void_p

COMM_EST = 4    # of enum ibv_event_type
DEPTH, SIZE = 16, 64


class Channel(Structure):
    _fields_ = [("context", c_void_p), ("fd", c_int)]


class Qp(Structure):
    _fields_ = [("context", c_void_p), ("xrcd", c_void_p), ("qp_num", c_uint32)]


class Srq(Structure):
    _fields_ = [("xrcd", c_void_p), ("srq_num", c_uint32), ("fd", c_int)]


class Event(Structure):
    _fields_ = [("cookie", c_uint64), ("last_ns", c_uint64), ("qp_num", c_uint32), ("type", c_uint32),
                ("count", c_uint32), ("reserved", c_uint32)]


def library(name, functions):
    """The library, with the types of its functions: NAME: (RESULT, ARGUMENT…)."""
    loaded = ctypes.CDLL(name, use_errno=True)
    for function, (result, *arguments) in functions.items():
        getattr(loaded, function).restype = result
        getattr(loaded, function).argtypes = arguments
    return loaded


verbs = library("libibverbs.so.1", {
    "ibv_get_device_list": (POINTER(c_void_p), POINTER(c_int)),
    "ibv_get_device_name": (c_char_p, c_void_p),
    "ibv_open_device": (c_void_p, c_void_p),
})
xrc_rcv = library("libxrc_rcv.so.1", {
    "xrc_rcv_open_domain": (c_void_p, c_void_p, c_int, c_int),
    "xrc_rcv_close_domain": (c_int, c_void_p),
    "xrc_rcv_create_event_channel": (POINTER(Channel), c_void_p),
    "xrc_rcv_get_event": (c_int, POINTER(Channel), POINTER(Event), c_size_t),
    "xrc_rcv_event_type_str": (c_char_p, c_uint32),
    "xrc_rcv_create_srq": (POINTER(Srq), c_void_p, c_uint32, c_uint32),
    "xrc_rcv_receive": (c_ssize_t, POINTER(Srq), c_void_p, c_size_t, c_int),
    "xrc_rcv_destroy_srq": (c_int, POINTER(Srq)),
    "xrc_rcv_reg_qp": (POINTER(Qp), c_void_p, c_uint32, POINTER(Channel), c_uint64),
    "xrc_rcv_unreg_qp": (c_int, POINTER(Qp)),
})


def made(what, pointer):
    """A pointer that a function returned, unless it is NULL."""
    if not pointer:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
    return pointer


def done(what, error):
    if error:
        sys.exit(f"{what}: {os.strerror(error)}")


def open_device(name):
    count = c_int()
    devices = made("RDMA devices", verbs.ibv_get_device_list(count))
    for device in devices[:count.value]:
        if verbs.ibv_get_device_name(device).decode() == name:
            return made(name, verbs.ibv_open_device(device))
    sys.exit(f"{name}: no such RDMA device")


def messages(srq):
    """The messages that have arrived."""
    buffer = ctypes.create_string_buffer(SIZE)
    while (length := xrc_rcv.xrc_rcv_receive(srq, buffer, SIZE, 0)) >= 0:
        yield buffer.raw[:length]
    if ctypes.get_errno() != errno.EAGAIN:
        sys.exit(f"receive: {os.strerror(ctypes.get_errno())}")


def main():
    try:
        name, path, qp_num = sys.argv[1:]
        qp_num = int(qp_num, 0)
    except ValueError:
        sys.exit(__doc__.partition("\n")[0])
    context = open_device(name)
    with open(path, "rb") as file:
        domain = made("domain", xrc_rcv.xrc_rcv_open_domain(context, file.fileno(), os.O_CREAT))
    srq = made("SRQ", xrc_rcv.xrc_rcv_create_srq(domain, DEPTH, SIZE))
    channel = made("event channel", xrc_rcv.xrc_rcv_create_event_channel(domain))
    qp = made("receive QP", xrc_rcv.xrc_rcv_reg_qp(domain, qp_num, channel, 0))
    print(qp.contents.qp_num, srq.contents.srq_num, sep="\n", flush=True)

    poll = select.poll()
    for fd in channel.contents.fd, srq.contents.fd:
        poll.register(fd, select.POLLIN)
    event = Event(type=COMM_EST)
    while event.type == COMM_EST:
        for message in messages(srq):
            print(message.decode(), flush=True)
        if (channel.contents.fd, select.POLLIN) in poll.poll():
            done("event", xrc_rcv.xrc_rcv_get_event(channel, event, ctypes.sizeof(event)))
            print(xrc_rcv.xrc_rcv_event_type_str(event.type).decode(), flush=True)

    done("unregister", xrc_rcv.xrc_rcv_unreg_qp(qp))
    xrc_rcv.xrc_rcv_destroy_srq(srq)
    done("close the domain", xrc_rcv.xrc_rcv_close_domain(domain))


main()
