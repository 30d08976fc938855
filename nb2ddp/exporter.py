"""An exporter for nbconvert: `jupyter nbconvert --to ddp notebook.ipynb`.

https://nbconvert.readthedocs.io/en/latest/external_exporters.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbconvert.exporters import Exporter
from nbconvert.utils.exceptions import ConversionException
from nbconvert.writers.files import FilesWriter
from traitlets import Bool, Dict, Enum, Int, Unicode, Union
from traitlets.config import Application

from nb2ddp.convert import convert_notebook
from nb2ddp.notebook.ipynb import from_node
from nb2ddp.options import LaunchError, Options, OptionsError, Slurm
from nb2ddp.project import history
from nb2ddp.project.config import ConfigError
from nb2ddp.project.files import Job
from nb2ddp.project.outputs import doubts, outputs_of, refused
from nb2ddp.project.plan import with_options
from nb2ddp.project.pool import recalling
from nb2ddp.results import Conversion, Diagnostic, NotebookError, Severity
from nb2ddp.settings import Setting, settings_of

#: A setting's trait, by its type; one that takes several strings takes them with commas.
_TRAITS = {int: Int, bool: Bool, Slurm: Dict}


def _trait(setting: Setting) -> Any:
    """The trait of one setting."""
    attributes: dict[str, Any] = {"default_value": None, "allow_none": True, "help": setting.help}
    if setting.choices:
        trait: Any = Enum(setting.choices, **attributes)
    elif setting.words:
        trait = Union([Int(), Enum(setting.words)], **attributes)
    else:
        trait = _TRAITS.get(setting.kind, Unicode)(**attributes)
    return trait.tag(config=True)


_SETTINGS = {each.key.replace("-", "_"): each for each in settings_of(Options)}
_NAMED_TRAITS = {name: _trait(each) for name, each in _SETTINGS.items()}


class DDPExporter(Exporter):
    """Export a notebook as the script that `nb2ddp notebook.ipynb` writes, with the launch files beside it.

    Settings are nbconvert's: `c.DDPExporter.num_processes = 4` in `jupyter_nbconvert_config.py`, or
    `--DDPExporter.num_processes=4`. pyproject.toml is not read. Where `jupyter nbconvert` is to write the files, they
    keep what a person edited in them, and a file that is not nb2ddp's stops it, as with the command.
    """

    export_from_notebook = "Script for several GPUs (DDP)"
    output_mimetype = "text/x-python"

    force = Bool(False, help="Replace files that were edited by hand, or are not nb2ddp's, too.").tag(config=True)
    keep = Enum(("mine", "new"), None, allow_none=True, help="In a conflict take your lines or the notebook's.").tag(
        config=True
    )
    reset = Bool(False, help="Forget the options that the script was converted with the last time.").tag(config=True)
    locals().update(_NAMED_TRAITS)

    def _file_extension_default(self) -> str:
        return ".py"

    def from_notebook_node(  # type: ignore[override]  # nbconvert types it for the base class, which returns no text
        self, nb: Any, resources: Any = None, **kw: Any
    ) -> tuple[str | bytes, Any]:
        """Convert a notebook that nbconvert has read.

        Args:
            nb: the notebook.
            resources: nbconvert's; the script is called by its `unique_key`.
            kw: for preprocessors.

        Returns:
            The script, and the resources with the launch files among their `outputs`; as bytes, with a person's edits,
            where nbconvert is to write them.

        Raises:
            ConversionException: the notebook cannot be converted, the settings do not fit together, or a file is there
                that is not nb2ddp's, or whose edits the notebook's changes meet.
        """
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        metadata = resources.get("metadata", {})
        name = metadata.get("name") or "notebook"
        target = Path(f"{resources.get('unique_key') or name}.py")
        folder = self._folder(resources)
        values = {each.key: value for name, each in _SETTINGS.items() if (value := self._given(name, each)) is not None}
        try:
            notebook = Path(metadata.get("path", ""), f"{name}.ipynb")
            script = target if folder is None else folder / target
            job = with_options(
                Job(notebook, script, Options(), force=self.force, keep=(self.keep,) if self.keep else ()),
                values,
                reset=self.reset,
            )
            conversion = convert_notebook(from_node(nb, name), script.name, job.options, job.reference)
        except NotebookError as error:
            said = (f"{f'{each.location}: ' if each.location else ''}{each.message}" for each in error.diagnostics)
            raise self._stop("\n".join(f"{name}.ipynb: {each}" for each in said)) from None
        except (ConfigError, LaunchError, OptionsError) as error:
            raise self._stop(f"{name}.ipynb: {error}") from None
        self._warn(name, conversion.diagnostics)
        files: Mapping[str, str | bytes] = conversion.files if folder is None else self._merged(job, conversion)
        # nbconvert makes each output's folder, and a bare name has none
        beside = os.path.dirname(target) or "."  # noqa: PTH120 - Path drops the `./`
        outputs = {f"{beside}/{file}": _bytes(text) for file, text in files.items() if file != script.name}
        resources["output_files_dir"] = beside  # which nbconvert names
        resources["outputs"] = {**(resources.get("outputs") or {}), **outputs}
        return files[script.name], resources

    def _folder(self, resources: Any) -> Path | None:
        """Where nbconvert's writer puts what it is given; None where it writes no files, or is not asked to write."""
        writer = self.config.NbConvertApp.get("writer_class", FilesWriter.__name__)
        if "unique_key" not in resources or writer.rpartition(".")[2].lower() != FilesWriter.__name__.lower():
            return None
        return Path(FilesWriter(config=self.config).build_directory or resources["metadata"].get("path", ""))

    def _merged(self, job: Job, conversion: Conversion) -> dict[str, bytes]:
        """What nbconvert is to write over what is there."""
        outputs = outputs_of(job, conversion, recalling(job))
        if failure := refused(job, outputs):
            reasons = "\n".join(f"{reason.code} {reason.message}" for reason in failure.diagnostics)
            reasons = reasons.replace("--force", "--DDPExporter.force=True").replace("--keep ", "--DDPExporter.keep=")
            raise self._stop(f"{reasons}\n{failure.text}")
        history.remember(conversion.files.values())
        self._warn(job.name, tuple(doubts(job, outputs)))
        for output in outputs:
            if output.differs and output.is_edited:
                self.log.info("kept what was edited by hand in %s", output.path)
        return {output.path.name: _bytes(output.after) for output in outputs}

    def _stop(self, message: str) -> Exception:
        """The error of a conversion; `jupyter nbconvert`, which would print a traceback above it, ends here instead."""
        from nbconvert.nbconvertapp import NbConvertApp  # which loads all exporters first

        if Application.initialized() and isinstance(app := Application.instance(), NbConvertApp):
            self.log.error("%s", message)
            app.exit(1)
        return ConversionException(message)

    def _warn(self, name: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        for finding in diagnostics:
            if finding.severity is not Severity.NOTE:
                place = f":{finding.location}" if finding.location else ""
                self.log.warning("%s.ipynb%s: %s %s", name, place, finding.code, finding.message)

    def _given(self, name: str, setting: Setting) -> Any:
        """What a trait is set to, as pyproject.toml has it; None where it is not set."""
        value = getattr(self, name) or None
        return [code.strip() for code in value.split(",")] if value and setting.kind is frozenset else value


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
