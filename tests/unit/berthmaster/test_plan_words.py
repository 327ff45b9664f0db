"""plan --dry-run: what it refuses before it looks at any cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from berthmaster.commands.plan import command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "only --dry-run is offered"),
        (["--dry-run", "--free-openings", "2"], "give --moves too"),
        (["--dry-run", "--moves", "--free-seats", "2"], "--free-seats is called --free-openings now"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(words, told):
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert told in done.output
