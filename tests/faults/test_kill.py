"""kill -9 while files are written: a few trials in every run; `python -m tests.faults.kill --trials 200` does more."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.cli.programs import ROOT

CARELESS = {
    "talk": """
def careless(path, system, turns):
    with open(path, "w") as file:
        for part in json.dumps({"schema": chat_file.SCHEMA, "messages": chat_file.messages(system, turns)}):
            file.write(part)
            file.flush()
chat_file.write = careless
""",
    "download": """
from localspec.catalog import partial
def careless(partial, url, name, *, size, hub, progress):
    from huggingface_hub import get_session
    data = get_session().get(url).content
    final = partial.with_name(partial.name.split(".")[0])
    with final.open("wb") as file:
        for at in range(0, len(data), 50):
            file.write(data[at : at + 50])
            file.flush()
    partial.write_bytes(data)
from localspec.catalog import hub
hub.stream_to = careless
""",
}


def run(code: str, trials: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, "--trials", str(trials)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_b71_killed_at_any_moment_nothing_is_lost_or_half_written() -> None:
    done = run("from tests.faults.kill import main; raise SystemExit(main())", 16)
    assert done.returncode == 0, done.stdout + done.stderr
    kills, hits = map(int, re.findall(r"(\d+) kills, (\d+) in", done.stdout)[0])
    assert hits > kills // 3, "most of them came too late to say anything"


@pytest.mark.parametrize("job", CARELESS)
def test_the_trials_would_notice_files_that_are_written_in_place(job: str) -> None:
    chat_file = "from localspec.services.chat import file as chat_file"
    code = f"import json\n{chat_file}\nfrom tests.faults import kill\n{CARELESS[job]}"
    done = run(f"{code}\nkill.JOBS = {{{job!r}: kill.JOBS[{job!r}]}}\nraise SystemExit(kill.main())", 12)
    assert done.returncode == 1, done.stdout + done.stderr
