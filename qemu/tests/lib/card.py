# SPDX-License-Identifier: GPL-2.0
"""The modelled card of the guest, or a real ConnectX-3, and the model's control: for the Python
tests of any card."""

import json
import os
import subprocess
import sys

MODEL = "vmlx5" if os.environ.get("LAB_DEVICE") == "vmlx5" else "vmlx4"
CARD = MODEL[1:]
HCA = f"{CARD}_0"
# A connection is from port to port; a ConnectX-6 has one, and talks to itself.
PORTS = (1, 2) if CARD == "mlx4" else (1, 1)
# Of a guest with one node, or with both.
ADAPTERS = 1 if CARD == "mlx4" else 2
# Seconds after which a state is believed never to come, as in qemu/guest/wait.sh.
PATIENCE = int(os.environ.get("patience", 240))


def ctl(*arguments):
    """Asks the model."""
    program = f"{os.environ['LAB_BUILD_ROOT']}/{MODEL}/release/vmlxctl"
    answer = subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE)
    return json.loads(answer.stdout)


def peer_of(port):
    """The other end of a connection from `port`."""
    return PORTS[1] if port == PORTS[0] else PORTS[0]


if __name__ == "__main__":
    sys.exit("a module of the tests beside it")
