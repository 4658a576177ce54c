#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""usage: sender.py DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT...

As sender.c, by pyverbs of rdma-core: sends each line of the standard input to the SRQs of all
receivers on HOST, by one connection. The line "break" is sent to an SRQ that does not exist.
"""

import ctypes
import socket
import sys
from ipaddress import IPv6Address

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttrEx
from pyverbs.wr import SGE, SendWR

SIZE, NO_SRQ = 64, 0xffffff
status_str = ctypes.CDLL("libibverbs.so.1").ibv_wc_status_str
status_str.restype = ctypes.c_char_p


class Sender:
    """A QP that sends to the SRQs of a domain."""

    def __init__(self, context, port, gid_index):
        self.context, self.port, self.gid_index = context, port, gid_index
        pd = PD(context)
        self.memory = MR(pd, SIZE, 0)
        self.channel = CompChannel(context)
        self.cq = CQ(context, 1, None, self.channel)
        self.qp = QP(context, QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, scq=self.cq, pd=pd, comp_mask=e.IBV_QP_INIT_ATTR_PD,
                                           cap=QPCap(max_send_wr=1, max_recv_wr=0, max_send_sge=1, max_recv_sge=0)))
        self.receive_qp = 0

    def address(self):
        """The line for a receiver."""
        lid = self.context.query_port(self.port).lid
        return f"{lid} {self.context.query_gid(self.port, self.gid_index).gid} {self.qp.qp_num} {self.receive_qp}\n"

    def connect(self, lid, gid, qp_num):
        """Takes the QP to RTS, connected to a receive QP."""
        route = GlobalRoute(dgid=GID(IPv6Address(gid).exploded), sgid_index=self.gid_index, hop_limit=64)
        # RoCE has no LIDs.
        address = AHAttr(dlid=lid, is_global=0 if lid else 1, gr=route, port_num=self.port)
        attr = QPAttr(port_num=self.port)
        attr.ah_attr, attr.dest_qp_num, attr.path_mtu = address, qp_num, e.IBV_MTU_1024
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        self.qp.to_rts(attr)
        self.receive_qp = qp_num

    def send(self, srq_num, message):
        """Returns the status of the request."""
        self.memory.write(message, len(message))
        request = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(self.memory.buf, len(message), self.memory.lkey)],
                         send_flags=e.IBV_SEND_SIGNALED)
        request.set_qp_type_xrc(srq_num)
        self.cq.req_notify()
        self.qp.post_send(request)
        self.channel.get_cq_event(self.cq)
        return self.cq.poll()[1][0].status


class Receiver:
    """A receiving process; stream and SRQ are of the process that had the port last."""

    def __init__(self, host, tcp_port):
        self.host, self.tcp_port, self.stream, self.srq_num = host, tcp_port, None, 0

    def has_ended(self):
        """The process that was asked has ended, and its SRQ as well: TCP says so."""
        try:
            return not self.stream or self.stream.recv(1, socket.MSG_DONTWAIT) is not None
        except BlockingIOError:
            return False
        except OSError:
            return True

    def ask(self, sender):
        """Asks for the SRQ, and the first one for a receive QP."""
        self.stream = socket.create_connection((self.host, self.tcp_port))
        self.stream.sendall(sender.address().encode())
        lid, gid, qp_num, srq_num = self.stream.makefile().readline().split()
        if not sender.receive_qp:
            sender.connect(int(lid), gid, int(qp_num))
        self.srq_num = int(srq_num)
        print(f"{self.tcp_port}: QP {qp_num}, SRQ {srq_num}", flush=True)


def main():
    try:
        device, host, first, *more = sys.argv[1:]
        name, port, gid_index = device.split("/") + ["1", "0"][device.count("/"):]
        port, gid_index = int(port), int(gid_index)
    except ValueError:
        print(__doc__.partition("\n")[0], file=sys.stderr)
        sys.exit(2)
    sender = Sender(Context(name=name), port, gid_index)
    receivers = [Receiver(host, tcp_port) for tcp_port in (first, *more)]
    for line in sys.stdin:
        message = line.rstrip("\n")[:SIZE]
        for receiver in receivers:
            try:
                if receiver.has_ended():
                    receiver.ask(sender)
            except (OSError, ValueError):
                print(f"{receiver.tcp_port}: no receiver", flush=True)
                continue
            status = sender.send(NO_SRQ if message == "break" else receiver.srq_num, message)
            print(f"{receiver.tcp_port}: {message}: {status_str(status).decode()}", flush=True)
            if status:
                sys.exit(1)    # the QP is in ERR, and ends with this process


try:
    main()
except PyverbsError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
