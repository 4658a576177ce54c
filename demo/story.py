# SPDX-License-Identifier: GPL-2.0
"""Parts of a demo's director: processes, their reports, and a terminal for sentences."""

import json
import signal
import subprocess
import threading
import time

PATIENCE = 240      # seconds until something that should happen counts as missing


class Failed(Exception):
    """A step does not hold; the message is a sentence about it."""


class Terminal:
    """Short sentences, ticks and tables; colours if wanted. Kept until they are to be shown."""

    def __init__(self, colour):
        self.colour = colour
        self.lines = []

    def paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def say(self, text=""):
        self.lines.append(text)

    def show(self):
        print("\n".join(self.lines), flush=True)
        self.lines = []

    def title(self, text):
        self.say()
        self.say(self.paint("1", text))

    def step(self, number, text):
        self.say()
        self.say(self.paint("1;36", f" {number} ") + " " + text)

    def holds(self, text):
        self.say("    " + self.paint("32", "ok") + " " + text)

    def observed(self, text):
        self.say("    " + self.paint("33", "->") + " " + text)


class Process:
    """One process of the story: takes orders, reports events."""

    def __init__(self, journal, name, *command):
        self.name = name
        self.journal = journal
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        self.pid = self.popen.pid
        self.end = None         # how it ended
        self.ready = None       # its first report, its addresses
        self.first = journal.add(name, t=time.monotonic_ns(), what="started")
        self.seen = 0           # records before this one have been expected
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.popen.stdout:
            self.journal.add(self.name, **json.loads(line))

    def order(self, text):
        try:
            self.popen.stdin.write(text + "\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass                # expect() says how it ended

    def reports(self, *kinds):
        """Its reports so far, of some kinds only."""
        with self.journal.changed:
            return [r for r in self.journal.records[self.first:]
                    if r["who"] == self.name and (not kinds or r["what"] in kinds)]

    def expect(self, *kinds, instead=lambda: None):
        """The next record of one of those kinds, unless `instead` names another process."""
        with self.journal.changed:
            deadline = time.monotonic() + PATIENCE
            while True:
                for place, record in enumerate(self.reports()[self.seen:], self.seen):
                    if record["what"] in kinds:
                        self.seen = place + 1
                        return record
                if self.popen.poll() is not None:
                    said = self.popen.stderr.read().strip() or f"status {self.popen.returncode}"
                    raise Failed(f"{self.name} ended before it reported '{kinds[0]}': {said}")
                if other := instead():
                    raise Failed(f"{self.name} did not report '{kinds[0]}', but {other} did")
                if time.monotonic() > deadline:
                    raise Failed(f"{self.name} did not report '{kinds[0]}' within {PATIENCE} s")
                self.journal.changed.wait(0.2)

    def ask(self, order, *answers):
        self.order(order)
        return self.expect(*answers)

    def kill(self):
        self.popen.kill()
        if self.popen.wait() != -signal.SIGKILL:
            raise Failed(f"{self.name} was not ended by SIGKILL")
        self.end = "killed"
        self.journal.add(self.name, t=time.monotonic_ns(), what="killed")

    def leave(self):
        self.ask("leave", "left")
        self.quit()
        self.end = "left"

    def quit(self):
        self.popen.stdin.close()
        if self.popen.wait(PATIENCE):
            raise Failed(f"{self.name} ended with status {self.popen.returncode}: {self.popen.stderr.read().strip()}")
        self.end = "ended"
        self.journal.add(self.name, t=time.monotonic_ns(), what="ended")


class Journal:
    """The reports of one run of a story, with the times of the processes."""

    def __init__(self):
        self.records = []
        self.changed = threading.Condition()

    def add(self, who, **record):
        with self.changed:
            self.records.append({"who": who, **record})
            self.changed.notify_all()
            return len(self.records) - 1
