"""The jinja2 dialect that chat templates are written in, made safe to run from a file one does not know.

It offers what Hugging Face's transformers offers to a template, without access to Python. Whatever builds a value is
weighed first, so that no value gets huge, and all of a rendering together stays within `ALLOWANCE`: one step of C code
can fill any memory, or work for hours, between two looks at the clock. Knows nothing about messages.
"""

from __future__ import annotations

import functools
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
from jinja2.utils import Namespace

SIZE_LIMIT = 8_000_000
"""Weight of one value: characters of texts, `ITEM` for each place in a list."""
ALLOWANCE = 5 * SIZE_LIMIT
"""Weight of everything that one rendering builds."""
ITEM = 16
LARGEST_NUMBER_BITS = 1 << 16
WIDTH = re.compile(r"\d{1,9}")  # in a format text


class Refusal(jinja2.TemplateError):
    """The template called `raise_exception`."""


class TooLong(jinja2.TemplateError):
    """The template runs, writes or builds without end."""


class Generator(CodeGenerator):
    """Sends through the sandbox what jinja2 compiles to bare Python: `~`, comparisons, and text that is written."""

    def visit_Concat(self, node: jinja2.nodes.Concat, frame: Frame) -> None:
        self.write("environment.join((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: jinja2.nodes.Compare, frame: Frame) -> None:
        self.write("(environment.compared(")
        self.visit(node.expr, frame)
        self.write(")")
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: jinja2.nodes.Operand, frame: Frame) -> None:
        self.write(f" {OPERATORS[node.op]} environment.compared(")
        self.visit(node.expr, frame)
        self.write(")")

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.written({super()._output_const_repr(group)})"


OPERATORS = {
    "eq": "==", "ne": "!=", "gt": ">", "gteq": ">=", "lt": "<", "lteq": "<=", "in": "in", "notin": "not in",
}  # fmt: skip


class Sandbox(ImmutableSandboxedEnvironment):
    """No Python from inside, no huge value, and not too many large ones."""

    code_generator_class = Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    spent = 0

    def spend(self, weight: float) -> None:
        """Count `weight` that is built now. Raises `TooLong`."""
        fits(weight)
        self.spent += int(weight)
        if self.spent > ALLOWANCE:
            raise TooLong(f"it builds values of more than {ALLOWANCE:,} characters in all")

    def written(self, value: Any) -> Any:
        """`value`, which becomes text."""
        self.spend(weigh(value))
        return value

    def compared(self, value: Any) -> Any:
        """`value`, all of which may be looked at."""
        fits(weigh(value))
        return value

    def made(self, value: Any) -> Any:
        """`value`, which is new; what stands in a list was there before."""
        self.spend(shallow(value))
        return value

    def join(self, parts: Iterable[Any]) -> str:
        """The operator `~`."""
        return "".join([str(self.written(part)) for part in parts])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators of `intercepted_binops`."""
        self.spend(operation(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Methods such as `center` and `format`, functions and macros."""
        method = getattr(__obj, "__wrapped__", __obj)  # jinja2 wraps str.format
        subject = getattr(method, "__self__", None)
        if isinstance(subject, BUILT_IN):
            fits(result(str(getattr(method, "__name__", "")), subject, [*args, *kwargs.values()]))
        return __self.made(super().call(__context, __obj, *args, **kwargs))


SHORT = 256
BUILT_IN = (str, bytes, int, float, list, tuple, dict)


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
    sandbox.finalize = sandbox.written
    sandbox.filters["tojson"] = to_json
    tables: list[dict[str, Any]] = [sandbox.filters, sandbox.tests]
    for table in tables:
        table.update({name: frugal(sandbox, name, function) for name, function in table.items()})
    del sandbox.globals["lipsum"]
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox


def frugal(sandbox: Sandbox, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test whose values are weighed before and after."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and all(isinstance(one, str) and len(one) < SHORT for one in args):
            return function(*args)  # most of them: is this role that role?
        given = [one for one in args if not isinstance(one, jinja2.Environment | Context | jinja2.nodes.EvalContext)]
        if given:
            fits(result(name, given[0], [*given[1:], *kwargs.values()]))
        return sandbox.made(function(*args, **kwargs))

    return checked


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    """jinja2's own filter escapes HTML, which no model wants to read."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def refuse(message: str) -> NoReturn:
    """`raise_exception` of the templates."""
    raise Refusal(message)


# -- weights ----------------------------------------------------------------------------------------------------------


def fits(weight: float) -> None:
    """Raises `TooLong` for a value that is too large by itself."""
    if weight > SIZE_LIMIT:
        raise TooLong(f"it builds a value of more than {SIZE_LIMIT:,} characters")


def shallow(value: Any) -> int:
    """The weight of a value without what stands in it."""
    if isinstance(value, list | tuple | set | dict):
        return ITEM * len(value)
    return weigh(value) if isinstance(value, str | bytes | int) else 0


def weigh(*values: Any) -> int:
    """How much would be read if all of the values were written out; a list counts as often as it is referred to.

    Stops beyond `SIZE_LIMIT`. Raises `TooLong` for numbers that take C code minutes.
    """
    total, waiting = 0, list(values)
    while waiting and total <= SIZE_LIMIT:
        value = waiting.pop()
        if isinstance(value, str | bytes):
            total += len(value)
        elif isinstance(value, int):
            if value.bit_length() > LARGEST_NUMBER_BITS:
                raise TooLong("it computes with numbers of tens of thousands of digits")
            total += value.bit_length() // 3
        elif isinstance(value, list | tuple | set | frozenset):
            total += ITEM * len(value)
            waiting += value
        elif isinstance(value, dict):
            total += 2 * ITEM * len(value)
            waiting += [*value, *value.values()]
        elif isinstance(value, Namespace):
            waiting.append(object.__getattribute__(value, "_Namespace__attrs"))
    return total


def operation(operator: str, left: Any, right: Any) -> float:
    """At most the weight of `left operator right`."""
    if isinstance(left, int) and isinstance(right, int):
        bits = {"**": left.bit_length() * abs(right), "*": left.bit_length() + right.bit_length()}.get(operator, 0)
        return bits if bits <= LARGEST_NUMBER_BITS else SIZE_LIMIT + 1
    if operator == "%" and isinstance(left, str | bytes):
        return formatted(left, [right])
    if operator == "*":
        times = max([one for one in (left, right) if isinstance(one, int)], default=0)
        return (shallow(left) if times is right else shallow(right)) * max(times, 0)
    return shallow(left) + shallow(right)


FLAT = {
    "length", "count", "first", "last", "list", "selectattr", "rejectattr", "select", "reject", "map", "reverse",
    "items", "default", "d", "attr", "batch", "slice", "get", "keys", "values", "defined", "none", "undefined",
    "mapping", "iterable", "sequence", "number", "boolean", "true", "false",
}  # fmt: skip
"""Filters, tests and methods that look at a list without going into what stands there."""


def result(name: str, subject: Any, arguments: list[Any]) -> float:
    """At most the weight of what the method or filter `name` makes of `subject`."""
    numbers = largest(arguments)
    if name in FLAT:
        spread = ITEM if name in ("list", "batch", "slice") and isinstance(subject, str | bytes) else 1
        return spread * sum(map(shallow, [subject, *arguments])) + ITEM * numbers
    sizes = weigh(subject, *arguments)
    if name == "join":
        parts, glue = (arguments[:1], subject) if isinstance(subject, str | bytes) else ([subject], arguments[:1])
        count = max((len(part) for part in parts if hasattr(part, "__len__")), default=0)
        return sizes + count * weigh(glue)
    if name in ("replace", "translate", "expandtabs", "indent", "wordwrap"):
        # Every character may become the largest thing that is given.
        longest = max((weigh(one) for one in each(arguments)), default=0)
        return sizes + _len(subject) * max(longest, numbers if name in ("expandtabs", "indent") else 0)
    if name in ("format", "format_map"):
        return formatted(subject, arguments)
    if name in ("split", "rsplit", "splitlines") and isinstance(subject, str):
        at = [arguments[0]] if arguments and isinstance(arguments[0], str) and arguments[0] else [*" \t\n\r"]
        return sizes + ITEM * sum(map(subject.count, "\n\r" if name == "splitlines" else at))
    return sizes + numbers


def formatted(form: Any, arguments: list[Any]) -> float:
    """At most the weight of a format text with its fields filled in."""
    text = form if isinstance(form, str) else str(form)
    fields = text.count("%") + text.count("{")
    widest = max((int(width) for width in WIDTH.findall(text)), default=0)
    return len(text) + fields * (weigh(*arguments) + largest(arguments) + widest)


def largest(arguments: list[Any]) -> int:
    """The largest whole number among the arguments, which may be a width."""
    return max((abs(one) for one in each(arguments) if isinstance(one, int)), default=0)


def each(arguments: list[Any]) -> list[Any]:
    """The arguments, and what stands in the lists and tables among them."""
    found: list[Any] = []
    for one in arguments:
        found += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else [one]
    return found


def _len(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else weigh(value)
