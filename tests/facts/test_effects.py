"""Effects of calls, by their full names, or by the form of their names and their arguments."""

from nb2ddp.facts.effects import Does
from nb2ddp.facts.program import Program
from nb2ddp.options import Options
from tests.examples import table
from tests.notebooks import example_notebook


def _does(code: str) -> Does:
    """Return the effects of the last call in some code."""
    program = Program(example_notebook(code), Options())
    return program.execution.does(program.execution.calls()[-1])


@table(__file__)
def test_what_is_named_like_a_writer_and_given_a_file_writes(code: str, answers: list[str]) -> None:
    assert bool(_does(f"{code}\n") & Does.WRITE) == bool(answers)
