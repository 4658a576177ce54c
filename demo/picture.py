# SPDX-License-Identifier: GPL-2.0
"""The picture of a run as SVG: processes, messages and events over time.

One panel per story, the same steps above each other. Time runs to the right;
where little happens it is compressed, so within a step only the order counts.
Steps in which the stories differ are coloured and labelled.
"""

import math
from html import escape

STEPS = {
    1: ("A creates", "the QP"),
    2: ("B and C", "join"),
    3: ("a message", "for each"),
    4: ("A is", "killed"),
    5: ("messages", "still arrive"),
    6: ("an error", "on the wire"),
    7: ("B and C", "leave"),
    8: ("A dies before", "B has joined"),
}
TITLES = {
    "ib_xrc_rcv": "ib_xrc_rcv: the kernel owns the receive QP",
    "mainline": "mainline: ibv_create_qp() and ibv_open_qp()",
}
# The outcomes in which the stories differ.
NOTIFIED, JOIN = "the event that it is broken is delivered to", "others can join after a lone creator has died"
LANES = ["sender", "QP", "A", "B", "C"]
INK, PALE, RED, BLUE, GREEN = "#30343b", "#9aa1ab", "#c8352b", "#3b6fb6", "#2c7d2c"
COLOURS = {"sender": INK, "A": "#d07a1f", "B": "#13896f", "C": "#7a4fa8"}
UP, ACCESS = "communication established", "local access violation work queue error"

LEFT, RIGHT = 126, 24           # margins
LABEL, VERDICT = 14, 16         # font sizes
LANE = 44                       # between lanes
HEAD, PANEL, FOOT = 92, 330, 122  # heights


def spread(gap_ns):
    """Returns the width of a gap in the picture."""
    return 4 + 6 * math.log2(1 + gap_ns / 4e6)


def widest(text, size):
    """How wide a text is in a font that may be any, and is bold."""
    return 0.68 * size * len(text)


class Axis:
    """Where the moments of a story are, with each step as wide as in every other story."""

    def __init__(self, story, known):
        records = sorted(story.journal.records, key=lambda record: record["t"])
        begin = next(i for i, r in enumerate(records) if r["what"] == "step")
        self.steps = {}             # number: its moments, the first being its begin
        labels = differences(story)
        number = 0
        for record in records[begin:]:
            if record["what"] == "step":
                number = record["number"]
            self.steps.setdefault(number, []).append(record["t"])
        for number, moments in self.steps.items():
            width = 28 + sum(spread(b - a) for a, b in zip(moments, moments[1:]))
            if number in labels:
                width = max(width, 16 + widest(labels[number][1], LABEL))
            known[number] = max(known.get(number, 84), width)
        self.known = known

    def place(self):
        """To be called when all stories' axes are known."""
        self.begins, x = {}, LEFT
        for number in sorted(self.known):
            self.begins[number] = x
            x += self.known[number]
        self.end = x
        self.points = []
        for number, moments in sorted(self.steps.items()):
            own = 28 + sum(spread(b - a) for a, b in zip(moments, moments[1:]))
            scale = (self.known[number] - 28) / max(own - 28, 1)
            x = self.begins[number] + 14
            self.points.append((moments[0], x))
            for a, b in zip(moments, moments[1:]):
                x += spread(b - a) * min(scale, 3)
                self.points.append((b, x))

    def x(self, t):
        if t <= self.points[0][0]:
            return LEFT
        for (t0, x0), (t1, x1) in zip(self.points, self.points[1:]):
            if t <= t1:
                return x0 + (x1 - x0) * (t - t0) / max(t1 - t0, 1)
        return self.points[-1][1]


class Drawing:
    """SVG elements, and the few marks that panels and legend share."""

    def __init__(self):
        self.elements = []

    def add(self, name, text=None, **attributes):
        words = "".join(f' {key.replace("_", "-")}="{value:.1f}"' if isinstance(value, float)
                        else f' {key.replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
        self.elements.append(f"<{name}{words}/>" if text is None else f"<{name}{words}>{escape(text)}</{name}>")

    def line(self, x1, y1, x2, y2, stroke, width=1.5, **more):
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width, **more)

    def text(self, x, y, text, fill=INK, **more):
        self.add("text", text, x=x, y=y, fill=fill, **more)

    def message(self, x, y, colour):
        self.add("circle", cx=x, cy=y, r=5, fill=colour, stroke="white", stroke_width=1)

    def event(self, x, y, colour, **more):
        self.add("path", d=f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z", fill=colour, stroke="white", stroke_width=1, **more)

    def silence(self, x, y):
        self.add("path", d=f"M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z", fill="white", stroke=RED, stroke_width=1.5,
                 stroke_dasharray="3 2")
        self.text(x, y + 4, "?", RED, text_anchor="middle", font_weight="bold")

    def cross(self, x, y, colour=RED):
        self.add("path", d=f"M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12", stroke=colour, stroke_width=3, fill="none")

    def joined(self, x, y, colour):
        self.add("circle", cx=x, cy=y, r=5, fill="white", stroke=colour, stroke_width=2)


class Panel:
    """One story."""

    def __init__(self, drawing, story, axis, top):
        self.drawing, self.story, self.axis = drawing, story, axis
        self.y = {lane: top + 76.0 + LANE * i for i, lane in enumerate(LANES)}
        self.records = sorted(story.journal.records, key=lambda record: record["t"])
        self.taken = {}             # up to where a lane has marks
        self.differences = differences(story)
        good = all(good for good, *_ in self.differences.values())
        drawing.text(16, top + 8, TITLES[story.kind], font_size=16, font_weight="bold")
        drawing.text(16, top + 30, verdict(story), GREEN if good else RED, font_size=VERDICT, font_weight="bold")
        self.frame(top + 20)
        self.lives()
        self.qps()
        for record in self.records:
            mark = getattr(self, "on_" + record["what"], None)
            if mark:
                mark(record, axis.x(record["t"]), self.y.get(record["who"]))

    def frame(self, top):
        bottom = self.y["C"] + 26
        for number, x in self.axis.begins.items():
            self.drawing.line(x, top + 24.0, x, bottom, "#dfe3e8", 1)
            if number not in self.differences:
                continue
            good, words = self.differences[number]
            width, colour = self.axis.known[number], GREEN if good else RED
            self.drawing.add("rect", x=x, y=top + 24.0, width=width, height=bottom - top - 24 + 26, fill=colour,
                             fill_opacity=0.16)
            self.drawing.add("rect", x=x, y=bottom, width=width, height=26, fill=colour)
            self.drawing.text(x + width / 2, bottom + 18, words, "white", text_anchor="middle", font_size=LABEL,
                              font_weight="bold", textLength=min(width - 8.0, 8.0 * len(words)),
                              lengthAdjust="spacingAndGlyphs")
        for lane in LANES:
            label = {"sender": "sender (left)", "QP": "receive QP"}.get(lane, f"process {lane}")
            self.drawing.text(16, self.y[lane] + 4, label, COLOURS.get(lane, BLUE))

    def lives(self):
        """A line for as long as a process lives."""
        for name in COLOURS:
            begin = None
            for record in self.records:
                if record["who"] != name:
                    continue
                if record["what"] == "started":
                    begin = self.axis.x(record["t"])
                elif record["what"] in ("killed", "ended"):
                    self.drawing.line(begin, self.y[name], self.axis.x(record["t"]), self.y[name], COLOURS[name], 3,
                                      stroke_opacity=0.55)

    def qps(self):
        """A bar for as long as a QP exists, red from the error on."""
        y, begin, broken = self.y["QP"], None, None
        for record in self.records:
            x = self.axis.x(record["t"])
            if record["what"] == "created":
                begin, broken, qpn = x, None, record["qpn"]
            elif record["what"] == "sending" and not record["to"]:
                broken = self.axis.x(self.broken())
            elif record["what"] == "gone" and begin is not None:
                for colour, x1, x2 in ((BLUE, begin, broken or x), (RED, broken, x)):
                    if x1 is not None:
                        self.drawing.add("rect", x=x1, y=y - 9, width=max(x2 - x1, 4.0), height=18, fill=colour,
                                         fill_opacity=0.8)
                if x - begin > 60:
                    self.drawing.text(begin + 8, y + 4, f"{qpn:#x}", "white", font_size=12)
                if broken:
                    self.drawing.text(broken + 14, y + 4, "broken", "white", font_size=12)
                begin = None

    def broken(self):
        """When the error happened: the time of its events, or at the latest that of the sender's
        completion."""
        completed = next(r["t"] for r in self.records if r["what"] == "sent" and r["status"] != "success")
        return min([completed, *(r["happened"] for r in self.records if r["what"] == "event" and r["type"] == ACCESS)])

    # ---- marks, by the kind of their step ----

    def on_sending(self, record, x, y):
        to = record["to"]
        self.drawing.add("circle", cx=x, cy=y, r=3.5, fill=INK if to else RED)
        if not to:
            self.drawing.line(x, y, self.axis.x(self.broken()), self.y["QP"] - 9, RED, 2, stroke_dasharray="4 3")
            return
        arrived = next(r for r in self.records if r["who"] == to and r["what"] == "message" and r["t"] >= record["t"])
        self.drawing.line(x, y, self.axis.x(arrived["t"]), self.y[to], COLOURS[to], 1.5)

    def on_message(self, record, x, y):
        self.drawing.message(x, y, COLOURS[record["who"]])
        self.taken[y] = x + 13

    def on_created(self, record, x, y):
        self.drawing.line(x, self.y["QP"] + 9, x, y, COLOURS[record["who"]], 1.5, stroke_dasharray="2 2")
        self.drawing.joined(x, y, COLOURS[record["who"]])

    on_joined = on_created

    def on_event(self, record, x, y):
        colour = {UP: "#4c9a2a", ACCESS: RED}.get(record["type"], "#e0a21b")
        self.drawing.line(x, self.y["QP"] + 9, x, y, colour, 1, stroke_dasharray="1 3")
        x = max(x, self.taken.get(y, x))    # events of one moment stand beside each other
        self.drawing.event(x, y, colour)
        self.taken[y] = x + 15

    def on_silence(self, record, x, y):
        self.drawing.silence(x, y)

    def on_refused(self, record, x, y):
        self.drawing.cross(x, y, PALE)
        self.drawing.text(x, y + 22, "refused", RED, text_anchor="middle", font_size=11)

    def on_killed(self, record, x, y):
        self.drawing.cross(x, y)

    def on_left(self, record, x, y):
        self.drawing.line(x, y - 8, x, y + 8, COLOURS[record["who"]], 3)


def differences(story):
    """The steps in which the stories differ: whether the outcome is good, and its label."""
    notified, join = story.outcome[NOTIFIED], story.outcome[JOIN] == "yes"
    return {
        6: (notified != "none of them", f"{notified} {'are' if ' and ' in notified else 'is'} notified"),
        8: (join, "B joins" if join else "B is refused"),
    }


def verdict(story):
    notified, join = story.outcome[NOTIFIED], story.outcome[JOIN] == "yes"
    return (f"When the connection breaks, {notified} {'get' if ' and ' in notified else 'gets'} an event. "
            "After a lone creator has died, "
            + ("others can join the QP." if join else "the QP is destroyed and cannot be joined."))


def heading(drawing, axis):
    drawing.text(16, 26, "One connection, three processes, and its creator dies", font_size=19, font_weight="bold")
    for number, x in axis.begins.items():
        middle = x + axis.known[number] / 2
        drawing.add("circle", cx=middle, cy=50, r=9, fill=INK)
        drawing.text(middle, 54, str(number), "white", text_anchor="middle", font_size=12, font_weight="bold")
        for i, words in enumerate(STEPS[number]):
            drawing.text(middle, 73 + 14 * i, words, text_anchor="middle", font_size=12)


def legend(drawing, y, width):
    b = COLOURS["B"]
    marks = [
        (lambda x: drawing.message(x, y, b), "message received"),
        (lambda x: drawing.joined(x, y, b), "created, registered or opened"),
        (lambda x: drawing.event(x, y, "#4c9a2a"), "event: connection up"),
        (lambda x: drawing.event(x, y, RED), "event: access error"),
        (lambda x: drawing.event(x, y, "#e0a21b"), "event: drained"),
        (lambda x: drawing.silence(x, y), "no event of the error"),
        (lambda x: drawing.cross(x, y), "SIGKILL"),
        (lambda x: drawing.line(x, y - 8, x, y + 8, b, 3), "leaves"),
    ]
    # Two rows, in columns that are wide enough for any font.
    column = (width - 24) / 4
    for place, (mark, words) in enumerate(marks):
        x = 24.0 + column * (place % 4)
        if place == 4:
            y += 28
        mark(x)
        drawing.text(x + 14, y + 4, words, font_size=12)
    y -= 28
    drawing.text(16, y + 68, "Drawn from the records of this run. Time runs to the right, compressed where "
                 "little happens. Coloured: the steps in which the two differ.", PALE, font_size=12)


def draw(stories, path):
    known = {}
    axes = [Axis(story, known) for story in stories]
    for axis in axes:
        axis.place()
    width = int(max(axes[0].end, *(16 + widest(verdict(story), VERDICT) for story in stories)) + RIGHT)
    height = HEAD + PANEL * len(stories) + FOOT
    drawing = Drawing()
    drawing.add("rect", width=width, height=height, fill="white")
    heading(drawing, axes[0])
    for i, (story, axis) in enumerate(zip(stories, axes)):
        Panel(drawing, story, axis, HEAD + 20 + PANEL * i)
    legend(drawing, HEAD + PANEL * len(stories) + 40.0, width)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                   f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="13">\n')
        file.write("\n".join(drawing.elements) + "\n</svg>\n")
