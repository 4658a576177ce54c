# SPDX-License-Identifier: GPL-2.0
"""Agents that send and receive management datagrams of a port, for the Python tests of cards."""

import fcntl
import glob
import os
import select
import struct
import sys

from card import PATIENCE

# rdma/ib_user_mad.h
REGISTER_AGENT = 0xc01c1b01
ENABLE_PKEY = 0x1b03
AGENT = struct.Struct("=IQQBBB3sBx")
HEADER = struct.Struct("=IIIII4s4s2sBBBBBB16s4sH6x")

# The common header of a datagram, its classes, a method, and a vendor.
DATAGRAM = struct.Struct(">BBBBHHQHxxI")
SIZE = 256
SUBNET, VENDOR = 0x01, 0x30
GET = 0x01
OUI = b"\x00\x14\x05"


def file_of(node):
    """The file of datagrams of a port."""
    for directory in glob.glob("/sys/class/infiniband_mad/umad*"):
        def said(name):
            with open(f"{directory}/{name}", encoding="ascii") as file:
                return file.read().strip()
        if (said("ibdev"), said("port")) == (node.device, str(node.port)):
            return f"/dev/infiniband/{os.path.basename(directory)}"
    raise LookupError(f"no file of datagrams of {node}")


class Agent:
    """An agent of a class at a node; with methods, it receives requests."""

    def __init__(self, node, qp, mgmt_class, methods=0, oui=bytes(3)):
        self.qp, self.mgmt_class = qp, mgmt_class
        self.file = os.open(file_of(node), os.O_RDWR)
        fcntl.ioctl(self.file, ENABLE_PKEY)
        request = bytearray(AGENT.pack(0, methods, 0, qp, mgmt_class, 1, oui, 0))
        fcntl.ioctl(self.file, REGISTER_AGENT, request)
        self.number = AGENT.unpack(request)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Until then its methods are taken.
        os.close(self.file)

    def send(self, destination, attribute, data=b"", timeout=0, pkey_index=0, grh=None):
        header = HEADER.pack(
            self.number, 0, timeout, 0, 0, self.qp.to_bytes(4, "big"),
            (0x80010000 if self.qp else 0).to_bytes(4, "big"), destination.to_bytes(2, "big"),
            0, 0, grh is not None, 0, 64 if grh else 0, 0, grh or bytes(16), bytes(4), pkey_index)
        datagram = DATAGRAM.pack(1, self.mgmt_class, 1, GET, 0, 0, 0x1234, attribute, 0) + data
        os.write(self.file, header + datagram.ljust(SIZE, b"\0"))

    def receive(self):
        """Its header in user_mad's form, and the datagram."""
        if not select.select([self.file], [], [], PATIENCE)[0]:
            raise TimeoutError("nothing received")
        answer = os.read(self.file, HEADER.size + SIZE)
        header = HEADER.unpack_from(answer)
        if header[1]:
            raise OSError(header[1], os.strerror(header[1]))
        return header, answer[HEADER.size:]


if __name__ == "__main__":
    sys.exit("a module of the tests beside it")
