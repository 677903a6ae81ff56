"""`python -m komainu.agent [CONFIG] [--once] [--accept-gpus] [--accept-state]`:
what `komainu agent` becomes.

A program of its own that never imports the command line, so that it stays small.
"""

import os
import sys


def _main() -> None:
    # Where other programs share this environment, structlog would load rich for its console: 5 MB.
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    from komainu.agent.process import main

    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Not sys.exit: a probe hanging on a dead device must not hold up the end of the process.
    os._exit(status)


if __name__ == "__main__":
    _main()
