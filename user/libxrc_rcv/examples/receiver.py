#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""usage: receiver.py DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT

As receiver.c, without a C compiler: prints the messages to its SRQ, and the events of the receive
QPs that it is registered with.
"""

import ctypes
import errno
import os
import select
import socket
import sys
from ctypes import (POINTER, Structure, c_char_p, c_int, c_size_t, c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p)

DEPTH, SIZE = 16, 64
COMM_EST = 4            # of enum ibv_event_type
MTU_1024 = 3            # of enum ibv_mtu
LIFETIME_DOMAIN = 1     # of enum xrc_rcv_alloc_flags
# Of enum ibv_qp_attr_mask: PKEY_INDEX, PORT, ACCESS_FLAGS, AV, PATH_MTU, DEST_QPN and RQ_PSN.
READY_TO_RECEIVE = 1 << 4 | 1 << 5 | 1 << 3 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12


class Channel(Structure):
    _fields_ = [("context", c_void_p), ("fd", c_int)]


class Qp(Structure):
    _fields_ = [("context", c_void_p), ("xrcd", c_void_p), ("qp_num", c_uint32)]


class Srq(Structure):
    _fields_ = [("xrcd", c_void_p), ("srq_num", c_uint32), ("fd", c_int)]


class Event(Structure):
    _fields_ = [("cookie", c_uint64), ("last_ns", c_uint64), ("qp_num", c_uint32), ("type", c_uint32),
                ("count", c_uint32), ("reserved", c_uint32)]


class InitAttr(Structure):
    _fields_ = [("comp_mask", c_uint32), ("flags", c_uint32), ("channel", POINTER(Channel)), ("cookie", c_uint64),
                ("events", c_uint64), ("label", c_uint64)]


class Address(Structure):
    _fields_ = [("dgid", c_uint64 * 2), ("flow_label", c_uint32), ("sgid_index", c_uint8), ("hop_limit", c_uint8),
                ("traffic_class", c_uint8), ("dlid", c_uint16), ("sl", c_uint8), ("src_path_bits", c_uint8),
                ("static_rate", c_uint8), ("is_global", c_uint8), ("port_num", c_uint8)]


class QpAttr(Structure):
    _fields_ = [(name, c_uint32) for name in ("qp_state", "cur_qp_state", "path_mtu", "path_mig_state", "qkey",
                                              "rq_psn", "sq_psn", "dest_qp_num", "qp_access_flags")]
    _fields_ += [("cap", c_uint32 * 5), ("ah_attr", Address), ("alt_ah_attr", Address), ("pkey_index", c_uint16),
                 ("alt_pkey_index", c_uint16), ("not_used", c_uint8 * 5), ("port_num", c_uint8),
                 ("nor_these", c_uint8 * 5), ("rate_limit", c_uint32)]


class PortAttr(Structure):
    _fields_ = [("before", c_uint32 * 8), ("pkey_tbl_len", c_uint16), ("lid", c_uint16), ("after", c_uint8 * 64)]


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
    "ibv_query_port": (c_int, c_void_p, c_uint8, POINTER(PortAttr)),
    "ibv_query_gid": (c_int, c_void_p, c_uint8, c_int, c_void_p),
})
xrc_rcv = library("libxrc_rcv.so.1", {
    "xrc_rcv_open_domain": (c_void_p, c_void_p, c_int, c_int),
    "xrc_rcv_create_event_channel": (POINTER(Channel), c_void_p),
    "xrc_rcv_get_event": (c_int, POINTER(Channel), POINTER(Event), c_size_t),
    "xrc_rcv_event_type_str": (c_char_p, c_uint32),
    "xrc_rcv_create_srq": (POINTER(Srq), c_void_p, c_uint32, c_uint32),
    "xrc_rcv_receive": (c_ssize_t, POINTER(Srq), c_void_p, c_size_t, c_int),
    "xrc_rcv_alloc_qp": (POINTER(Qp), c_void_p, POINTER(InitAttr), POINTER(QpAttr), c_int),
    "xrc_rcv_reg_qp": (POINTER(Qp), c_void_p, c_uint32, POINTER(Channel), c_uint64),
    "xrc_rcv_unreg_qp": (c_int, POINTER(Qp)),
    "xrc_rcv_destroy_qp": (c_int, c_void_p, c_uint32, c_uint32),
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


class Receiver:
    def __init__(self, name, port, gid_index, path):
        self.port, self.gid_index, self.context = port, gid_index, open_device(name)
        with open(path, "rb") as file:
            self.domain = made("domain", xrc_rcv.xrc_rcv_open_domain(self.context, file.fileno(), os.O_CREAT))
        self.srq = made("SRQ", xrc_rcv.xrc_rcv_create_srq(self.domain, DEPTH, SIZE))
        self.channel = made("event channel", xrc_rcv.xrc_rcv_create_event_channel(self.domain))
        self.qps, self.senders = {}, []

    def messages(self):
        """The messages that have arrived."""
        buffer = ctypes.create_string_buffer(SIZE)
        while (length := xrc_rcv.xrc_rcv_receive(self.srq, buffer, SIZE, 0)) >= 0:
            yield buffer.raw[:length].rstrip(b"\0").decode()
        if ctypes.get_errno() != errno.EAGAIN:
            sys.exit(f"receive: {os.strerror(ctypes.get_errno())}")

    def create(self, lid, gid, peer):
        """Creates a receive QP, which is ready to receive and stays without this process."""
        attr = QpAttr(path_mtu=MTU_1024, dest_qp_num=peer, port_num=self.port)
        attr.ah_attr = Address(sgid_index=self.gid_index, hop_limit=64, dlid=lid, is_global=not lid, port_num=self.port)
        attr.ah_attr.dgid[:] = memoryview(socket.inet_pton(socket.AF_INET6, gid)).cast("Q")
        init = InitAttr(flags=LIFETIME_DOMAIN, channel=self.channel)
        return xrc_rcv.xrc_rcv_alloc_qp(self.domain, init, attr, READY_TO_RECEIVE)

    def join(self, sender):
        """Registers with the sender's receive QP, or creates one, and answers the sender."""
        lid, gid, peer, qp_num = sender.makefile().readline().split()
        if int(qp_num):
            qp = xrc_rcv.xrc_rcv_reg_qp(self.domain, int(qp_num), self.channel, 0)
        else:
            qp = self.create(int(lid), gid, int(peer))
        if not qp:
            print(f"receive QP {qp_num}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
            return
        self.qps[qp.contents.qp_num] = qp
        local, gid = PortAttr(), ctypes.create_string_buffer(16)
        done("port", verbs.ibv_query_port(self.context, self.port, local) or
             verbs.ibv_query_gid(self.context, self.port, self.gid_index, gid))
        sender.sendall(f"{local.lid} {socket.inet_ntop(socket.AF_INET6, gid.raw)} {qp.contents.qp_num}"
                       f" {self.srq.contents.srq_num}\n".encode())
        self.senders.append(sender)    # open, so that the sender sees the end of this process
        print(f"QP {qp.contents.qp_num}: {'joined' if int(qp_num) else 'created'}", flush=True)

    def event(self):
        """Prints an event, and ends the registration with a QP whose connection is broken."""
        event = Event()
        done("event", xrc_rcv.xrc_rcv_get_event(self.channel, event, ctypes.sizeof(event)))
        print(f"QP {event.qp_num}: {xrc_rcv.xrc_rcv_event_type_str(event.type).decode()}", flush=True)
        if event.type != COMM_EST and event.qp_num in self.qps:
            xrc_rcv.xrc_rcv_unreg_qp(self.qps.pop(event.qp_num))
            # It fails but for the last process that has unregistered.
            xrc_rcv.xrc_rcv_destroy_qp(self.domain, event.qp_num, 0)

    def run(self, tcp_port):
        listener = socket.create_server(("", tcp_port), family=socket.AF_INET6, dualstack_ipv6=True)
        fds = listener.fileno(), self.srq.contents.fd, self.channel.contents.fd
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        print("ready", flush=True)
        while True:
            # The descriptor is readable by the next message after there was none.
            for message in self.messages():
                print(message, flush=True)
            ready = dict(poll.poll())
            if fds[0] in ready:
                try:
                    self.join(listener.accept()[0])
                except (OSError, ValueError) as error:
                    print(f"a sender: {error}", file=sys.stderr)
            if fds[2] in ready:
                self.event()


def main():
    try:
        device, path, tcp_port = sys.argv[1:]
        name, port, gid_index = (device.split("/") + ["1", "0"][device.count("/"):])
        arguments, tcp_port = (name, int(port), int(gid_index), path), int(tcp_port)
    except ValueError:
        print(__doc__.partition("\n")[0], file=sys.stderr)
        sys.exit(2)
    Receiver(*arguments).run(tcp_port)


main()
