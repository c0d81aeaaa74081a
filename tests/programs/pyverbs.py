#!/usr/bin/python3
"""Runs rdma-core's own tests, those in Python, one process each.

    pyverbs.py TESTS [--only PREFIX]... [--patience SECONDS] [-- OPTIONS OF run_tests.py]

TESTS is the folder, as Debian's package rdma-core has it (files compressed or not). One line comes out for each test, as soon as it
has ended: its name, `passed`, `failed`, `skipped`, `hung` or `killed`, and the reason, with tabs between them. A test that hangs
or kills its process harms no other.
"""

import argparse
import gzip
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import unittest


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('tests')
    parser.add_argument('--only', action='append', default=[])
    parser.add_argument('--patience', type=float, default=60)
    given = sys.argv[1:]
    end = given.index('--') if '--' in given else len(given)
    ours, options = parser.parse_args(given[:end]), given[end + 1:]

    with tempfile.TemporaryDirectory() as folder:
        # One process for each test forks from this one: modules are loaded once, and no device is open yet.
        for test in load(unpacked(ours.tests, folder), options):
            name = test.id().removeprefix('tests.')
            if not ours.only or any(name.startswith(only) for only in ours.only):
                result, reason = run_alone(test, ours.patience)
                print(name, result, reason, sep='\t', flush=True)


def unpacked(source, folder):
    """Debian compresses what is documentation, and these files are to dpkg."""
    target = os.path.join(folder, 'tests')
    os.mkdir(target)
    for name in os.listdir(source):
        path = os.path.join(source, name)
        if name.endswith('.gz'):
            with gzip.open(path) as packed, open(os.path.join(target, name[:-3]), 'wb') as plain:
                shutil.copyfileobj(packed, plain)
        elif name.endswith('.py'):
            shutil.copy(path, target)
    return target


def load(folder, options):
    """Every test, as `run_tests.py` would find them with these options."""
    # Instead of this file's own folder, where `pyverbs` is this file.
    sys.path[:1] = [folder, os.path.dirname(folder)]
    sys.argv[1:] = options
    from args_parser import parser
    parser.parse_args()
    import tests
    return flat(unittest.defaultTestLoader.loadTestsFromModule(tests))


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def run_alone(test, patience):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # A group of its own: tests start processes, and all of them end with it.
        os.setsid()
        os.close(reader)
        told = run(test)
        os.write(writer, '\t'.join(told).encode())
        # Without the interpreter's farewell: what pyverbs leaves to the collector is not what the test is about.
        os._exit(0)
    os.close(writer)
    told = read(reader, time.monotonic() + patience)
    hung = told is None
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    status = os.waitpid(child, 0)[1]
    os.close(reader)
    if hung:
        return 'hung', ''
    if not told:
        return 'killed', signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else 'it left'
    return told.split('\t', 1)


def read(pipe, deadline):
    """What comes from a pipe up to its end, which the first message is; None when the time is over."""
    left = deadline - time.monotonic()
    if left > 0 and select.select([pipe], [], [], left)[0]:
        return os.read(pipe, 65536).decode()
    return None


def run(test):
    result = unittest.TestResult()
    test.run(result)
    for failures in (result.errors, result.failures):
        if failures:
            if os.environ.get('PYVERBS_VERBOSE'):
                print(failures[0][1], file=sys.stderr, flush=True)
            return 'failed', one_line(failures[0][1].strip().splitlines()[-1])
    if result.skipped:
        return 'skipped', one_line(result.skipped[0][1])
    return 'passed', ''


def one_line(text):
    return ' '.join(text.split())[:300]


if __name__ == '__main__':
    main()
