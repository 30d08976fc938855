"""The input of all rules: a notebook's source and the facts about it."""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePath

import libcst as cst

from nb2ddp.facts.drawn import Drawing, drawings
from nb2ddp.facts.effects import FILE_MAGICS, Effects
from nb2ddp.facts.environment import early_settings, settings
from nb2ddp.facts.execution import Execution, asks_for_processes
from nb2ddp.facts.gpu import Gpu, gpu, ran_out_of_memory
from nb2ddp.facts.installs import Installs, colab_branch
from nb2ddp.facts.loading import ModelKind, loads, model_kind, starts_engine, weights
from nb2ddp.facts.names import Names
from nb2ddp.facts.needs import Need, needs
from nb2ddp.facts.paths import HostedPath, LocalPath, Made, Maker, hosted_paths, local_paths, makers, written_there
from nb2ddp.facts.placement import Placement
from nb2ddp.facts.questions import Question, questions, tokens_to_fill_in
from nb2ddp.facts.releases import Lacked, lacked
from nb2ddp.facts.rewards import Rewards
from nb2ddp.facts.training import Training
from nb2ddp.facts.values import filled
from nb2ddp.notebook.ipynb import Notebook
from nb2ddp.notebook.magics import Kind
from nb2ddp.options import Options
from nb2ddp.syntax.cells import Source


class Program(Source):
    """A notebook's source with its trainings, its installs and its kind of model.

    Args:
        notebook: the cells.
        options: the options of the conversion.

    Raises:
        NotebookError: a cell is not Python, with its place.
    """

    def __init__(self, notebook: Notebook, options: Options) -> None:
        super().__init__(notebook)
        self.options = options
        self.training = Training(self.tree)
        self.effects = Effects(self.tree, self.form)
        self.early_settings = early_settings(self, self.settings)
        self.installs = Installs(self, self.effects, self.early_settings)
        self.names = Names(self, self.installs.covers)

    @cached_property
    def settings(self) -> list[tuple[cst.CSTNode, object, object]]:
        """The settings of environment variables; see the function `settings`."""
        return list(settings(self))

    @cached_property
    def text(self) -> str:
        """The code with its commands, in which names that it binds once are filled in.

        Comments and code that only Colab runs are left out, as in the requirements.
        """
        lines = [line for cell in self.code_cells for line in cell.source.split("\n")]
        for branch in filter(None, (colab_branch(self.tree, each) for each in self.tree.of(cst.If))):
            first, last = (self.tree.line_column(offset)[0] for offset in self.tree.span(branch))
            lines[first - 1 : last] = [""] * (last - first + 1)
        code = (line for line in lines if not line.lstrip().startswith("#"))
        return filled(self.tree, "\n".join(code))

    @cached_property
    def lacked(self) -> list[Lacked]:
        """The uses that the newest releases that a job may have lack."""
        return list(lacked(self.tree, self.text))

    @cached_property
    def model_kind(self) -> ModelKind:
        """The kind of model that the notebook trains."""
        return model_kind(self.tree, self.training.trainers, self.loads)

    @cached_property
    def trains_with_unsloth(self) -> bool:
        """Whether Unsloth is imported before training ends; False if only later, to merge or to export."""
        imports = [line for line, *_ in self.tree.imports("unsloth") if self.tree.is_live(line)]
        own = self.training.trainers
        return any(not own or self.training.is_before_end(line) for line in imports)

    @cached_property
    def loads(self) -> list[cst.Call]:
        """The calls that load a model's weights, or prepare to, in order."""
        return loads(self.tree)

    @cached_property
    def engines(self) -> list[cst.Call]:
        """The loads up to the last training that may start a vLLM engine in their process."""
        return [load for load in self.loads if starts_engine(self.tree, load) and self.training.is_before_end(load)]

    @cached_property
    def gpu(self) -> Gpu | None:
        """The GPU that the notebook's batch is for; None if unknown, or if the batch does not fit it."""
        size = next(filter(None, (weights(self.tree, load) for load in self.loads)), 0.0)
        return None if self.ran_out_of_memory else gpu(self.notebook, size, self._trained_in)

    @cached_property
    def ran_out_of_memory(self) -> bool:
        """Whether the notebook ran out of memory up to its last training."""
        return ran_out_of_memory(self.notebook, self._trained_in)

    @cached_property
    def _trained_in(self) -> int:
        """The number of the last cell that trains; 0 if none does."""
        return self.cell_at(self.training.trained - 1).number if self.training.trained > 0 else 0

    def written(self, command: str) -> str:
        """Return the file that a command names and a cell writes (`%%writefile train.py`); empty for none."""
        forms = [form for _, form in self.forms_of(Kind.CELL_MAGIC) if form.name in FILE_MAGICS]
        names = [PurePath(word).name for form in forms for word in form.text.split()[-1:]]
        return next((name for name in names if name in command), "")

    @cached_property
    def execution(self) -> Execution:
        """Which process runs what, and when."""
        return Execution(self, self.training, self.effects, self.installs.covers)

    @cached_property
    def closes_group(self) -> bool:
        """Whether only the main process runs after training; a vLLM engine may need the others until the end."""
        return self.training.last is not None and (not self.engines or self.options.vllm_server)

    @cached_property
    def asks_when_alone(self) -> bool:
        """Whether the main process asks for the number of processes after training, when it runs alone."""
        return self.closes_group and asks_for_processes(self.execution, self.loads)

    @cached_property
    def hosted_paths(self) -> list[HostedPath]:
        """The paths of Colab and Kaggle that the notebook reads and does not make."""
        return list(hosted_paths(self.execution, self.made))

    @cached_property
    def written_there(self) -> list[tuple[str, cst.BaseExpression]]:
        """The folders of Colab, Kaggle and Drive below which the notebook writes, with the nodes that name them."""
        return list(written_there(self.execution, self.made))

    @cached_property
    def makers(self) -> list[Maker]:
        """The calls that make files, or may."""
        return list(makers(self.execution))

    @cached_property
    def made(self) -> Made:
        """The paths that these calls certainly make."""
        return Made(self.tree, self.makers)

    @cached_property
    def questions(self) -> list[Question]:
        """The calls that ask a person."""
        return questions(self, self.effects)

    @cached_property
    def tokens_to_fill_in(self) -> dict[cst.BaseExpression, str]:
        """The placeholders for tokens, with the variables that hold the tokens."""
        return tokens_to_fill_in(self.tree, self.effects, self.settings)

    @cached_property
    def local_paths(self) -> list[LocalPath]:
        """The paths of the user's machine that the notebook reads and does not make."""
        return list(local_paths(self.execution, self.makers))

    @cached_property
    def needs(self) -> list[Need]:
        """What a job needs that the notebook reads and does not make."""
        return needs(self)

    @cached_property
    def placement(self) -> Placement:
        """The placement of code that not every process may run."""
        return Placement(self.execution)

    @cached_property
    def rewards(self) -> Rewards:
        """The user-defined functions that a GRPO trainer calls."""
        return Rewards(self.execution)

    @cached_property
    def drawings(self) -> dict[cst.Expr, Drawing]:
        """The drawings of the notebook, by statement, in order."""
        return drawings(self.execution)
