# SPDX-License-Identifier: GPL-2.0
"""The modelled cards of the guest, or a real ConnectX-3, and the model's control: for the Python
tests of any card."""

import functools
import json
import os
import subprocess
import sys
import typing

MODEL = os.environ.get("LAB_DEVICE", "vmlx4")
# Seconds after which a state is believed never to come, as in qemu/guest/wait.sh.
PATIENCE = int(os.environ.get("patience", 240))
# Adapters that a model has at most.
MOST_ADAPTERS = 16


class Node(typing.NamedTuple):
    """A port of a device: both nodes of a guest are ports of one card, or have a card each."""

    device: str
    port: int

    @property
    def sysfs(self):
        return f"/sys/class/infiniband/{self.device}/ports/{self.port}"

    def value(self, name):
        """The content of a file of the port in sysfs."""
        with open(f"{self.sysfs}/{name}", encoding="ascii") as file:
            return file.read().strip()

    @property
    def lid(self):
        return int(self.value("lid"), 16)

    @property
    def gid(self):
        return bytes.fromhex(self.value("gids/0").replace(":", ""))

    @property
    def peer(self):
        """The other end of its connections."""
        return RIGHT if self == LEFT else LEFT


def node(variable):
    device, _, port = os.environ.get(variable, "mlx4_0/1").partition("/")
    return Node(device, int(port))


LEFT, RIGHT = NODES = node("LAB_LEFT"), node("LAB_RIGHT")
CARD = RIGHT.device.partition("_")[0]


def modelled_only(what):
    """Skips the whole test where no modelled adapter can be asked."""
    if not MODEL.startswith("vmlx"):
        print(f"KTAP version 1\n1..0 # SKIP {what} needs the modelled adapter's control")
        sys.exit(4)


def ctl(*arguments, adapter=None):
    """Asks the model; about an adapter, by its number, or about the one of a guest."""
    program = f"{os.environ['LAB_BUILD_ROOT']}/{MODEL}/release/vmlxctl"
    options = [] if adapter is None else ["--hca", adapter]
    command = [program, *map(str, [*options, *arguments])]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


@functools.cache
def adapter_of(its_node):
    """The number that the model gives the adapter of a node: those of devices begin anew in each
    guest."""
    for number in range(MOST_ADAPTERS):
        if ctl("--get", f"/ports/{its_node.port - 1}/lid", "status", adapter=number) == its_node.lid:
            return number
    raise LookupError(f"no adapter of {its_node}")


def adapters():
    """Those of both nodes, each once."""
    return sorted({adapter_of(each) for each in NODES})


def ctl_each(*arguments):
    """The answers of all adapters."""
    return [ctl(*arguments, adapter=number) for number in adapters()]


def count(pointer):
    """A number that the adapters count, by its place in `vmlxctl status`."""
    return sum(ctl_each("--get", pointer, "status"))


if __name__ == "__main__":
    sys.exit("a module of the tests beside it")
