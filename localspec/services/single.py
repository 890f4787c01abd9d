"""One prompt, one answer: what `run` does between its options and its output. Knows no terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.services.chat.template import chat_ids, choose, raw_ids

if TYPE_CHECKING:
    from localspec.loop.answer import Answer
    from localspec.services.report import Report
    from localspec.services.runtime import Runtime
    from localspec.services.settings import AnswerSettings

SCHEMA = "localspec.run/1"


@dataclass(frozen=True)
class Question:
    """What is asked. raw: the text is completed as it stands; template: a format or a file for the model's own."""

    text: str
    system: str | None = None
    raw: bool = False
    template: str | None = None

    def __post_init__(self) -> None:
        if self.raw and (self.system is not None or self.template is not None):
            raise UsageError(
                "--raw completes the prompt as it stands, so there is no place for --system or --template",
                hint="Leave --raw out, or write everything into the prompt.",
            )
        if not self.raw and not self.text:
            raise UsageError(
                "the prompt is empty", hint='Give one: localspec run "Why is the sky blue?", or pipe it in.'
            )


def prompt_ids(question: Question, runtime: Runtime, report: Report) -> list[int]:
    """The prompt as the model reads it. Raises `TemplateError`, and `UsageError` when nothing is left to read."""
    if question.raw:
        ids, doubled = raw_ids(question.text, runtime.vocab, runtime.bos)
        if doubled:
            report.warn(f"The prompt begins with {runtime.bos}, so no second begin-of-text token is added.")
        return ids
    template = choose(question.template, runtime.template, bos=runtime.bos, eos=runtime.eos)
    messages = [{"role": "user", "content": question.text}]
    if question.system:
        messages.insert(0, {"role": "system", "content": question.system})
    text = template.render(messages)
    if question.system and question.system.strip() not in text:
        report.warn("This model's chat template leaves the system message out.")
    return chat_ids(text, runtime.vocab, runtime.bos)


def document(answer: Answer, question: Question, settings: AnswerSettings, runtime: Runtime) -> dict[str, Any]:
    """The answer as `run --json` prints it."""
    asked = {**asdict(settings), **asdict(settings.sampling), "acceptance": settings.rule}
    del asked["sampling"]
    asked["logit_bias"] = {str(token): biased(value) for token, value in settings.sampling.logit_bias.items()}
    return {
        "schema": SCHEMA,
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "settings": {**runtime.settings(), **asked, "system": question.system, "raw": question.raw},
        "stats": answer.stats.as_dict(),
    }


def biased(value: float) -> float | str:
    """JSON has no infinity."""
    return value if value > float("-inf") else "-inf"
