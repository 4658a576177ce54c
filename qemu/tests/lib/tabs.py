# SPDX-License-Identifier: GPL-2.0
"""usage: tabs.py LINE

Types LINE and a TAB into an interactive bash that has the completions of xrc-rcv, and prints the
candidates that bash shows, or the line that it has completed.
"""

import fcntl
import os
import pty
import struct
import sys
import termios

PROMPT = "(tabs) "


def main():
    line = sys.argv[1]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1=PROMPT, INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 50, 500, 0, 0))

    def lines():
        """The text that is shown until the next prompt."""
        shown = ""
        while not f"\n{shown}".endswith(f"\n{PROMPT}"):
            shown += os.read(fd, 4096).decode(errors="replace").replace("\r", "").replace("\a", "")
        return shown.splitlines()[:-1]

    lines()
    os.write(fd, b"bind 'set show-all-if-ambiguous on'; . <(xrc-rcv completions bash)\n")
    lines()
    # In the end an "echo" before the line prints it.
    os.write(fd, f"{line}\t\x01echo \x05\n".encode())
    shown = lines()
    candidates = [words for words in shown[1:-1] if PROMPT not in words]
    print(" ".join(" ".join(candidates).split()) if candidates else shown[-1].rstrip())


main()
