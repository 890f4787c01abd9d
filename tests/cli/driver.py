"""The command line over a runtime whose answers are written down: run as a program by the tests of terminals and pipes.

The scripts come as JSON in FAKE_SCRIPTS: [{"text": .., "pause_s": .., ..}]; FAKE_RUNTIME holds other arguments.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

from localspec.cli.app import main


class Opener:
    """Stands in for `services.runtime.Runtime`."""

    @staticmethod
    def open(choice: Any, engine: Any, report: Any) -> Any:
        from tests.services.fakes import FakeRuntime, Script

        report.progress("Loading fake.gguf", 1, 2, "bytes")
        report.progress("Loading fake.gguf", 2, 2, "bytes")
        scripts = [Script(**script) for script in json.loads(os.environ["FAKE_SCRIPTS"])]
        return FakeRuntime(scripts, **json.loads(os.environ["FAKE_RUNTIME"]))


if __name__ == "__main__":
    # In place of the whole module, so that a program starts without llama.cpp.
    module = types.ModuleType("localspec.services.runtime")
    module.Runtime = Opener  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    sys.exit(main())
