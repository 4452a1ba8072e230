"""Which of several pieces of code make up the answer."""

from __future__ import annotations

from dataclasses import dataclass

from bench.answer.pycode import Binding, Module, Reader

_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Candidate:
    """A piece of code in an answer."""

    text: str
    module: Module | None
    """None: it does not parse."""
    python: bool = False
    """It is labelled as Python."""
    means: frozenset[str] = frozenset()
    """Entries that it defines by the look of it, though it does not parse."""
    too_long: bool = False

    def binding(self, name: str) -> Binding | None:
        return None if self.module is None else self.module.binds.get(name)


@dataclass(frozen=True)
class Choice:
    """The code that was put together."""

    code: str
    rule: str
    absent: tuple[str, ...] = ()
    """Entries that it does not define."""


def choose(candidates: list[Candidate], names: tuple[str, ...], reader: Reader) -> Choice | None:
    """The last candidate that defines each entry, with the others that it needs. None: nothing defines any."""
    picked: dict[str, int] = {}
    rule = ""
    for name in names:
        found, special = _last_defining(candidates, name)
        if found is not None:
            picked[name] = found
            rule = rule or special
    if not picked:
        return None
    wholes = sorted(set(picked.values()))
    absent = tuple(n for n in names if n not in picked)
    plain = rule or ("last_block_defining_entry" if len(wholes) == 1 else "entry_across_blocks")
    if any(candidates[i].module is None for i in wholes):
        return Choice(_join([candidates[i].text for i in wholes]), plain, absent)
    pieces = {i: candidates[i].text for i in wholes}
    with_helpers, later = _add_helpers(candidates, pieces, set(names), reader)
    if len(with_helpers) > len(pieces):
        code = _join([with_helpers[i] for i in sorted(with_helpers)])
        if reader.parses(code):
            return Choice(code, rule or ("with_later_helpers" if later else "with_earlier_helpers"), absent)
    return Choice(_join([pieces[i] for i in wholes]), plain, absent)


def _last_defining(candidates: list[Candidate], name: str) -> tuple[int | None, str]:
    """Index of the last candidate that defines the name, and a rule's name where that is not plain."""
    broken = [i for i, c in enumerate(candidates) if name in c.means]
    for least, rule in (
        (Binding.DEFINED, ""),
        (Binding.ASSIGNED, ""),
        (Binding.IMPORT, "entry_imported"),
        (None, "entry_in_broken_code"),
        (Binding.STUB, "entry_is_stub"),
    ):
        if least is None:
            if broken:
                last = broken[-1]
                return last, "too_long_to_parse" if candidates[last].too_long else rule
            continue
        hits = [i for i, c in enumerate(candidates) if c.binding(name) == least]
        if hits:
            later_broken = least is Binding.DEFINED and broken and broken[-1] > hits[-1]
            if later_broken and candidates[broken[-1]].too_long:
                return broken[-1], "too_long_to_parse"
            return hits[-1], "earlier_block_parses" if later_broken else rule
    return None, ""


def _add_helpers(
    candidates: list[Candidate], pieces: dict[int, str], entries: set[str], reader: Reader
) -> tuple[dict[int, str], bool]:
    """Pieces with those that bind what they lack: from earlier candidates, and failing that from later ones."""
    out = dict(pieces)
    wanted: dict[int, set[str]] = {}
    given_up: set[str] = set()
    later = False
    for _ in range(_MOST_ROUNDS):
        module = reader.module(_join([out[i] for i in sorted(out)]))
        if module is None:
            break
        todo = sorted(module.missing - given_up)
        if not todo:
            break
        for name in todo:
            at = _supplier(candidates, name, pieces)
            if at is None or name in wanted.get(at, set()):
                given_up.add(name)
                continue
            later = later or at > min(pieces)
            wanted.setdefault(at, set()).add(name)
            supplier = candidates[at].module
            assert supplier is not None
            if supplier.only_binds and not entries & set(supplier.binds):
                out[at] = supplier.text
            else:
                out[at] = supplier.cut(wanted[at])[0]
    return out, later


def _supplier(candidates: list[Candidate], name: str, pieces: dict[int, str]) -> int | None:
    last = max(pieces)
    order: list[int] = [*range(last - 1, -1, -1), *range(last + 1, len(candidates))]
    usable = [(i, how) for i in order if i not in pieces and (how := candidates[i].binding(name)) is not None]
    for kinds in ((Binding.DEFINED, Binding.ASSIGNED, Binding.IMPORT), (Binding.STUB, Binding.FOREIGN_IMPORT)):
        for i, how in usable:
            if how in kinds:
                return i
    return None


def _join(texts: list[str]) -> str:
    """The pieces one after the other; `from __future__` lines, which must come first, are put there."""
    if len(texts) == 1:
        return texts[0]
    future: list[str] = []
    rest: list[str] = []
    for text in texts:
        kept = []
        for line in text.split("\n"):
            if line.startswith("from __future__ import"):
                if line not in future:
                    future.append(line)
            else:
                kept.append(line)
        rest.append("\n".join(kept).rstrip("\n") + "\n")
    head = "".join(line + "\n" for line in future)
    return head + "\n".join(rest)
