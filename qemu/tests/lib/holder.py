# SPDX-License-Identifier: GPL-2.0
"""usage: holder.py SOCKET COMMAND…

A service manager with a store, as systemd is for one unit: listens on the socket, runs the command
with it, and starts it again whenever it ends, with the descriptors that it has stored. The files
"pid" and "notified" of the directory have its process and what it has reported. SIGTERM ends both.

As a module: a client of `xrc-rcv hold`, by nothing but xrc-rcv-hold(5)."""

import array
import fcntl
import os
import signal
import socket
import sys

PACKET = 8192
PATIENCE = int(os.environ.get("patience", 240))
F_DUPFD_QUERY = 1027


class Holder:
    """A connection to the service."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        # No descriptor before the first answer, which a connection too many gets without a request.
        try:
            self.send("list")
        except BrokenPipeError:
            pass
        self.greeting = self.receive()[0]

    def send(self, text, *fds):
        """Sends a packet, with descriptors."""
        data = text if isinstance(text, bytes) else text.encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], rights)

    def receive(self):
        """Returns the text of the next packet and its descriptors."""
        text, fds, _, _ = socket.recv_fds(self.socket, PACKET, 4)
        return text.decode(), fds

    def ask(self, text, *fds):
        """Returns the answer to a request."""
        self.send(text, *fds)
        return self.receive()

    def usage(self):
        """Returns the counts of the service, and the names of this user's descriptors."""
        first, *names = self.ask("list")[0].split("\n")
        counts = first.removeprefix("ok ").split(" file=")[0]
        return {key: int(value) for key, value in (word.split("=") for word in counts.split(" "))}, \
            [name.split(" ")[0] for name in names]


class Manager:
    """The service manager."""

    def __init__(self, path, command):
        self.command, self.store = command, []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen(128)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind("notify")
        self.notify.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def start(self):
        """Starts the command."""
        pid = os.fork()
        if pid:
            return pid
        # The numbers may be in use: away with them first.
        fds = [os.dup(fd) for fd in [self.listener.fileno(), *(fd for _, fd in self.store)]]
        high = [fd + 1000 for fd in range(len(fds))]
        for fd, to in zip(fds, high):
            os.dup2(fd, to)
        for number, fd in enumerate(high, 3):
            os.dup2(fd, number)
        os.closerange(3 + len(fds), 3000)
        os.environ |= {"LISTEN_FDS": str(len(fds)), "LISTEN_PID": str(os.getpid()),
                       "LISTEN_FDNAMES": ":".join(["kv.socket", *(name for name, _ in self.store)]),
                       "NOTIFY_SOCKET": os.path.abspath("notify")}
        os.execvp(self.command[0], self.command)

    def read(self, log):
        """Reads a message of the service."""
        message, fds, _, _ = socket.recv_fds(self.notify, PACKET, 16)
        lines = message.decode().split("\n")
        words = dict(line.split("=", 1) for line in lines if "=" in line)
        if words.get("FDSTORE") == "1":
            # An open file is stored once, as by systemd.
            new = [fd for fd in fds if not any(fcntl.fcntl(fd, F_DUPFD_QUERY, known) for _, known in self.store)]
            self.store += [(words["FDNAME"], fd) for fd in new]
            fds = [fd for fd in fds if fd not in new]
        if words.get("FDSTOREREMOVE") == "1":
            gone = [fd for name, fd in self.store if name == words["FDNAME"]]
            self.store = [(name, fd) for name, fd in self.store if name != words["FDNAME"]]
            fds += gone
        for fd in fds:
            os.close(fd)
        print(*lines, file=log, flush=True)

    def run(self):
        """Runs it until SIGTERM."""
        ends = []
        signal.signal(signal.SIGTERM, lambda *_: ends.append(1))
        self.notify.settimeout(0.02)
        with open("notified", "a", encoding="utf-8") as log:
            while not ends:
                pid = self.start()
                with open("pid", "w", encoding="utf-8") as file:
                    file.write(str(pid))
                ended = None
                while not ended:
                    try:
                        self.read(log)
                        continue
                    except TimeoutError:
                        pass
                    if ends:
                        os.kill(pid, signal.SIGTERM)
                        os.waitpid(pid, 0)
                        return
                    ended = os.waitpid(pid, os.WNOHANG)[0]
                print("ended", file=log, flush=True)


if __name__ == "__main__":
    Manager(sys.argv[1], sys.argv[2:]).run()
