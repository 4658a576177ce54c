# SPDX-License-Identifier: GPL-2.0
"""In the guest: of each violation that the modelled card counts, a fault of its driver that causes
it, and that nothing else is counted. The driver has all of them, and its parameter chooses one.
For each-fault of a card, whose arguments are the directory of the faults, a patch each, the two
modules, and some faults."""

import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

import pyverbs.enums as e
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SendWR

from card import CARD, LEFT, NODES, PATIENCE, RIGHT, adapters, ctl, ctl_each, modelled_only
from mad import OUI, VENDOR, Agent
from xrc import End, Ktap, Rc, Xrc, rc_qp, with_grh

PARAMETER = pathlib.Path(f"/sys/module/{CARD}_core/parameters/fault")
LENGTH = 64
# IB_USER_VERBS_CMD_ATTACH_MCAST, of the kernel's ib_user_verbs.h
ATTACH_MCAST = 30


def violations():
    counts = {}
    for status in ctl_each("status"):
        for name, seen in status["violations"].items():
            counts[name] = counts.get(name, 0) + seen["count"]
    return counts


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def active():
    states = [pathlib.Path(node.sysfs, "state") for node in NODES]
    return all(state.exists() and state.read_text().startswith("4") for state in states)


def bound():
    return any(pathlib.Path(f"/sys/bus/pci/drivers/{CARD}_core").glob("*:*"))


def unload():
    for module in f"{CARD}_ib", f"{CARD}_core":
        if os.path.exists(f"/sys/module/{module}"):
            subprocess.run(["rmmod", module], check=True)


def load(fault):
    for module, *parameters in (sys.argv[2], f"fault={fault}"), (sys.argv[3],):
        subprocess.run(["insmod", module, *parameters], check=True)


# The acts that make the faults happen. Each runs in a process of its own, whose end destroys its
# objects.
def nothing():
    pass


def rc_connects():
    Rc().connect()


def xrc_connects():
    Xrc().connect()


def srq_is_armed():
    # The SRQ ends with its connection.
    connection = Xrc()
    connection.srq.modify(SrqAttr(srq_limit=1), e.IBV_SRQ_LIMIT)


def cq_goes_after_its_qp():
    end = Rc().left
    qp = rc_qp(end)
    qp.to_init(end.attributes())
    qp.close()
    end.cq.close()


def qp_in_reset_goes():
    Rc().first.close()


def rc_of_srq_starts():
    end = End(LEFT)
    srq = SRQ(end.pd, SrqInitAttr(SrqAttr(max_wr=16, max_sge=1)))
    qp = QP(end.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=end.cq, rcq=end.cq, srq=srq,
                               cap=QPCap(max_send_wr=16)))
    qp.to_init(end.attributes())


def ud_starts():
    end = End(LEFT)
    # The constructor's attributes take it to RTS.
    QP(end.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=end.cq, rcq=end.cq,
                          cap=QPCap(max_send_wr=16, max_recv_wr=16)), end.attributes())


def ud_joins_a_group():
    end = End(LEFT)
    QP(end.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=end.cq, rcq=end.cq,
                          cap=QPCap(max_send_wr=16, max_recv_wr=16)), end.attributes())
    # The kernel takes it out of the group before it destroys it. pyverbs has no ibv_attach_mcast(),
    # nor the handle of a QP; handles of a process are its smallest numbers, and others than that
    # of a QP are refused.
    group = bytes.fromhex("ff12601bffff00000000000000010001")
    for handle in range(16):
        try:
            os.write(end.context.cmd_fd, struct.pack("=IHH16sIHH", ATTACH_MCAST, 8, 0, group, handle, 0xc001, 0))
        except OSError:
            continue
        return
    raise AssertionError("no QP joins the group")


def is_bound_again():
    driver = pathlib.Path(f"/sys/bus/pci/drivers/{CARD}_core")
    slot = os.path.basename(os.path.realpath(f"/sys/class/infiniband/{LEFT.device}/device"))
    (driver / "unbind").write_text(slot)
    (driver / "bind").write_text(slot)
    if not within(PATIENCE, active):
        raise AssertionError("the ports are not active")


def rc_sends(grh=False):
    connection = Rc()
    ends = [(connection.left, connection.first), (connection.right, connection.second)]
    for (end, qp), (peer, remote) in zip(ends, reversed(ends)):
        attributes = end.attributes(remote.qp_num)
        if grh:
            attributes.ah_attr = with_grh(end, peer)
        qp.to_rts(attributes)
    connection.first.post_send(SendWR(wr_id=1, num_sge=1, sg=[connection.left.piece(LENGTH)]))
    # For the packet to arrive; who rings another's doorbell sends none.
    time.sleep(0.2)


def rc_sends_with_grh():
    rc_sends(grh=True)


def datagrams(grh=None):
    with Agent(LEFT, 1, VENDOR, 0, OUI) as agent:
        for _ in range(3):
            agent.send(RIGHT.lid, 0x77, bytes(13) + OUI, grh=grh)
            time.sleep(0.2)


def datagrams_with_grh():
    datagrams(grh=RIGHT.gid)


def events():
    # No QP has this number.
    ctl("event", "wq_access_error", 0x123456, "--repeat", 64)


REFUSED, ACCEPTED = True, False
AT_LOAD, LATER = True, False


def fails(action):
    """Runs it in a process of its own."""
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        try:
            action()
        except Exception as error:  # of any kind: it is refused
            print(f"# {error}", flush=True)
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):
        raise AssertionError(f"{action.__name__} hangs or crashes: {code}")
    return code == 1


def equal(is_, wanted):
    if is_ != wanted:
        raise AssertionError(f"{is_}, not {wanted}")


def complete(faults):
    """Each violation that the card's own code counts has a fault, and each that any counts has one
    for some card."""
    source = pathlib.Path(os.environ["LAB_TREE"], "hca/src")
    directory = pathlib.Path(sys.argv[1])
    equal(sorted(path.stem for path in directory.glob("*.patch")), sorted(faults))

    def names(kinds):
        return {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", kind).lower() for kind in kinds}

    own = [re.sub(r"#\[cfg\(test\)\].*", "", path.read_text(), flags=re.DOTALL)
           for path in (source / CARD).rglob("*.rs") if path.stem != "hostile"]
    equal(sorted(names(re.findall(r"Violation::(\w+)", "".join(own))) - set(faults)), [])
    kinds = re.findall(r"^    ([A-Z]\w+),$", (source / "engine/violation.rs").read_text(), re.MULTILINE)
    equal(sorted({path.stem for path in directory.parent.glob("*/*.patch")}), sorted(names(kinds)))


def no_fault(faults):
    try:
        load("none")
        if not within(PATIENCE, active):
            raise AssertionError("the ports are not active")
        for action in {action for _, action, _ in faults.values()}:
            if fails(action):
                raise AssertionError(f"{action.__name__} fails")
    finally:
        unload()
    equal(violations(), {})


def one_fault(name, at_load, action, refused):
    before = violations()
    try:
        load(name if at_load else "none")
        up = bound() and within(PATIENCE, active)
        PARAMETER.write_text(name)
        failed = not up or fails(action)
        within(PATIENCE, lambda: violations() != before)
        # For others that follow from it.
        time.sleep(0.5)
        PARAMETER.write_text("\n")
        after = violations()
    finally:
        # The remains of a fault do not matter: loading the driver resets the device.
        unload()
    counted = {kind: count - before.get(kind, 0) for kind, count in after.items() if count != before.get(kind, 0)}
    print(f"# {name}: {counted}{', refused' if failed else ''}", flush=True)
    equal(list(counted), [name])
    equal("refused" if failed else "not refused", "refused" if refused else "not refused")


def main(faults):
    """Tests them, or those that the arguments choose: each with whether the driver is loaded with
    it, the act that makes it happen, and whether that or the device fails."""
    modelled_only("violations")
    # Before the driver is taken away.
    adapters()
    chosen = sys.argv[4:] or faults
    # The kernel would load its own verbs driver.
    pathlib.Path("/proc/sys/kernel/modprobe").write_text("\n")
    unload()
    ktap = Ktap("faults of the driver", 2 + len(chosen))
    ktap.run("each violation has a patch and a test", complete, faults)
    ktap.run("the driver without a fault violates nothing", no_fault, faults)
    for name in chosen:
        ktap.run(f"{name} is counted, and nothing else", one_fault, name, *faults[name])
    ktap.end()


if __name__ == "__main__":
    sys.exit("a module of each-fault of the cards")
