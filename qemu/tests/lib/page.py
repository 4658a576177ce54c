# SPDX-License-Identifier: GPL-2.0
"""usage: page.py PAGE {guest|cards} [ROTATION]

Types the literal blocks of a page into two interactive shells, each on a terminal of its own, as
they are printed, and waits until the terminals show the blocks between. The sentence before a block
tells which it is. A number that is shown stands for the same number wherever it is. With ROTATION
each of the languages in the lines is replaced by that many further in the list.
"""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

LANGUAGES = {"sender": ["c", "rust", "python"], "receiver": ["c", "rust", "python", "go"]}
PATIENCE = int(os.environ.get("patience", 240))
# The same failure is reported differently by devices.
DIFFERENT = {
    "remote access error": "(?:remote access error|remote invalid request error)",
    "local access violation work queue error": "(?:local access violation|invalid request local) work queue error",
}


class Failure(Exception):
    pass


class Terminal:
    """A shell on a terminal, and what it shows that was not expected yet."""

    def __init__(self, name):
        self.name, self.lines, self.partial = name, [], ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", PS1="$ ")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", 50, 500, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return
        said = os.read(self.fd, 4096).decode(errors="replace")
        sys.stdout.write("".join(f"{self.name}: {line}\n" for line in said.replace("\r", "").splitlines() if line))
        *lines, self.partial = (self.partial + said.replace("\r", "")).split("\n")
        # The output of a background process follows a prompt.
        self.lines += [re.sub(r"^(\$ )+", "", line) for line in lines]


    def has_children(self):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            return bool(file.read())


class Page:
    def __init__(self, text, where, rotation):
        self.numbers, self.where, self.rotation = {}, where, rotation
        self.terminals = {name: Terminal(name) for name in ("receiver", "sender")}
        self.blocks = re.findall(r"((?:^\S[^\n]*\n)*^\S[^\n]*)::\n\n((?:    [^\n]*\n|\n)+)", text, re.M)

    def run(self):
        for before, block in self.blocks:
            what = " ".join(before.split()).rsplit(". ", 1)[-1]
            block = re.sub("^    ", "", block.strip("\n") + "\n", flags=re.M)
            cards, _, typed = re.fullmatch(r"(With cards, )?([Ii]n the (receiver|sender)'s terminal)?.*", what).groups()
            shown = re.fullmatch(r"The (receiver|sender)'s terminal shows", what)
            if shown:
                self.expect(self.terminals[shown[1]], block.splitlines())
            elif not typed and what not in ("On the host", "On each machine"):
                raise Failure(f"a block of no kind: {what}")
            # Guests and cards differ in the variables only.
            elif typed and ("card=" not in block or bool(cards) == (self.where == "cards")):
                self.numbers.update((number, number) for number in re.findall(r"\d+", block))
                self.terminals[typed].type(self.rotated(block))
        self.terminals["sender"].type("\x04")
        self.wait(lambda: "programs run still", lambda: not any(map(Terminal.has_children, self.terminals.values())))

    def wait(self, why_not, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise Failure(why_not())
            for terminal in self.terminals.values():
                terminal.read(0.05)

    def rotated(self, block):
        def other(match):
            languages = LANGUAGES[match[2]]
            return f"{languages[(languages.index(match[1]) + self.rotation) % len(languages)]}/{match[2]}"
        return re.sub(r"\b(c|rust|python|go)/(sender|receiver)\b", other, block)

    def expect(self, terminal, lines):
        """Waits until the terminal has shown the lines, in any order: processes write at once."""
        missing = list(lines)

        def all_shown():
            for line in list(missing):
                for shown in terminal.lines:
                    if self.matches(line, shown):
                        terminal.lines.remove(shown)
                        missing.remove(line)
                        break
            return not missing

        self.wait(lambda: f"{terminal.name}: not shown: {missing}, but {terminal.lines}", all_shown)
        # Programs say nothing that is not on the page.
        more = [line for line in terminal.lines if re.match(r"(QP )?\d+: |ready$|.*[Ee]rror", line)]
        if more:
            raise Failure(f"{terminal.name}: not on the page: {more}")

    def matches(self, line, shown):
        """Whether a line is that of the page, but for numbers and devices. Keeps new numbers."""
        new = []
        pattern = ""
        for part in re.split(r"(\d+)", line.replace("rxe_right", os.environ["LAB_RIGHT"].split("/")[0])):
            if not part.isdigit() or re.search(r"\w$", pattern) or part in self.numbers:
                pattern += re.escape(self.numbers.get(part, part))
            else:
                new.append(part)
                pattern += r"(\d+)"
        for text, either in DIFFERENT.items():
            pattern = pattern.replace(re.escape(text), either)
        match = re.fullmatch(pattern, shown)
        if match:
            self.numbers.update(zip(new, match.groups()))
        return bool(match)


def main():
    path, where, *rotation = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        page = Page(file.read(), where, int(rotation[0]) if rotation else 0)
    try:
        page.run()
    except Failure as failure:
        sys.exit(str(failure))


main()
