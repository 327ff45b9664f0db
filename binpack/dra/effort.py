"""How much an expression could cost to evaluate, told from its text before it is compiled: a bound, never too low.

The API server refuses expressions whose estimated cost is too high, but the estimate takes a sum of lists for free
(cel-go makes it lazily), and equality of nested lists for the size of the outermost. With a name for every level,
twenty such sums or lists are a million elements, thirty take all the memory there is; and a regular expression is made
anew wherever it is met, so that one within loops takes minutes. Everybody's pods wait while one expression is judged.

What may be built is bounded by how often each of its names can be used: with B names (loops and `cel.bind`) and N
separators in the whole text, a value has at most (N / B + 1) ** B elements, whatever they are shared among. Words are
counted wherever they stand, in texts too: who hides them is refused all the same.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 10 * 1024  # resource.k8s.io/v1, CELSelectorExpressionMaxLength
_MOST_ELEMENTS: Final = 1_000_000
_MOST_ELEMENTS_IN_LOOPS: Final = 1_000  # the evaluator goes through ten thousand rounds of loops before it gives up
_MOST_PATTERNS: Final = 8
_LOOPS: Final = re.compile(
    r"\b(?:all|exists|exists_one|existsOne|map|filter|transformList|transformMap|transformMapEntry|sortBy)\b"
)
_NAMES: Final = re.compile(r"\b(?:bind|optMap|optFlatMap)\b")
_SEPARATORS: Final = re.compile(r"[,+]|\bquote\b")
_PATTERNS: Final = re.compile(r"\bmatches\b")
_MULTIPLIERS: Final = re.compile(r"\b(?:replace|join|format)\b")


def too_much(expression: str) -> str:
    """Return why an expression could cost too much, in words; "" = it cannot."""
    if len(expression) > _LONGEST:
        return f"it is longer than {_LONGEST} characters"
    loops, patterns = len(_LOOPS.findall(expression)), len(_PATTERNS.findall(expression))
    named = loops + len(_NAMES.findall(expression))
    multipliers = len(_MULTIPLIERS.findall(expression))
    if multipliers > 1 or (multipliers and named):
        return "what it builds of texts could be of any size"
    if patterns > _MOST_PATTERNS or (patterns and loops):
        return "it has regular expressions in loops, or too many"
    most = _MOST_ELEMENTS_IN_LOOPS if loops else _MOST_ELEMENTS
    if named and (len(_SEPARATORS.findall(expression)) / named + 1) ** named > most:
        return "what it builds could be of any size"
    return ""
