#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""run_pyverbs.py DIRECTORY [OPTION…] [!TEST…] NAME…

Runs tests of rdma-core's own suite, which is in DIRECTORY, with the options of its run_tests.py:
modules, classes or single tests, except each !TEST. Prints a line for each, "NAME: RESULT", and at
last "COUNT tests". The tests of a module have a process of their own, which ends with the last one:
pyverbs can crash when Python collects at its end what tests have left. Until then the objects of
verbs that a test has left are closed after it, in order.
"""

import gc
import importlib.util
import itertools
import os
import signal
import sys
import traceback
import unittest

# After so many seconds a test hangs.
PATIENCE = 600
# So many a completion is waited for: the suite's own 5 and 10 are few for a guest on a busy host.
COMPLETION = 120

lines = os.fdopen(os.dup(1), "w")
# Tests print as well.
os.dup2(2, 1)


def say(line):
    print(line, file=lines, flush=True)


def close_objects():
    """Closes the objects of verbs that a test has left, the newest first. Most are in cycles, as
    the test refers to them and they to each other, and Python's collector ends a cycle in any
    order: a context before its CQs, say, whose doorbells are in pages that libmlx5 frees with the
    context."""
    objects = reversed(gc.get_objects(generation=0))
    left = [item for item in objects if isinstance(item, PyverbsCM)]
    # A CMID owns its context, which is newer.
    for item in sorted(left, key=lambda item: not isinstance(item, CMID)):
        try:
            item.close()
        except PyverbsError:
            traceback.print_exc()
    gc.collect()


class Results(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        signal.alarm(PATIENCE)

    def stopTest(self, test):
        super().stopTest(test)
        close_objects()

    def result(self, test, said, error=None):
        say(f"{test.id()}: {said}")
        if error:
            print(f"{test.id()}:", file=sys.stderr)
            traceback.print_exception(*error)

    def addSuccess(self, test):
        self.result(test, "ok")

    def addSkip(self, test, reason):
        self.result(test, f"skipped, {reason}")

    def addFailure(self, test, error):
        self.result(test, "failed", error)

    def addError(self, test, error):
        self.result(test, "error", error)

    def addSubTest(self, test, subtest, error):
        if error:
            self.result(subtest, "failed", error)


def package(directory):
    """Its __init__.py imports all modules of the suite, by the name "tests"."""
    sys.path[0] = directory
    spec = importlib.util.spec_from_file_location("tests", f"{directory}/__init__.py",
                                                  submodule_search_locations=[directory])
    sys.modules["tests"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["tests"])
    for name in "tests.utils", "tests.mlx5_base":
        sys.modules[name].POLL_CQ_TIMEOUT = COMPLETION


def each(suite):
    for test in suite:
        yield from each(test) if isinstance(test, unittest.TestSuite) else [test]


package(sys.argv.pop(1))
import args_parser  # noqa: E402, of the suite
from pyverbs.base import PyverbsCM  # noqa: E402
from pyverbs.cmid import CMID  # noqa: E402
from pyverbs.pyverbs_error import PyverbsError  # noqa: E402

args_parser.parser.parse_args()
load = unittest.defaultTestLoader.loadTestsFromNames
left_out = {name[1:] for name in sys.argv[1:] if name.startswith("!")}
names = [test.id() for test in each(load(name for name in sys.argv[1:] if not name.startswith("!")))]
names = [name for name in names if name not in left_out]
for module, tests in itertools.groupby(names, lambda name: name.rsplit(".", 2)[0]):
    child = os.fork()
    if not child:
        gc.collect()
        gc.disable()
        # Nothing else refers to the tests, so that each and what it used end together.
        load(list(tests)).run(Results())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        say(f"{module}: crashed, {os.waitstatus_to_exitcode(status)}")
say(f"{len(names)} tests")
