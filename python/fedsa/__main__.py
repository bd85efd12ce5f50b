"""The program ``fedsa``: ``python -m fedsa``, and the console command of the package."""

from __future__ import annotations

import signal
import sys

from fedsa import _fedsa


def main() -> int:
    """Run the program with the arguments of the process.

    Returns
    -------
    int
        The exit status: 0 done, 1 not as expected, 2 bad input, 3 machine failure, 130 interrupted.
    """
    # The program handles Ctrl-C itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _fedsa.main(["fedsa", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
