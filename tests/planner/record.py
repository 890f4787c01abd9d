"""What `replay` plays: `python -m tests.planner.record` writes it anew, with the embedded model; a few minutes.

Answers of SmolLM2-135M-Instruct (Q4_1), decoded plainly, to the prompts of bench/prompts (Spec-Bench, Apache-2.0, and
code editing), up to 192 tokens each: greedy, at T=0.8 with the default filters, and at T=1 without any. Token ids only.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

from bench.harness import CONTEXT, Size, q4_1
from bench.matrix import SAMPLINGS
from localspec.cli.console import Terminal
from localspec.services.bench import bench
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings
from tests.planner.replay import FILE

MAX_TOKENS = 192


def main() -> None:
    size = Size(repeats=1, max_tokens=MAX_TOKENS, limit=None)
    found = size.prompts("specbench12", "specbench_context8", "code_edit")
    asked = list({prompt.text: prompt for prompt in found}.values())  # the first two sets share some
    choice = replace(q4_1(), drafter="none")
    with Terminal() as terminal, Runtime.open(choice, EngineSettings(ctx_size=CONTEXT, threads=1), terminal) as runtime:
        prompts = bench.encode(runtime, bench.Request(asked, AnswerSettings()), terminal)
        answers = []
        for temperature, sampling in SAMPLINGS.items():
            for number, prompt in enumerate(prompts):
                settings = AnswerSettings(sampling=sampling, max_tokens=MAX_TOKENS, seed=number)
                stream = runtime.answer(prompt, settings, speculate=False)
                for _ in stream:
                    pass
                answers.append({"temperature": temperature, "prompt": number, "tokens": stream.answer.tokens})
                terminal.note(f"{temperature} {asked[number].category}: {len(stream.answer.tokens)} tokens")
    document = {
        "made": "SmolLM2-135M-Instruct Q4_1, plain, by python -m tests.planner.record",
        "prompts": [
            {"category": prompt.category, "tokens": tokens} for prompt, tokens in zip(asked, prompts, strict=True)
        ],
        "answers": answers,
    }
    FILE.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
