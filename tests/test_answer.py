"""From an answer to the code in it: every spelling that models use, and none of the code rewritten."""

from __future__ import annotations

import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.answer.extract import FALLBACK_RULES, Answer, extract

F = "`" * 3


def fenced(code: str, tag: str = "python", mark: str = F) -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


def run(code: str | None) -> dict[str, object]:
    assert code is not None
    space: dict[str, object] = {"__name__": "solution"}
    exec(compile(code, "solution.py", "exec"), space)
    return space


# Drafts, usage and tests around the answer.

DRAFT = "def clamp(x, lo, hi):\n    return min(lo, max(hi, x))\n"
CLAMP = "def clamp(x, lo, hi):\n    return max(lo, min(hi, x))\n"
CORRECTED = f"A first try:\n{fenced(DRAFT)}The bounds are swapped. This one is right:\n{fenced(CLAMP)}"


@pytest.mark.parametrize(
    "draft", [DRAFT, "def clamp(x, lo, hi:\n    retrun x\n", DRAFT + "raise SystemExit(1)\n"], ids=["a", "b", "c"]
)
def test_the_last_block_wins_over_a_draft(draft: str) -> None:
    answer = extract(CORRECTED.replace(DRAFT, draft), "clamp")
    assert (answer.code, answer.rule, answer.n_blocks) == (CLAMP, "last_block_defining_entry", 2)


def test_two_alternatives_the_last_is_final() -> None:
    other = "def clamp(x, lo, hi):\n    return sorted((lo, x, hi))[1]\n"
    assert extract(f"{fenced(CLAMP)}Or, as an alternative:\n{fenced(other)}", "clamp").code == other


SLUG = "import re\n\ndef slugify(s):\n    return re.sub(r'[^a-z0-9]+', '-', s.lower()).strip('-')\n"
OWN_TESTS = "import pytest\nfrom mymodule import slugify\n\ndef test_slugify():\n    assert slugify('') == 'empty'\n"


def test_usage_first_and_tests_last_are_left_out() -> None:
    text = (
        f"Call it so:\n{fenced('print(slugify(1))' + chr(10))}\n{fenced('pip install x' + chr(10), 'bash')}"
        f"The code:\n{fenced(SLUG)}\nA check:\n{fenced(OWN_TESTS)}"
    )
    answer = extract(text, "slugify")
    assert (answer.code, answer.rule, answer.n_blocks) == (SLUG, "last_block_defining_entry", 4)


def test_helper_in_an_earlier_block() -> None:
    helper = "def _clean(s):\n    return ''.join(c if c.isalnum() else ' ' for c in s.lower())\n"
    main = "def slugify(s):\n    return '-'.join(_clean(s).split())\n"
    answer = extract(f"Helper:\n{fenced(helper)}Main:\n{fenced(main)}", "slugify")
    assert answer.rule == "with_earlier_helpers"
    assert answer.code == helper + "\n" + main
    assert run(answer.code)["slugify"]("Hello,  World!") == "hello-world"  # type: ignore[operator]


def test_helpers_of_helpers_and_only_what_is_needed() -> None:
    unused = "def unused():\n    raise SystemExit\n"
    text = (
        fenced("BASE = 2\n")
        + fenced(unused)
        + fenced("def g():\n    return BASE\n")
        + fenced("def f():\n    return g()\n")
    )
    answer = extract(text, "f")
    assert answer.code == "BASE = 2\n\ndef g():\n    return BASE\n\ndef f():\n    return g()\n"


def test_helper_in_a_draft_comes_without_the_draft() -> None:
    draft = (
        "import re\n\ndef _cut(s):\n    return re.sub('a', 'b', s)\n\n"
        "def f(s):\n    return 0\n\nprint(f(1))\nraise SystemExit\n"
    )
    answer = extract(
        f"{fenced(draft)}Only f changes:\n{fenced('def f(s):' + chr(10) + '    return _cut(s)' + chr(10))}", "f"
    )
    assert answer.rule == "with_earlier_helpers"
    assert answer.code is not None and "SystemExit" not in answer.code and "return 0" not in answer.code
    assert run(answer.code)["f"]("a") == "b"  # type: ignore[operator]


def test_helper_in_a_later_block_is_a_fallback() -> None:
    text = fenced("def f():\n    return g()\n") + "with\n" + fenced("def g():\n    return 5\n")
    answer = extract(text, "f")
    assert answer.rule == "with_later_helpers" in FALLBACK_RULES
    assert run(answer.code)["f"]() == 5  # type: ignore[operator]


def test_future_import_stays_first_when_blocks_are_joined() -> None:
    main = "from __future__ import annotations\n\ndef f(x: int) -> int:\n    return g(x)\n"
    answer = extract(fenced("def g(x):\n    return x + 1\n") + fenced(main), "f")
    assert run(answer.code)["f"](1) == 2  # type: ignore[operator]


def test_class_that_extends_the_one_of_an_earlier_block() -> None:
    first = "class Q:\n    def add(self):\n        return 1\n"
    second = "class Q(Q):\n    def more(self):\n        return self.add() + 1\n"
    answer = extract(fenced(first) + "Extended:\n" + fenced(second), "Q")
    assert run(answer.code)["Q"]().more() == 2  # type: ignore[operator]


def test_entries_in_several_blocks() -> None:
    job = "from dataclasses import dataclass\n\n@dataclass\nclass Job:\n    id: str\n"
    policy = "class RetryPolicy:\n    def run(self):\n        return 4\n"
    queue = (
        "class JobQueue:\n    def __init__(self):\n        self.policy = RetryPolicy()\n        self.job = Job('a')\n"
    )
    text = "".join(f"{n}:\n{fenced(c)}" for n, c in (("a", job), ("b", policy), ("c", queue)))
    answer = extract(text + fenced("q = JobQueue()\nprint(q.policy.run())\n"), ("Job", "RetryPolicy", "JobQueue"))
    assert answer.rule == "entry_across_blocks"
    assert answer.code == f"{job}\n{policy}\n{queue}"


def test_correction_of_one_class_keeps_the_others() -> None:
    full = "class Job:\n    pass\n\nclass Q:\n    size = 0\n"
    fix = "class Q:\n    size = 1\n"
    answer = extract(fenced(full) + "Q was wrong:\n" + fenced(fix), ("Job", "Q"))
    assert run(answer.code)["Q"].size == 1  # type: ignore[attr-defined]
    assert extract(
        fenced(full) + "again, whole:\n" + fenced(full.replace("0", "2")), ("Job", "Q")
    ).code == full.replace("0", "2")


def test_an_entry_that_is_missing_is_said() -> None:
    answer = extract(fenced("def process_job(q):\n    return True\n"), ("JobQueue", "process_job"))
    assert (answer.status, answer.rule) == ("code", "entry_partly_found")


DEFINITIONS = {
    "async": "async def f():\n    return 1\n",
    "lambda": "f = lambda: 1\n",
    "assigned": "import functools\nf = functools.partial(int, 1)\n",
    "annotated": "from typing import Callable\nf: Callable = lambda: 1\n",
    "decorated": "import functools\n\n@functools.cache\ndef f():\n    return 1\n",
    "in_try": "try:\n    import nothing\nexcept ImportError:\n    def f():\n        return 1\n",
    "in_if": "import sys\nif sys.version_info > (3,):\n    def f():\n        return 1\nelse:\n    f = None\n",
    "imported": "from math import gcd as f\n",
    "class": "class f:\n    pass\n",
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_ways_to_define_the_entry(name: str) -> None:
    usage = fenced("print(f())\n")
    assert extract(fenced(DEFINITIONS[name]) + usage, "f").code == DEFINITIONS[name]
    assert extract(DEFINITIONS[name], "f") == Answer("code", DEFINITIONS[name], "unfenced")


NOT_DEFINITIONS = {
    "main_guard": "if __name__ == '__main__':\n    def f():\n        return 2\n",
    "nested": "def g():\n    def f():\n        return 2\n    return f\n",
    "method": "class A:\n    def f(self):\n        return 2\n",
    "import_of_itself": "from solution import f\nassert f() == 1\n",
    "stub": 'def f():\n    """As above."""\n    ...\n',
    "not_implemented": "def f():\n    raise NotImplementedError('see above')\n",
    "signature": "def f() -> int\n",
    "traceback": "Traceback (most recent call last):\n  File 'x.py', line 1\nNameError: f\n",
    "session": ">>> def f():\n...     return 2\n>>> f()\n2\n",
    "diff": "-def f():\n-    return 1\n+def f():\n+    return 2\n",
    "output": "1\n",
}


@pytest.mark.parametrize("name", NOT_DEFINITIONS)
@pytest.mark.parametrize("tag", ["python", ""])
def test_what_does_not_define_the_entry(name: str, tag: str) -> None:
    code = "def f():\n    return 1\n"
    answer = extract(fenced(code) + "Then:\n" + fenced(NOT_DEFINITIONS[name], tag), "f")
    assert (answer.code, answer.rule) == (code, "last_block_defining_entry")


def test_final_block_that_does_not_parse_is_a_visible_fallback() -> None:
    text = fenced(CLAMP) + "Better:\n" + fenced("def clamp(x, lo, hi):\n    return max(lo, min(hi, x)\n")
    answer = extract(text, "clamp")
    assert (answer.code, answer.rule) == (CLAMP, "earlier_block_parses")
    only = extract(fenced("def clamp(x:\n    return 1\n"), "clamp")
    assert (only.status, only.rule, only.code) == ("code", "entry_in_broken_code", "def clamp(x:\n    return 1\n")


def test_no_block_defines_the_entry() -> None:
    answer = extract(fenced("def other():\n    return 1\n") + fenced("x = (\n"), "f")
    assert (answer.status, answer.rule, answer.code) == ("code", "entry_not_found", "def other():\n    return 1\n")
    assert extract(fenced("print(1)\n") + fenced("def g(): pass\n"), "f").code == "def g(): pass\n"
    assert extract(fenced('{"a": 1}\n', "json"), "f").status == "no_code"
    assert extract("I am not able to do that.", "f").status == "no_code"
    assert extract("Done", "f").status == "no_code"


# Spellings of the fence.

BODY = "def one():\n    if True:\n        return 1\n"
BLOCK = f"{F}python\n{BODY}{F}"
SPELLINGS = {
    "capital_digit": f"{F}Python3\n{BODY}{F}",
    "short": f"{F}py\n{BODY}{F}",
    "version": f"{F}Python 3.11\n{BODY}{F}",
    "space_before_tag": f"{F} python\n{BODY}{F}",
    "space_after_tag": f"{F}python  \n{BODY}{F}  ",
    "attributes": f"{F}{{.python .numberLines}}\n{BODY}{F}",
    "braces": f"{F}{{python}}\n{BODY}{F}",
    "title": f'{F}python title="solution.py"\n{BODY}{F}',
    "title_only": f'{F}title="solution.py"\n{BODY}{F}',
    "file_name": f"{F}solution.py\n{BODY}{F}",
    "tag_and_file": f"{F}python:src/solution.py\n{BODY}{F}",
    "unknown_tag": f"{F}solution\n{BODY}{F}",
    "no_tag": f"{F}\n{BODY}{F}",
    "tilde": f"~~~python\n{BODY}~~~",
    "five_marks": f"`````python\n{BODY}`````",
    "longer_end": f"{F}python\n{BODY}{F}``",
    "crlf": f"Here:\n{BLOCK}\nBye".replace("\n", "\r\n"),
    "cr": f"Here:\n{BLOCK}\nBye".replace("\n", "\r"),
    "bom": "\ufeff" + BLOCK,
    "zero_width": "\u200b" + BLOCK,
    "nbsp_indent": "1. So:\n\n" + "\u00a0\u00a0\u00a0" + BLOCK.replace("\n", "\n\u00a0\u00a0\u00a0") + "\n",
    "list_item": "1. Do this:\n\n   " + BLOCK.replace("\n", "\n   ") + "\n2. Done",
    "list_item_tab": "-\tStep\n\n\t" + BLOCK.replace("\n", "\n\t") + "\n",
    "list_item_deep": "- a\n  - b\n\n      " + BLOCK.replace("\n", "\n      ") + "\n",
    "list_marker_line": "1. " + BLOCK.replace("\n", "\n   ") + "\n2. Done",
    "fence_indented_code_not": f"   {F}python\n{BODY}   {F}\n",
    "code_indented_fence_not": f"{F}python\n" + textwrap.indent(BODY, "    ") + F,
    "quote": "> " + BLOCK.replace("\n", "\n> ") + "\n\nSo much.",
    "quote_tight": ">" + BLOCK.replace("\n", "\n>") + "\n",
    "quote_of_a_list": "> - " + BLOCK.replace("\n", "\n>   ") + "\n",
    "quote_ends_the_block": "> " + BLOCK.removesuffix(F).rstrip().replace("\n", "\n> ") + "\n\nThat was all.",
    "other_language_last": f"{BLOCK}\n{F}c++\nint one() {{ return 1; }}\n{F}\n{F}json\n{{}}\n{F}",
    "unclosed": f"Here:\n{F}python\n{BODY}",
    "end_on_code_line": f"{F}python\n{BODY.rstrip()}{F}\nThat was it.",
    "text_after_end": f"{F}python\n{BODY}{F} This gives one.\n\n{F}python\nprint(one())\n{F}",
    "end_token": f"{BLOCK}<|im_end|>",
    "end_tokens": f"{BODY}<|im_end|>\n<|endoftext|>\n",
    "code_on_fence_line": f"{F}python def one():\n    if True:\n        return 1\n{F}",
    "markdown_longer": f"`````markdown\n# T\n\n{BLOCK}\n`````\n",
    "markdown_same": f"{F}markdown\n# T\n\n{BLOCK}\n\nmore\n{F}\nBye\n",
    "markdown_same_then_bare": f"{F}markdown\n# T\n{F}bash\nls\n{F}\n{F}\nCode:\n{F}\n{BODY}{F}\n",
    "longer_around": f"````\n{BLOCK}\n````\n",
    "mislabelled": f"{F}text\n{BODY}{F}",
    "stray_fence_first": f"{F}\n{BLOCK}",
    "left_open_before": f"{F}python\nx = 1\n\nThe real one:\n{BLOCK}\n",
    "left_open_bare": f"{F}python\nx = (\n\nThe real one:\n{F}\n{BODY}{F}\n",
    "interpreter_session": f"{F}python\n>>> def one():\n...     if True:\n...         return 1\n...\n>>> one()\n1\n{F}",
    "unfenced": BODY,
    "unfenced_prose": f"The function is short.\n\n{BODY}\nIt always gives one.\n",
    "unfenced_with_usage_block": f"It's short:\n\n{BODY}\nUse it:\n{F}python\nprint(one())\n{F}\n",
    "unfenced_blank_lines": f"\n\n{BODY}\n\n",
    "unfenced_in_tag": f"<answer>\n{BODY}</answer>",
    "one_word_sentence": f"Sure\n{BODY}Done\n",
    "bracket_prose": f"Note: this (roughly\n\n{BODY}\nHello, world\n",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_the_fence(name: str) -> None:
    answer = extract(SPELLINGS[name], "one")
    assert answer.status == "code"
    if name == "interpreter_session":
        assert answer.rule == "interpreter_session"
        assert (answer.code or "").startswith(BODY)
    else:
        assert answer.code == BODY, answer.rule
    assert run(answer.code)["one"]() == 1  # type: ignore[operator]


INSIDE = {
    "docstring": f'def one():\n    """One.\n\n    {F}python\n    one()\n    {F}\n    """\n    return 1\n',
    "module_docstring": f'"""Doc.\n\n{F}\nexample\n{F}\n"""\n\ndef one():\n    return 1\n',
    "template": f"T = '''\n{F}json\n{{}}\n{F}\n'''\n\ndef one():\n    return 1\n",
    "plain_string": f"MARK = '{F}'\n\ndef one():\n    return 1\n",
    "comment": f"# {F}\ndef one():\n    return 1\n",
    "separators": "S = 'a\u2028b\u0085c\x0c'\n\ndef one():\n    return 1\n",
    "tabs": "def one():\n\tif True:\n\t\treturn 1\n",
    "own_tests_last": "def one():\n    return 1\n\nassert one() == 1\nprint('ok')\n",
    "blank_ends": "\n\ndef one():\n    return 1\n\n\n",
    "escape_warning": "import re\n\ndef one():\n    return 1 if re.match('\\d', '1') else 0\n",
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("around", ["", "1. So:\n\n", "text\n"])
def test_code_is_never_touched(name: str, around: str) -> None:
    code = INSIDE[name]
    after = "\nThat was it.\n\n" + fenced("print(one())\n") if around else ""
    answer = extract(around + fenced(code) + after, "one")
    assert answer.code == code
    assert answer.rule == "last_block_defining_entry"


def test_fences_in_a_docstring_of_code_without_a_fence() -> None:
    assert extract(INSIDE["docstring"], "one").code == INSIDE["docstring"]
    assert extract("Here it is.\n\n" + INSIDE["docstring"], "one").code == INSIDE["docstring"]


def test_string_left_open_in_a_draft_does_not_swallow_the_answer() -> None:
    draft = 'def one():\n    """never closed\n    return 0\n'
    good = 'def one():\n    """Closed."""\n    return 1\n'
    assert extract(fenced(draft) + "Again:\n" + fenced(good), "one").code == good


def test_unfenced_code_with_imports_helpers_and_comments() -> None:
    code = "import re\n\n# Digits only.\nPATTERN = re.compile(r'\\d+')\n\n\ndef _h(s):\n    return PATTERN.findall(s)\n"
    code += "\n\n@staticmethod\ndef f(s):\n    return _h(s)\n"
    answer = extract(f"Here's what I'd do:\n\n{code}\nThis doesn't use loops.\n", "f")
    assert answer.code == code


def test_unfenced_code_that_does_not_parse_is_still_code() -> None:
    text = "def f(x):\n    return (x\n"
    answer = extract(text, "f", finish_reason="length")
    assert (answer.status, answer.code, answer.rule, answer.truncated) == ("code", text, "unfenced_broken", True)
    assert extract("The function:\n\n" + text + "\nDone.", "f").code == text


def test_cut_in_the_last_block() -> None:
    text = fenced(CLAMP) + f"Shorter:\n{F}python\ndef clamp(x, lo, hi):\n    return max(lo"
    answer = extract(text, "clamp", finish_reason="length")
    assert (answer.code, answer.truncated, answer.rule) == (CLAMP, True, "earlier_block_parses")


# Reasoning.

LEAP = "def is_leap(y):\n    return y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)\n"


def test_content_alone_is_graded() -> None:
    answer = extract(LEAP, "is_leap")
    assert (answer.code, answer.answer_source) == (LEAP, "content")
    assert extract("", "is_leap", finish_reason="length") == Answer("no_answer", None, "no_answer", truncated=True)
    assert extract(None, "is_leap") == Answer("no_answer", None, "no_answer")
    assert extract(" \n\t<|im_end|>\n", "is_leap").status == "no_answer"
    assert extract(fenced(LEAP), "is_leap").code == LEAP


BAD = fenced("def strip_tags(s):\n    return s\n")
CODE = 'import re\n\ndef strip_tags(s):\n    return re.sub(r"<think>.*?</think>", "", s, flags=re.S)\n'
DOC = 'EXAMPLE = """\n<think>\nhm\n</think>\n"""\n\n' + CODE
GOOD = fenced(CODE)
THOUGHTS = {
    "pair": f"<think>\n{BAD}no, wrong\n</think>\n{GOOD}",
    "closing_only": f"{BAD}no, wrong\n</think>\n\n{GOOD}",
    "empty_pair": f"<think>\n\n</think>\n{GOOD}",
    "literal_only": f"Here you go:\n{GOOD}",
    "closing_quoted_twice": f"<think>emit </think> later\n{BAD}</think>\n{GOOD}",
    "draft_fence_left_open": f"<think>\n{F}python\ndef strip_tags(s): return s\nhm\n</think>\n{GOOD}",
    "draft_fence_left_open_then_bare": f"<think>\n{F}python\ndef strip_tags(s): 1\nhm\n</think>\n{F}\n{CODE}{F}\n",
    "pair_on_one_line": f"<think>short</think>{GOOD}",
    "closing_at_line_end": f"{BAD}no, wrong.</think>\n\n{GOOD}",
    "closing_in_line": f"{BAD}no, wrong.</think>Here it is:\n{GOOD}",
    "final_without_fence": f"<think>\n{BAD}</think>\n\n{CODE}",
    "final_without_fence_closing_only": f"{BAD}so be it\n</think>\n\n{CODE}",
    "all_code": CODE,
    "mention_before": f"This removes everything between <think> and </think>:\n{GOOD}",
    "mention_after": f"{GOOD}It removes `<think>` and `</think>` with what is between.\n",
    "mention_after_bare": f"{GOOD}It cuts from <think> up to </think>.\n",
    "mention_end": f"{GOOD}It also handles a lone </think>.\n",
    "mention_quoted": f"{GOOD}A text without '</think>' is returned as it is.\n",
    "example_block_after": f"{GOOD}For example\n{F}text\n<think>\nx\n</think>\nok\n{F}\ngives ok.\n",
    "other_names": f"<thinking>\n{BAD}</thinking>\n{GOOD}",
    "reasoning_tag": f"<reasoning>\n{BAD}</reasoning>\n{GOOD}",
    "capital": f"<Think>\n{BAD}</Think>\n{GOOD}",
    "brackets": f"[THINK]{BAD}[/THINK]{GOOD}",
    "channel": f"<|channel>thought\n{BAD}<channel|>{GOOD}",
    "harmony": f"<|channel|>analysis<|message|>{BAD}<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{GOOD}<|return|>",
    "twice": f"<think>\n{BAD}</think>\nwait\n<think>\n{BAD}</think>\n{GOOD}",
    "crlf": f"<think>\n{BAD}</think>\n{GOOD}".replace("\n", "\r\n"),
    "quoted_fence_in_reasoning": f"<think>\nI will use {F} at the start\n{F}\n</think>\n{GOOD}",
}


@pytest.mark.parametrize("name", THOUGHTS)
def test_reasoning_in_the_content(name: str) -> None:
    answer = extract(THOUGHTS[name], "strip_tags")
    assert answer.code == CODE
    assert answer.think_unclosed is False
    assert run(answer.code)["strip_tags"]("a<think>b</think>c") == "ac"  # type: ignore[operator]


@pytest.mark.parametrize("wrap", ["{}", "<think>\nhm\n</think>\n{}", "hm\n</think>\n{}"])
def test_tags_at_line_starts_inside_a_string_are_code(wrap: str) -> None:
    assert extract(wrap.format(fenced(DOC)), "strip_tags").code == DOC


def test_unclosed_reasoning() -> None:
    stopped = extract(f"<think>short thought\n{GOOD}", "strip_tags")
    assert (stopped.code, stopped.think_unclosed) == (CODE, True)
    for reason in ("length", None):
        cut = extract(f"<think>\n{BAD}so maybe", "strip_tags", finish_reason=reason)
        assert (cut.status, cut.code, cut.truncated) == ("no_answer", None, reason == "length")
        assert cut.think_unclosed is True
    harmony = extract(f"<|channel|>analysis<|message|>{BAD}so", "strip_tags", finish_reason="length")
    assert (harmony.status, harmony.think_unclosed) == ("no_answer", True)


def test_a_draft_in_reasoning_is_never_graded() -> None:
    for text in (
        f"<think>\n{GOOD}</think>\nSorry, I cannot.",
        f"{GOOD}hm\n</think>\nSorry.",
        f"<think>\n{GOOD}</think>\n",
    ):
        answer = extract(text, "strip_tags")
        assert answer.code is None
        assert answer.status in ("no_code", "no_answer")


def test_thinking_again_after_the_answer() -> None:
    answer = extract(f"<think>a</think>\n{GOOD}<think>\n{BAD}fine\n</think>\nDone.", "strip_tags")
    assert (answer.code, answer.rule) == (CODE, "before_later_thinking")
    open_end = extract(f"<think>a</think>\n{GOOD}<think>\n{BAD}", "strip_tags", finish_reason="length")
    assert (open_end.code, open_end.think_unclosed, open_end.truncated) == (CODE, True, True)


# Hostile text.

HOSTILE = {
    "backticks": "`" * 1_000_000,
    "fence_lines": f"{F}\n" * 250_000,
    "tagged_fences": f"{F}python\n" * 100_000,
    "markdown_fences": f"{F}markdown\n" * 80_000,
    "tilde_and_tick": f"~~~\n{F}\n" * 120_000,
    "open_parens": fenced("(" * 150_000),
    "unary": fenced("x = " + "-" * 150_000 + "1\n"),
    "sums": fenced("x = " + "a+" * 50_000 + "1\n"),
    "null": fenced("def f():\n    return '\0'\n"),
    "surrogate": fenced("def f():\n    return '\ud800'\n"),
    "open_strings": fenced('x = """\n') * 40_000,
    "think_closes": "</think>" * 120_000,
    "think_opens": "<think>\n" * 120_000,
    "quotes": "> " * 300_000 + F,
    "list_markers": "- " * 300_000 + F,
    "spaces": " " * 1_000_000 + "x",
    "newlines": "\n" * 1_000_000,
    "long_line": "x = 1;" * 160_000,
    "many_statements": "x = 1\n" * 160_000 + "prose here.\n",
    "many_defs": "prose here.\ndef f():\n    return 1\n" * 20_000,
    "triple_quotes": '"""\n' * 200_000,
    "inline": "`a` " * 250_000,
    "prompts": ">>> f()\n" * 100_000,
    "decorators": "@a\n" * 300_000,
    "special_tokens": "<|im_end|>\n" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_soon(name: str) -> None:
    start = time.process_time()
    for reason in ("stop", "length"):
        answer = extract(HOSTILE[name], ("f", "g"), finish_reason=reason)
        assert answer.status in ("code", "no_answer", "no_code")
    assert time.process_time() - start < 20


def test_code_too_long_to_parse_is_taken_as_it_is() -> None:
    code = "def f():\n    return 1\n" + "# filler\n" * 40_000
    answer = extract(fenced("def f():\n    return 0\n") + fenced(code), "f")
    assert (answer.code, answer.rule) == (code, "too_long_to_parse")


PIECES = st.sampled_from(
    [F, F + "python", "~~~", "`", "\n", "\n\n", "<think>", "</think>", "def f():\n    return 1\n", "x = '''", '"""']
)
MORE_PIECES = st.sampled_from(
    [
        "> ",
        "- ",
        "   ",
        "\t",
        "\r\n",
        "\ufeff",
        ">>> ",
        "import re",
        "class f:",
        "(",
        "\u2028",
        "<|channel|>final<|message|>",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(PIECES, MORE_PIECES, st.text(max_size=8)), max_size=30).map("".join),
    st.sampled_from(["stop", "length", None]),
)
def test_never_raises_and_never_invents(text: str, reason: str | None) -> None:
    answer = extract(text, "f", finish_reason=reason)
    assert (answer.code is None) == (answer.status != "code")
    assert answer.truncated == (reason == "length")
    if answer.code is not None:
        source = text.replace("\r\n", "\n").replace("\r", "\n")
        for line in answer.code.split("\n"):
            assert line.strip() in source


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 8),
    st.sampled_from(["python", "Python3", "py", "", "{.python}"]),
    st.sampled_from(["```", "````", "~~~"]),
    st.sampled_from(list(INSIDE)),
    st.booleans(),
)
def test_any_indent_mark_and_tag(indent: int, tag: str, mark: str, name: str, crlf: bool) -> None:
    code = INSIDE[name]
    block = f"{mark}{tag}\n{code}{mark}\n"
    pad = " " * indent
    text = "Steps:\n\n" + "".join(pad + line + "\n" if line else "\n" for line in block.split("\n"))
    answer = extract(text.replace("\n", "\r\n") if crlf else text, "one")
    assert answer.code == code
