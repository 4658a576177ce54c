# SPDX-License-Identifier: GPL-2.0
"""XRC and RC connections of one process from left to right, over the distribution's pyverbs: for
the Python tests of cards."""

import os
import select
import sys
import tempfile
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.wr import SGE
from pyverbs.xrcd import XRCD, XRCDInitAttr

from card import LEFT, PATIENCE, RIGHT

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


class End:
    """The objects of a process at a node: a context, a PD, a CQ and a region."""

    def __init__(self, node):
        self.node = node
        self.context = Context(name=node.device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 32)
        self.region = MR(self.pd, 4096, EVERY_ACCESS)

    def attributes(self, remote_qpn=0, **more):
        """Attributes of a QP here whose peer is at the other node."""
        attributes = QPAttr(port_num=self.node.port)
        attributes.pkey_index = 0
        attributes.qp_access_flags = EVERY_ACCESS
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = remote_qpn
        attributes.ah_attr = AHAttr(dlid=self.node.peer.lid, port_num=self.node.port)
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout = 12
        attributes.retry_cnt = attributes.rnr_retry = 2
        for name, value in more.items():
            setattr(attributes, name, value)
        return attributes

    def piece(self, length=64, offset=0):
        """A piece of its region, as requests name it."""
        return SGE(self.region.buf + offset, length, self.region.lkey)


class Connection:
    """The ends of a connection, of which the right one receives."""

    def __init__(self):
        self.left, self.right = End(LEFT), End(RIGHT)

    def event(self):
        """The type of the next asynchronous event at either end."""
        # The library continues to wait after a signal, so the wait is for its file.
        files = {async_fd(end.context): end.context for end in (self.left, self.right)}
        ready = select.select(list(files), [], [], PATIENCE)[0]
        if not ready:
            raise TimeoutError("no event")
        event = files[ready[0]].get_async_event()
        event.ack()
        return event.event_type

    def expect(self, *kinds):
        """Exactly these events come. Those of ports and QPs take different ways, so in any
        order."""
        got = [self.event() for _ in kinds]
        if sorted(got) != sorted(kinds):
            raise AssertionError(f"events {got} came, not {list(kinds)}")

    def poll(self, count):
        """So many completions of both ends, or those that are there."""
        found = self.left.cq.poll(count)[1]
        return found + (self.right.cq.poll(count - len(found))[1] if len(found) < count else [])

    def completions(self, count):
        """Polls until `count` completions are there."""
        end = time.monotonic() + PATIENCE
        found = []
        while len(found) < count:
            found += self.poll(count - len(found))
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
    """An initiator left, a target right, and an SRQ of the target's domain."""

    def __init__(self):
        super().__init__()
        self.file = tempfile.NamedTemporaryFile()
        right = self.right
        self.domain = XRCD(right.context, XRCDInitAttr(
            e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS, os.O_CREAT, self.file.fileno()))
        attributes = SrqInitAttrEx(max_wr=16)
        attributes.srq_type = e.IBV_SRQT_XRC
        attributes.pd = right.pd
        attributes.xrcd = self.domain
        attributes.cq = right.cq
        attributes.comp_mask = (e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD
                                | e.IBV_SRQ_INIT_ATTR_CQ | e.IBV_SRQ_INIT_ATTR_XRCD)
        self.srq = SRQ(right.context, attributes)
        self.target = QP(right.context, QPInitAttrEx(
            qp_type=e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=self.domain))
        self.initiator = QP(self.left.context, QPInitAttrEx(
            qp_type=e.IBV_QPT_XRC_SEND, comp_mask=e.IBV_QP_INIT_ATTR_PD, pd=self.left.pd, scq=self.left.cq,
            cap=QPCap(max_send_wr=16, max_recv_wr=0, max_recv_sge=0)))

    def connect(self):
        self.target.to_rtr(self.right.attributes(self.initiator.qp_num))
        self.initiator.to_rts(self.left.attributes(self.target.qp_num))


class Rc(Connection):
    """A QP left and one right that talk to each other."""

    def __init__(self):
        super().__init__()
        self.first, self.second = rc_qp(self.left), rc_qp(self.right)

    def connect(self, **more):
        self.first.to_rts(self.left.attributes(self.second.qp_num, **more))
        self.second.to_rts(self.right.attributes(self.first.qp_num, **more))


def with_grh(end, of):
    """An address like that of the peer of `end`, with a GRH to the GID of the end `of`."""
    route = GlobalRoute(dgid=of.context.query_gid(of.node.port, 0), sgid_index=0)
    return AHAttr(dlid=end.node.peer.lid, port_num=end.node.port, is_global=1, gr=route)


def rc_qp(end):
    return QP(end.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=end.cq, rcq=end.cq,
                                 cap=QPCap(max_send_wr=16, max_recv_wr=16)))


if __name__ == "__main__":
    sys.exit("a module of the tests beside it")
