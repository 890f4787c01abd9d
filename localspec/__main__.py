"""`python -m localspec` is the command `localspec`."""

from __future__ import annotations

import sys

from localspec.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
