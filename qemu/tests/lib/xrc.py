# SPDX-License-Identifier: GPL-2.0
"""XRC and RC connections of one process from port to port of the card, over the distribution's
pyverbs: for the Python tests beside this file."""

import os
import sys
import tempfile

import pyverbs.enums as e
from pyverbs.addr import AHAttr
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.xrcd import XRCD, XRCDInitAttr

from card import HCA, PATIENCE, PORTS, peer_of

EVERY_ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
                | e.IBV_ACCESS_REMOTE_ATOMIC)


class Ktap:
    """Results as ktap.sh prints them."""

    def __init__(self, name, planned):
        self.number = self.failed = 0
        self.planned = planned
        print(f"KTAP version 1\n# {name}\n1..{planned}", flush=True)

    def run(self, description, function, *arguments):
        self.number += 1
        try:
            function(*arguments)
            print(f"ok {self.number} {description}", flush=True)
        except Exception as error:  # of any kind: it fails this result
            self.failed += 1
            print(f"# {type(error).__name__}: {error}")
            print(f"not ok {self.number} {description}", flush=True)

    def end(self):
        passed = self.number - self.failed
        print(f"# Totals: pass:{passed} fail:{self.failed} skip:0", flush=True)
        # The interpreter ends without destroying objects, whose order would matter.
        os._exit(1 if self.failed or self.number != self.planned else 0)


def port_lid(context, port):
    return context.query_port(port).lid


class Connection:
    """The part that both kinds of connection share: a context, a PD, a CQ, a region, and how a QP
    gets from RESET to RTS."""

    def __init__(self):
        self.context = Context(name=HCA)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 32)
        self.region = MR(self.pd, 4096, EVERY_ACCESS)

    def attributes(self, port, remote_qpn=0, **more):
        """Attributes of a QP at `port` whose peer is at the other port."""
        address = AHAttr(dlid=port_lid(self.context, peer_of(port)), port_num=port)
        attributes = QPAttr(port_num=port)
        attributes.pkey_index = 0
        attributes.qp_access_flags = EVERY_ACCESS
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = remote_qpn
        attributes.ah_attr = address
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout = 12
        attributes.retry_cnt = attributes.rnr_retry = 2
        for name, value in more.items():
            setattr(attributes, name, value)
        return attributes

    def event(self):
        """The next asynchronous event's type."""
        # The library continues to wait after a signal, so the wait is for its file.
        import select
        if not select.select([async_fd(self.context)], [], [], PATIENCE)[0]:
            raise TimeoutError("no event")
        event = self.context.get_async_event()
        event.ack()
        return event.event_type

    def expect(self, *kinds):
        """Exactly these events come. Those of ports and QPs take different ways, so in any
        order."""
        got = [self.event() for _ in kinds]
        if sorted(got) != sorted(kinds):
            raise AssertionError(f"events {got} came, not {list(kinds)}")

    def completions(self, count):
        """Polls until `count` completions are there."""
        import time
        end = time.monotonic() + PATIENCE
        found = []
        while len(found) < count:
            found += self.cq.poll(count - len(found))[1]
            if time.monotonic() > end:
                raise TimeoutError(f"{len(found)} of {count} completions")
        return found


def async_fd(context):
    """The context's asynchronous event file, which pyverbs does not show: the first that the
    library opened after the command file."""
    for entry in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            if int(entry) > context.cmd_fd and "infinibandevent" in os.readlink(f"/proc/self/fd/{entry}"):
                return int(entry)
        except OSError:
            pass
    raise LookupError("no asynchronous event file")


class Xrc(Connection):
    """An initiator at the first port, a target at the second, and an SRQ of the target's domain."""

    def __init__(self):
        super().__init__()
        self.file = tempfile.NamedTemporaryFile()
        self.domain = XRCD(self.context, XRCDInitAttr(
            e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS, os.O_CREAT, self.file.fileno()))
        attributes = SrqInitAttrEx(max_wr=16)
        attributes.srq_type = e.IBV_SRQT_XRC
        attributes.pd = self.pd
        attributes.xrcd = self.domain
        attributes.cq = self.cq
        attributes.comp_mask = (e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
                                | e.IBV_SRQ_INIT_ATTR_CQ | e.IBV_SRQ_INIT_ATTR_XRCD)
        self.srq = SRQ(self.context, attributes)
        self.target = QP(self.context, QPInitAttrEx(
            qp_type=e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=self.domain))
        self.initiator = QP(self.context, QPInitAttrEx(
            qp_type=e.IBV_QPT_XRC_SEND, comp_mask=e.IBV_QP_INIT_ATTR_PD, pd=self.pd, scq=self.cq,
            cap=QPCap(max_send_wr=16, max_recv_wr=0, max_recv_sge=0)))

    def connect(self):
        self.target.to_rtr(self.attributes(PORTS[1], self.initiator.qp_num))
        self.initiator.to_rts(self.attributes(PORTS[0], self.target.qp_num))


class Rc(Connection):
    """A QP at the first port and one at the second that talk to each other."""

    def __init__(self):
        super().__init__()
        def make():
            return QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq,
                                          cap=QPCap(max_send_wr=16, max_recv_wr=16)))
        self.first, self.second = make(), make()

    def connect(self, **more):
        self.first.to_rts(self.attributes(PORTS[0], self.second.qp_num, **more))
        self.second.to_rts(self.attributes(PORTS[1], self.first.qp_num, **more))


if __name__ == "__main__":
    sys.exit("a module of the tests beside it")
