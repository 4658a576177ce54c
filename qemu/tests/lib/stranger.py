# SPDX-License-Identifier: GPL-2.0
"""usage: stranger.py SOCKET

A user of `xrc-rcv hold` who sends what it does not expect, as often as possible, for 15 seconds at
least, and until the file "enough" of the directory says that others were served meanwhile."""

import os
import socket
import struct
import sys
import threading
import time

from holder import PATIENCE, Holder

SECONDS = 15
WRONG = [b"", b"\0", b"keep", b"keep a b", b"keep " + b"x" * 65, b"keep a\n", b"keep \xff", b"get", b"get a b",
         b"nonsense", b"list now", b"x" * 8000, b"show" * 100]
SHARE = 8
SLOW = 100
path = sys.argv[1]
files = [os.memfd_create("x") for _ in range(200)]


def served(own=None):
    """A connection that is not one too many, when all closed descriptors are."""
    while True:
        try:
            holder = Holder(path)
            if holder.greeting.startswith("ok") and own in (None, holder.usage()[0]["own"]):
                return holder
        except (BrokenPipeError, ConnectionResetError):
            pass
        time.sleep(0.01)


def send_nonsense():
    """Sends each wrong text with more and more descriptors. Returns how often it was refused."""
    refused = 0
    for text in WRONG:
        for count in 0, 1, 2, 3, 200:
            try:
                holder = Holder(path)
                holder.send(text, *files[:count])
                answer = holder.receive()[0]
                assert answer == "" or answer.startswith("error "), (text, count, answer)
                refused += 1
            except (BrokenPipeError, ConnectionResetError):
                pass
            except PermissionError:
                # A connection that is one too many takes no descriptor.
                assert holder.greeting.startswith("error 122 "), holder.greeting
    return refused


def ask_and_never_read(stuck):
    """Asks on each connection until nothing more is taken: a few answers wait in it."""
    if len(stuck) < 3:
        stuck.append(served())
        stuck[-1].socket.setblocking(False)
    for request, holder in zip(["list", "show", "watch"], stuck):
        try:
            for _ in range(10000):
                holder.send(request)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass


def keep_too_many():
    """Gives it as many descriptors as it takes."""
    holder, kept = served(own=0), 0
    while holder.ask(f"keep {kept}", files[kept])[0] == "ok":
        kept += 1
    assert kept == SHARE, kept
    assert holder.ask("keep more", files[0])[0].startswith("error 122 ")
    for number in range(kept):
        assert holder.ask(f"drop {number}")[0] == "ok"


class Slow:
    """Connections whose last close waits until this ends."""

    def __init__(self):
        self.listener, self.peers = socket.socket(), []
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(SLOW)

    def file(self):
        """Returns one."""
        writer = socket.socket()
        writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writer.connect(self.listener.getsockname())
        self.peers.append(self.listener.accept()[0])
        writer.setblocking(False)
        try:
            while True:
                writer.send(bytes(4096))
        except BlockingIOError:
            pass
        writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000))
        return writer

    def give(self, client, request, writer):
        """Leaves the last close of a file to the service."""
        try:
            socket.send_fds(client, [request], [writer.fileno()])
        except OSError:
            # This is the last reference.
            writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        # In a thread: the service may have been faster.
        threading.Thread(target=writer.close, daemon=True).start()


def close_slowly(slow):
    """Has it close files that take long, in wrong requests and on connections that are too many."""
    slow.give(served().socket, b"keep \n", slow.file())
    clients = []
    for file in [slow.file() for _ in range(SLOW)]:
        clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        clients[-1].settimeout(PATIENCE)
        # At once: it may be faster.
        clients[-1].connect(path)
        slow.give(clients[-1], b"keep a b", file)
    for client in clients:
        client.close()


def main():
    """All of it, again and again."""
    refusals, stuck, begin = 0, [], time.monotonic()

    def goes_on():
        lasted = time.monotonic() - begin
        return lasted < SECONDS or lasted < PATIENCE and not (refusals > 50 and os.path.exists("enough"))

    while goes_on():
        slow = Slow()
        refusals += send_nonsense()
        ask_and_never_read(stuck)
        keep_too_many()
        close_slowly(slow)
    assert refusals > 50, refusals
    print(refusals, "requests were refused")


main()
