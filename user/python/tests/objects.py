# SPDX-License-Identifier: GPL-2.0
"""usage: objects.py DEVICE COMMAND

The package xrc_rcv on a device that sends to itself; COMMAND removes the device. Senders are
pyverbs'. `objects.py DEVICE create FILE PEER` is the process that is killed."""

import asyncio
import errno
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttrEx
from pyverbs.wr import SGE, SendWR

from xrc_rcv import Address, AttrMask, Device, EventType, Lifetime, Mtu, QpAttr, QpState

PATIENCE = int(os.environ.get("patience", 240))
LABEL = 0x123456789abcdef0
READY = (AttrMask.PKEY_INDEX | AttrMask.PORT | AttrMask.ACCESS_FLAGS | AttrMask.AV | AttrMask.PATH_MTU |
         AttrMask.DEST_QPN | AttrMask.RQ_PSN)


class Sender:
    def __init__(self, device):
        port, self.gid = device.query_port(), str(device.query_gid().exploded)
        self.lid, self.context = port.lid, Context(name=device.name)
        pd = PD(self.context)
        self.memory, self.cq = MR(pd, 64, 0), CQ(self.context, 1)
        init = QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, scq=self.cq, pd=pd, comp_mask=e.IBV_QP_INIT_ATTR_PD,
                            cap=QPCap(max_send_wr=1, max_recv_wr=0, max_send_sge=1, max_recv_sge=0))
        self.qp = QP(self.context, init)
        self.qp_num = self.qp.qp_num

    def attr(self, dest_qp_num):
        """pyverbs' attributes of a connection with itself."""
        route = GlobalRoute(dgid=GID(self.gid), sgid_index=0, hop_limit=64)
        attr = QPAttr(port_num=1)
        attr.ah_attr = AHAttr(dlid=self.lid, is_global=0 if self.lid else 1, gr=route, port_num=1)
        attr.dest_qp_num, attr.path_mtu = dest_qp_num, e.IBV_MTU_1024
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        return attr

    def connect(self, qp_num):
        self.qp.to_rts(self.attr(qp_num))

    def send(self, srq_num, message):
        """Returns the status."""
        self.memory.write(message, len(message))
        request = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, send_flags=e.IBV_SEND_SIGNALED,
                         sg=[SGE(self.memory.buf, len(message), self.memory.lkey)])
        request.set_qp_type_xrc(srq_num)
        self.qp.post_send(request)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            count, completions = self.cq.poll()
            if count:
                return completions[0].status
            time.sleep(0.001)
        return None


def connected_to(device, peer):
    """The attributes of a receive QP, ready to receive."""
    lid = device.query_port().lid
    address = Address(port_num=1, dlid=lid, dgid=None if lid else device.query_gid())
    return QpAttr(pkey_index=0, port_num=1, qp_access_flags=0, ah_attr=address, path_mtu=Mtu.MTU_1024, dest_qp_num=peer,
                  rq_psn=0)


def create(name, path, peer):
    """The process that is killed: creates a receive QP, writes its number, and waits."""
    with Device(name) as device:
        qp = device.open_domain(path).alloc(connected_to(device, int(peer)), lifetime=Lifetime.DOMAIN, label=LABEL)
        print(qp.qp_num, flush=True)
        time.sleep(PATIENCE)


def fails(expected, sentence, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except OSError as failure:
        assert failure.errno == expected and sentence in str(failure), failure
        return
    except (OverflowError, TypeError, ValueError) as failure:
        assert expected is type(failure), repr(failure)
        return
    raise AssertionError(f"{call.__qualname__}{arguments} has not failed")


def content(event):
    assert event.count == 1, event
    return event.type, event.qp_num, event.cookie


class Tests:
    def __init__(self, name, remove):
        self.remove, self.device, self.started = remove, Device(name), []
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self.path = file.name
        self.domain = self.device.open_domain(self.path)
        self.srq = self.domain.create_srq(depth=4, size=64)
        self.channel = self.domain.create_event_channel()

    def test_device(self):
        """a device has its name, its port, its GIDs and its capabilities"""
        assert self.device.name in Device.names()
        port, caps = self.device.query_port(1), self.device.query_caps()
        assert port.state == e.IBV_PORT_ACTIVE and port.gid_tbl_len > 0 and port.active_mtu >= Mtu.MTU_1024
        context = Context(name=self.device.name)
        assert str(self.device.query_gid(1, 0).exploded) == context.query_gid(1, 0).gid
        assert port.lid == context.query_port(1).lid
        context.close()
        assert caps.version == 2 and caps.max_qps_per_domain == 16384 and caps.max_qps_per_user == 8192
        assert caps.event_types == frozenset(EventType) - {EventType.OVERRUN}
        assert caps.max_registrations_per_qp == 4096

    def test_message(self):
        """a message arrives, and an event of its QP by asyncio"""
        self.sender = Sender(self.device)
        self.qp = self.domain.alloc(connected_to(self.device, self.sender.qp_num), channel=self.channel, cookie=7,
                                    label=LABEL)
        self.sender.connect(self.qp.qp_num)
        fails(errno.EAGAIN, "no message has arrived", self.srq.receive, 0)
        fails(errno.EAGAIN, "no message has arrived", self.srq.receive, 0.01)
        assert self.channel.read(0) == [] and self.channel.read(0.01) == []

        async def exchange():
            message = asyncio.create_task(anext(self.srq))
            # Both wait at the same time, the second one for another event.
            event, other = (asyncio.create_task(anext(self.channel)) for _ in range(2))
            await asyncio.sleep(0.01)
            assert not event.done() and not message.done()
            assert await asyncio.to_thread(self.sender.send, self.srq.srq_num, "by\0asyncio") == e.IBV_WC_SUCCESS
            assert await asyncio.wait_for(message, PATIENCE) == b"by\0asyncio"
            await asyncio.wait({event, other}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            (record,) = [task.result() for task in (event, other) if task.done()]
            assert record.type is EventType.COMM_EST and record.description == "communication established"
            assert (record.qp_num, record.cookie, record.count) == (self.qp.qp_num, 7, 1)
            assert 0 < record.last_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            (rest,) = [task for task in (event, other) if not task.done()]
            rest.cancel()
            await asyncio.wait({rest})
        asyncio.run(exchange())

        assert self.sender.send(self.srq.srq_num, "by poll") == e.IBV_WC_SUCCESS
        assert self.srq.receive(PATIENCE) == b"by poll"

    def test_query(self):
        """a query returns the attributes that were given, and pyverbs' attributes modify a QP"""
        attr, info = self.domain.query(self.qp.qp_num)
        given = connected_to(self.device, self.sender.qp_num)
        assert (attr.port_num, attr.dest_qp_num, attr.path_mtu, attr.qp_state) == (1, self.sender.qp_num, Mtu.MTU_1024, 2)
        assert (attr.ah_attr.dlid, attr.ah_attr.dgid) == (given.ah_attr.dlid, given.ah_attr.dgid)
        assert (info.state, info.lifetime, info.registrations) == (QpState.RTR, Lifetime.REGISTRATIONS, 1)
        assert (info.label, info.dest_qp_num) == (LABEL, self.sender.qp_num) and self.domain.qps() == [info]
        with self.domain.alloc(self.sender.attr(0x102), READY, channel=self.channel, events=[EventType.QP_GONE]) as qp:
            attr, info = self.domain.query(qp.qp_num)
            assert attr.ah_attr == self.domain.query(self.qp.qp_num)[0].ah_attr
            assert (info.state, attr.dest_qp_num, info.label) == (QpState.RTR, 0x102, 0)
            broken = QPAttr(qp_state=e.IBV_QPS_ERR)
            self.domain.modify(qp.qp_num, broken, AttrMask.STATE)
            assert self.domain.query(qp.qp_num)[1].state is QpState.ERR
            assert self.channel.read(0) == []    # none but QP_GONE
            self.domain.destroy(qp.qp_num, force=True)
            (gone,) = self.channel.read(PATIENCE)
            assert (gone.type, gone.qp_num, gone.cookie) == (EventType.QP_GONE, qp.qp_num, 0)

    def wait_for_events(self):
        """Returns when each event of before has happened: an adapter reports them in order."""
        with self.domain.alloc(connected_to(self.device, 0x102), channel=self.channel) as qp:
            self.domain.modify(qp.qp_num, QpAttr(qp_state=QpState.ERR))
            (event,) = self.channel.read(PATIENCE)
            assert (event.type, event.qp_num) == (EventType.QP_LAST_WQE_REACHED, qp.qp_num)

    def test_killed(self):
        """a receive QP receives when its creator was killed, and a successor adopts it"""
        sender = Sender(self.device)
        arguments = [sys.executable, __file__, self.device.name, "create", self.path, str(sender.qp_num)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as creator:
            qp_num = int(creator.stdout.readline())
            creator.kill()
        assert creator.returncode == -9
        self.qp.unregister()
        sender.connect(qp_num)
        assert sender.send(self.srq.srq_num, "to the successor") == e.IBV_WC_SUCCESS
        assert self.srq.receive(PATIENCE) == b"to the successor"
        self.wait_for_events()
        # Its event was read by no one, and is not that of a new registration.
        (adopted,) = self.domain.adopt(channel=self.channel, cookie=9)
        assert adopted.error is None and adopted.registration.qp_num == adopted.info.qp_num == qp_num
        assert (adopted.info.label, adopted.info.dest_qp_num) == (LABEL, sender.qp_num)
        assert (adopted.info.registrations, adopted.info.lifetime) == (1, Lifetime.DOMAIN)
        (refused,) = self.domain.adopt(channel=self.channel, events=[8])
        assert refused.registration is None and refused.error.errno == errno.EINVAL and refused.info.qp_num == qp_num
        self.domain.modify(qp_num, QpAttr(qp_state=QpState.ERR))
        (event,) = self.channel.read(PATIENCE)
        assert (event.type, event.cookie) == (EventType.QP_LAST_WQE_REACHED, 9)
        fails(errno.EBUSY, "a registration keeps the QP", self.domain.destroy, qp_num)
        adopted.registration.unregister()
        self.domain.destroy(qp_num)
        fails(errno.EINVAL, "no receive QP of this number", self.domain.destroy, qp_num)
        assert self.domain.qps() == []
        sender.context.close()

    def test_all(self):
        """a channel of all QPs reports each with its label, and keeps none if it observes"""
        old = self.domain.alloc(lifetime=Lifetime.DOMAIN, label=LABEL)
        observer = self.domain.create_event_channel_of_all(observe=True)
        assert self.registrations() == 2
        fails(errno.EINVAL, "one of all QPs that keeps none", self.domain.alloc, channel=observer)

        async def follow():
            added = asyncio.create_task(anext(observer))
            await asyncio.sleep(0.01)
            assert not added.done()
            qp = self.device.open_domain(self.path).alloc(label=77)
            assert content(await asyncio.wait_for(added, PATIENCE)) == (EventType.QP_ADDED, qp.qp_num, 77)
            qp.unregister()    # and is destroyed: the observer does not keep it
            assert content(await asyncio.wait_for(anext(observer), PATIENCE)) == (EventType.QP_GONE, qp.qp_num, 77)
        asyncio.run(follow())
        assert self.registrations() == 2 and observer.read(0) == []
        old.unregister()
        self.domain.destroy(old.qp_num)
        # The QP that the channel found has events, and no QP_ADDED.
        assert [*map(content, observer.read(PATIENCE))] == [(EventType.QP_GONE, old.qp_num, LABEL)]
        observer.close()

    def test_all_kept(self):
        """a channel of all QPs keeps each, and has the label of those that it has created"""
        keeper = self.domain.create_event_channel_of_all()
        with self.domain.alloc() as other, self.domain.alloc(channel=keeper, cookie=9, label=78) as own:
            numbers = sorted([other.qp_num, own.qp_num])
        # Both registrations have ended, that of `own` only here: the channel keeps the QPs.
        assert [info.qp_num for info in self.domain.qps()] == numbers
        assert sorted(map(content, keeper.read(PATIENCE))) == sorted(
            [(EventType.QP_ADDED, other.qp_num, 0), (EventType.QP_ADDED, own.qp_num, 78)])
        keeper.close()
        assert self.domain.qps() == []

    def test_errors(self):
        """calls that are wrong raise their errno, with its cause"""
        domain, other = self.domain, self.device.open_domain()
        fails(errno.ENODEV, "no such RDMA device: 'nodevice'", Device, "nodevice")
        fails(errno.ENOENT, "/nofile", self.device.open_domain, "/nofile")
        fails(errno.EINVAL, "it has a domain", self.device.open_domain, self.path, exclusive=True)
        with tempfile.NamedTemporaryFile() as file:
            fails(errno.EAGAIN, "the file has no domain", self.device.open_domain, file.fileno(), create=False)
        fails(errno.EINVAL, "depth or size is 0", domain.create_srq, 0, 64)
        fails(errno.EINVAL, "missing or wrong", domain.alloc, QpAttr(dest_qp_num=1), channel=self.channel)
        fails(errno.EINVAL, "another domain", other.alloc, channel=self.channel)
        fails(errno.EINVAL, "no receive QP of this number", domain.register, 0xffffff, channel=self.channel)
        fails(errno.EINVAL, "no receive QP of this number", domain.query, 0xffffff)
        fails(errno.EINVAL, "no such transition", domain.modify, 0xffffff, QpAttr(qp_state=QpState.ERR))
        with domain.alloc() as qp:
            fails(errno.EINVAL, "force is needed", domain.destroy, qp.qp_num)
        fails(OverflowError, "", domain.register, -1)
        fails(OverflowError, "", domain.register, 1 << 32)
        fails(OverflowError, "", domain.alloc, cookie=1 << 64)
        fails(OverflowError, "", domain.alloc, QpAttr(port_num=256))
        fails(OverflowError, "", domain.alloc, events=[64])
        fails(TypeError, "", domain.modify, 1, QPAttr())
        fails(TypeError, "", domain.modify, 1, None)
        other.close()
        other.close()
        fails(ValueError, "", other.qps)

    def registrations(self):
        (info,) = self.domain.qps()
        return info.registrations

    def test_closing(self):
        """an object is closed with the last reference to it, and by no forked child"""
        self.qp = self.domain.alloc(lifetime=Lifetime.DOMAIN)
        with self.domain.create_event_channel() as channel:
            kept = self.domain.register(self.qp.qp_num, channel=channel)
            assert self.registrations() == 2
        assert self.registrations() == 1
        fails(ValueError, "", channel.fileno)
        kept.unregister()
        pid = os.fork()
        if not pid:
            del self.qp
            os._exit(0)
        os.waitpid(pid, 0)
        assert self.registrations() == 1
        # The registration keeps channel, domain and device, which nothing else refers to.
        one = Device(self.device.name).open_domain(self.path)
        kept = one.register(self.qp.qp_num, channel=one.create_event_channel())
        del one
        gc.collect()
        assert self.registrations() == 2 and kept.domain.query(self.qp.qp_num)[1].registrations == 2
        del kept
        assert self.registrations() == 1

    def test_order(self):
        """objects that are closed together are closed in the order that C needs"""
        qp_num = self.qp.qp_num
        # A cycle, of which the collector may finalize any object first.
        for _ in range(8):
            device = Device(self.device.name)
            domain = device.open_domain(self.path)
            objects = [device, domain, domain.create_srq(1, 1), domain.register(qp_num), domain.create_event_channel()]
            objects += [objects, domain.register(qp_num, channel=objects[-1])]
            assert self.registrations() == 3
            del device, domain, objects
            gc.collect()
            assert self.registrations() == 1
        with Device(self.device.name) as device:
            domain = device.open_domain(self.path)
            opened = [domain, domain.create_srq(1, 1), domain.register(qp_num)]
        assert self.registrations() == 1
        for closed in opened:
            closed.close()
        self.qp.unregister()
        self.domain.destroy(qp_num)

    def test_closed_while_waiting(self):
        """a stream ends when another task closes its channel"""
        async def close():
            channel = self.domain.create_event_channel()
            waiting = [asyncio.create_task(self.collect(channel)) for _ in range(2)]
            await asyncio.sleep(0.01)
            channel.close()
            assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE) == [[], []]
        asyncio.run(close())

    @staticmethod
    async def collect(channel):
        return [event async for event in channel]

    def test_removed(self):
        """the stream ends when the device is removed, and so does the program of the README"""
        self.sender.context.close()
        qps = [self.domain.alloc(channel=self.channel, cookie=cookie) for cookie in (1, 2)]
        with open(f"{os.path.dirname(__file__)}/../README.md", encoding="utf-8") as file:
            (program,) = re.findall("```python\n(.*?)```", file.read(), re.S)
        readme = subprocess.Popen([sys.executable, "-c", program, self.device.name, self.path], stdout=subprocess.PIPE,
                                  text=True)
        self.started.append(readme)
        assert re.fullmatch(r"senders name SRQ \d+\n", readme.stdout.readline())
        states = [readme.stdout.readline() for _ in qps]
        assert states == [f"QP {qp.qp_num}: RESET\n" for qp in qps], states

        async def removed():
            waiting = asyncio.create_task(self.collect(self.channel))
            await asyncio.sleep(0.01)
            process = await asyncio.create_subprocess_exec(*self.remove, stdout=sys.stderr)
            assert await process.wait() == 0
            return await asyncio.wait_for(waiting, PATIENCE)
        events = asyncio.run(removed())
        said = readme.communicate(timeout=PATIENCE)[0]
        assert sorted(said.splitlines()) == sorted(f"QP {qp.qp_num}: receive QP destroyed" for qp in qps), said
        assert readme.returncode == 0
        assert [event.type for event in events] == [EventType.QP_GONE] * 2
        assert {(event.qp_num, event.cookie) for event in events} == {(qp.qp_num, 1 + n) for n, qp in enumerate(qps)}
        fails(errno.EIO, "removed", self.channel.read)
        fails(errno.EIO, "removed", self.srq.receive, PATIENCE)
        fails(errno.EIO, "removed", self.domain.qps)
        fails(errno.EIO, "removed", self.domain.register, 1)
        self.device.close()    # and all of its objects
        fails(ValueError, "", self.domain.qps)


def main():
    tests = Tests(sys.argv[1], sys.argv[2:])
    names = [name for name in vars(Tests) if name.startswith("test_")]
    print(f"KTAP version 1\n1..{len(names)}", flush=True)
    failed = 0
    for number, name in enumerate(names, 1):
        test, result = getattr(tests, name), "ok"
        try:
            test()
        except Exception:
            print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="")
            failed, result = 1, "not ok"
        print(f"{result} {number} {test.__doc__}", flush=True)
    for process in tests.started:
        process.kill()
    sys.exit(failed)


if sys.argv[2] == "create":
    create(sys.argv[1], *sys.argv[3:])
else:
    main()
