# SPDX-License-Identifier: GPL-2.0
"""usage: tabs.py bash|zsh LINE [SHARE]

Types LINE and a TAB into an interactive shell that has the completions of its command, and prints
the candidates that it shows, or the line that it has completed. bash has the completions that
xrc-rcv prints, zsh finds those that are installed beside it; with SHARE both have those that are
installed there.
"""

import fcntl
import os
import pty
import re
import shutil
import struct
import sys
import termios

PROMPT = "(tabs) "
END = "--end--"

SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        "bind 'set show-all-if-ambiguous on'; . <(xrc-rcv completions bash)",
    ),
    "zsh": (
        ["zsh", "-f", "-o", "no_prompt_sp", "-i"],
        "unset zle_bracketed_paste; fpath=({share}/zsh/site-functions $fpath); "
        "autoload -U compinit && compinit -u -D; zstyle ':completion:*' verbose no",
    ),
}


def main():
    shell, line, *shares = sys.argv[1:]
    program, initialise = SHELLS[shell]
    if shares and shell == "bash":
        initialise = f"bind 'set show-all-if-ambiguous on'; . {{share}}/bash-completion/completions/{line.split()[0]}"
    share = (shares or [os.path.join(os.path.dirname(shutil.which("xrc-rcv")), "../share")])[0]
    pid, fd = pty.fork()
    if pid == 0:
        # Before the shell shows a prompt, which it would show once more in another size.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 50, 500, 0, 0))
        os.environ.update(TERM="dumb", PS1=PROMPT, INPUTRC="/dev/null")
        os.execvp(program[0], program)

    def until(pattern):
        """The text that is shown until a text that has the pattern."""
        shown = ""
        while not re.search(pattern, shown, re.MULTILINE):
            shown += os.read(fd, 4096).decode(errors="replace")
            # zsh announces that it takes pasted text.
            shown = re.sub("\x1b\\[[?0-9]*[hl]|[\r\a]", "", shown)
        return shown

    prompt = re.escape(PROMPT)
    until(f"{prompt}$")
    os.write(fd, (initialise.format(share=share) + "\n").encode())
    until(f"\n{prompt}$")
    # In the end an "echo" before the line prints it.
    os.write(fd, f"{line}\t\x01echo \x05 {END}\n".encode())
    shown = until(rf"{END}\n.*{END}\n{prompt}$").splitlines()
    completed = next(words for words in reversed(shown) if words.endswith(END))
    candidates = [words for words in shown[1:] if PROMPT not in words and END not in words]
    print(" ".join(" ".join(candidates).split()) or completed.removesuffix(END).rstrip())


main()
