"""Run as a script: become the given command, which the kernel kills when the process that started it ends.

A test process that is killed hard cannot stop its brokers; so the kernel does (Linux; elsewhere the next stack sweeps
them up). A script between parent and JVM, as `preexec_fn` may deadlock, and warns, once the parent has threads. The
kernel looks at the parent's *thread*: start brokers from one that lives as long as they should.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arguments: the parent's process id, the program's path and its arguments."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it ended before the kernel knew what to do
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
