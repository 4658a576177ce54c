# SPDX-License-Identifier: GPL-2.0
"""The picture of a job on several nodes as SVG: nodes, their processes, and their connections.

One panel per way to connect. A line is a connection: between two processes, or from a process to
the receive QPs of a node, in the colour of the process' node. A cross is a SIGKILL.
"""

import math

from picture import BLUE, GREEN, INK, PALE, RED, Drawing

COLOURS = [BLUE, "#d07a1f", "#13896f", "#7a4fa8", "#a8434f", "#5d7a1f", "#1f7a8c", "#8c5a1f"]
WIDTH, HEIGHT = 620, 620            # of a panel
HEAD, FOOT = 150, 84
BOX_HEIGHT, SPACE = 74, 26          # of a node; between its processes


class Panel:
    """One way to connect the processes."""

    def __init__(self, drawing, job, nodes, processes, left):
        self.drawing, self.job, self.nodes = drawing, job, nodes
        self.width = max(SPACE * processes + 18.0, 120.0)
        # On a circle, no two at the same height: their connections would be one line.
        self.centres = {node: (left + WIDTH / 2 + (WIDTH / 2 - self.width / 2 - 20) * math.cos(angle),
                               HEAD + HEIGHT / 2 + (HEIGHT / 2 - BOX_HEIGHT / 2 - 20) * math.sin(angle))
                        for node in range(1, nodes + 1) for angle in [math.pi * (2 * (node - 1) / nodes - 0.61)]}
        self.boxes()
        for peer, end in job.connections:
            if not job.is_rc or peer.number < end:
                self.connection(peer, end)
        self.marks()

    def place(self, peer):
        x, y = self.centres[peer.node]
        processes = sum(other.node == peer.node for other in self.job.peers)
        return x + SPACE * (peer.place - (processes - 1) / 2), y

    def boxes(self):
        for node, (x, y) in self.centres.items():
            dead = node == self.job.dead_node
            self.drawing.add("rect", x=x - self.width / 2, y=y - BOX_HEIGHT / 2, width=self.width, height=BOX_HEIGHT, rx=8,
                             fill="#eceef1" if dead else "white", stroke=PALE, stroke_width=1.5)
            self.drawing.text(x - self.width / 2 + 8, y - 18, f"node{node}" + (" killed" if dead else ""),
                              RED if dead else INK, font_weight="bold")
            if not self.job.is_rc:
                self.drawing.add("rect", x=x - self.width / 2 + 9, y=y + 18, width=self.width - 18, height=11, rx=3, fill=GREEN)

    def connection(self, peer, end):
        x, y = self.place(peer)
        colour = COLOURS[(peer.node - 1) % len(COLOURS)]
        if self.job.is_rc:
            to_x, to_y = self.place(self.job.peers[end])
        else:
            # Its receive QP, among those of the node.
            to_x, to_y = self.centres[end]
            senders = [each for each, node in self.job.connections if node == end]
            to_x += (self.width - 26) * (senders.index(peer) / max(len(senders) - 1, 1) - 0.5)
            to_y += 23
        self.drawing.line(x, y, to_x, to_y, colour, 1, stroke_opacity=0.55)

    def marks(self):
        for peer in self.job.peers:
            x, y = self.place(peer)
            self.drawing.add("circle", cx=x, cy=y, r=7, fill=COLOURS[(peer.node - 1) % len(COLOURS)], stroke="white",
                             stroke_width=1.5)
            if peer.end == "killed":
                self.drawing.cross(x, y)
        if self.job.dead_node:
            x, y = self.centres[self.job.dead_node]
            for end in (-1, 1):
                self.drawing.line(x - self.width / 2, y - end * BOX_HEIGHT / 2, x + self.width / 2, y + end * BOX_HEIGHT / 2,
                                  RED, 3, stroke_opacity=0.7)


def legend(drawing, width):
    y = HEAD + HEIGHT + 24.0
    marks = [
        (lambda x: drawing.add("circle", cx=x, cy=y, r=7, fill=BLUE), "a process"),
        (lambda x: drawing.line(x - 10, y, x + 10, y, BLUE, 2), "a connection"),
        (lambda x: drawing.add("rect", x=x - 12, y=y - 5, width=24, height=11, rx=3, fill=GREEN), "receive QPs of a node"),
        (lambda x: drawing.cross(x, y), "SIGKILL, the others go on"),
    ]
    for place, (mark, words) in enumerate(marks):
        x = 34.0 + (width - 40) / len(marks) * place
        mark(x)
        drawing.text(x + 20, y + 4, words, font_size=13)
    drawing.text(16, y + 40, "Drawn from the connections of this run.", PALE, font_size=12)


def draw(jobs, nodes, processes, path):
    width, height = WIDTH * 2, HEAD + HEIGHT + FOOT
    drawing = Drawing()
    drawing.add("rect", width=width, height=height, fill="white")
    drawing.text(16, 30, f"{nodes} nodes with {processes} processes each", font_size=19, font_weight="bold")
    for job, left in zip(jobs, (0, WIDTH)):
        qps = job.counted["qps"][1]
        drawing.text(left + 16, 66, "a connection for each two processes (RC)" if job.is_rc else
                     "a connection to each node, by receive QPs (XRC)", font_size=16, font_weight="bold")
        drawing.text(left + 16, 90, f"{job.counted['connections']} connections of each process", RED if job.is_rc else GREEN,
                     font_size=15, font_weight="bold")
        drawing.text(left + 16, 112, f"on each node {qps['RC']} QPs" if job.is_rc else
                     f"on each node {qps['XRC_INI']} QPs, and {qps['XRC_TGT']} receive QPs that the kernel owns", font_size=14)
        Panel(drawing, job, nodes, processes, left)
    legend(drawing, width)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                   f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="13">\n')
        file.write("\n".join(drawing.elements) + "\n</svg>\n")
