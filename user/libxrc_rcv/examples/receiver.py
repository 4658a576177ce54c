#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""usage: receiver.py DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT

As receiver.c, by the package xrc_rcv: prints the messages to its SRQ, and the events of the receive
QPs that it is registered with.
"""

import asyncio
import contextlib
import sys
from ipaddress import IPv6Address

from xrc_rcv import Address, Device, EventType, Lifetime, Mtu, QpAttr


class Receiver:
    def __init__(self, name, port, gid_index, path):
        self.port, self.gid_index, self.device = port, gid_index, Device(name)
        self.domain = self.device.open_domain(path)    # shared by the file
        self.srq = self.domain.create_srq(depth=16, size=64)
        self.channel = self.domain.create_event_channel()
        self.qps, self.senders = {}, []

    def join(self, lid, gid, peer, qp_num):
        """Registers with the sender's receive QP, or creates one, and returns the answer to the
        sender."""
        if qp_num:
            qp = self.domain.register(qp_num, channel=self.channel)
        else:
            address = Address(port_num=self.port, sgid_index=self.gid_index, dlid=lid, dgid=None if lid else gid)
            attr = QpAttr(pkey_index=0, port_num=self.port, qp_access_flags=0, ah_attr=address,
                          path_mtu=Mtu.MTU_1024, dest_qp_num=peer, rq_psn=0)
            # Ready to receive; the label says whose connection it is.
            qp = self.domain.alloc(attr, lifetime=Lifetime.DOMAIN, channel=self.channel, label=int(gid) % 2**64)
        self.qps[qp.qp_num] = qp
        print(f"QP {qp.qp_num}: {'joined' if qp_num else 'created'}", flush=True)
        gid = self.device.query_gid(self.port, self.gid_index)
        return f"{self.device.query_port(self.port).lid} {gid} {qp.qp_num} {self.srq.srq_num}\n"

    async def answer(self, reader, sender):
        try:
            lid, gid, peer, qp_num = (await reader.readline()).decode().split()
            sender.write(self.join(int(lid), IPv6Address(gid), int(peer), int(qp_num)).encode())
            self.senders.append(sender)    # open, so that the sender sees the end of this process
        except (OSError, ValueError) as error:
            print(f"a sender: {error}", file=sys.stderr)
            sender.close()

    async def print_messages(self):
        async for message in self.srq:
            print(message.rstrip(b"\0").decode(), flush=True)

    async def print_events(self):
        """Prints the events, and ends the registration with a QP whose connection is broken."""
        async for event in self.channel:
            print(f"QP {event.qp_num}: {event.description}", flush=True)
            if event.type != EventType.COMM_EST and event.qp_num in self.qps:
                self.qps.pop(event.qp_num).unregister()
                # It fails but for the last process that has unregistered.
                with contextlib.suppress(OSError):
                    self.domain.destroy(event.qp_num)

    async def run(self, tcp_port):
        async with await asyncio.start_server(self.answer, None, tcp_port):
            print("ready", flush=True)
            await asyncio.gather(self.print_messages(), self.print_events())


def main():
    try:
        device, path, tcp_port = sys.argv[1:]
        name, port, gid_index = (device.split("/") + ["1", "0"][device.count("/"):])
        arguments, tcp_port = (name, int(port), int(gid_index), path), int(tcp_port)
    except ValueError:
        print(__doc__.partition("\n")[0], file=sys.stderr)
        sys.exit(2)
    try:
        asyncio.run(Receiver(*arguments).run(tcp_port))
    except OSError as error:
        sys.exit(f"{error.filename or name}: {error.strerror}")


main()
