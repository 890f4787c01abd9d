"""The jinja2 dialect that chat templates are written in, made safe to run from a file one does not know.

It offers what Hugging Face's transformers offers to a template, without access to Python, and refuses to build huge
values. Knows nothing about messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

SIZE_LIMIT = 8_000_000  # characters or items of one value
WIDE = re.compile(r"\d{7,}")  # a width in a format text that would exceed it


class Refusal(jinja2.TemplateError):
    """The template called `raise_exception`."""


class TooLong(jinja2.TemplateError):
    """The template runs, writes or builds without end."""


class Generator(CodeGenerator):
    """Sends the `~` of templates through the sandbox as well: doubling a text forty times fills any memory."""

    def visit_Concat(self, node: jinja2.nodes.Concat, frame: Frame) -> None:
        self.write("environment.join((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """No Python from inside, and no value larger than `SIZE_LIMIT`."""

    code_generator_class = Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def join(self, parts: Iterable[Any]) -> str:
        """The operator `~`."""
        texts = [str(part) for part in parts]
        fits(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators of `intercepted_binops`."""
        sizes = [len(value) for value in (left, right) if isinstance(value, str | bytes | list | tuple)]
        if operator == "+":
            fits(sum(sizes))
        elif operator == "*" and sizes:
            fits(sizes[0] * max([value for value in (left, right) if isinstance(value, int)], default=0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            fits(left.bit_length() * abs(right))
        elif operator == "%" and isinstance(left, str):
            narrow(left)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Methods such as `center` and `format`."""
        method = getattr(__obj, "__wrapped__", __obj)  # jinja2 wraps str.format
        moderate(getattr(method, "__self__", None), *args, *kwargs.values())
        return super().call(__context, __obj, *args, **kwargs)


class GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here its content is just written."""

    tags = {"generation"}  # noqa: RUF012 - the name and kind are jinja2's

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> Sandbox:
    """A fresh sandbox."""
    sandbox = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, GenerationBlock], autoescape=False
    )
    sandbox.filters["tojson"] = to_json
    for name in ("center", "format", "indent"):
        sandbox.filters[name] = moderately(sandbox.filters[name])
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    """jinja2's own filter escapes HTML, which no model wants to read."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def refuse(message: str) -> NoReturn:
    """`raise_exception` of the templates."""
    raise Refusal(message)


def moderately(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that looks at its arguments first."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        moderate(*args, *kwargs.values())
        return function(*args, **kwargs)

    return checked


def moderate(subject: Any, *arguments: Any) -> None:
    """Raise `TooLong` when a number among the arguments, or a width in a format text, asks for a huge result."""
    if isinstance(subject, str):
        if (arguments and "{" in subject) or "%" in subject:
            narrow(subject)
        for argument in arguments:
            if isinstance(argument, int):
                fits(abs(argument))


def narrow(form: str) -> None:
    if WIDE.search(form):
        raise TooLong("it formats text with a width of millions")


def fits(size: float) -> None:
    if size > SIZE_LIMIT:
        raise TooLong(f"it builds a value of more than {SIZE_LIMIT:,} characters")
