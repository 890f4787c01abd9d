"""Runs one localspec command in this process and says how much memory it took: `python -m bench.memory_probe run ...`.

Writes one JSON object to standard error after the command: the peak of the process, and what llama.cpp logged as its
own buffers (weights, cache, compute, output).
"""

from __future__ import annotations

import json
import logging
import re
import sys

from localspec.cli.app import main
from localspec.services.bench.facts import peak_rss_mb

BUFFER = re.compile(r"(?P<what>[\w:. ]*buffer) size =\s*(?P<size>[\d.]+) MiB")


class Buffers(logging.Handler):
    """Collects the buffers that llama.cpp says it allocated, in MB (10^6 bytes); the last size of each counts."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.sizes: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        match = BUFFER.search(record.getMessage())
        if match:
            self.sizes[match["what"].split(":")[-1].strip()] = float(match["size"]) * 2**20 / 1e6


if __name__ == "__main__":
    log = logging.getLogger("localspec.llama_cpp")
    buffers = Buffers()
    log.addHandler(buffers)
    log.setLevel(logging.DEBUG)
    code = main(sys.argv[1:])
    sys.stderr.write(json.dumps({"code": code, "peak_rss_mb": peak_rss_mb(), "buffers_mb": buffers.sizes}) + "\n")
