# SPDX-License-Identifier: GPL-2.0
"""Agents that send and receive management datagrams of the card, for the Python tests beside this
file."""

import fcntl
import os
import select
import struct
import sys

from card import HCA, PATIENCE

SYSFS = f"/sys/class/infiniband/{HCA}/ports"

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


def value(port, name):
    with open(f"{SYSFS}/{port}/{name}", encoding="ascii") as file:
        return file.read().strip()


def lid(port):
    return int(value(port, "lid"), 16)


def gid(port):
    return bytes.fromhex(value(port, "gids/0").replace(":", ""))


class Agent:
    """An agent of a class at a port; with methods, it receives requests."""

    def __init__(self, port, qp, mgmt_class, methods=0, oui=bytes(3)):
        self.qp, self.mgmt_class = qp, mgmt_class
        self.file = os.open(f"/dev/infiniband/umad{port - 1}", os.O_RDWR)
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
