"""An exporter for nbconvert: `jupyter nbconvert --to ddp notebook.ipynb`.

https://nbconvert.readthedocs.io/en/latest/external_exporters.html
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nbconvert.exporters import Exporter
from nbconvert.utils.exceptions import ConversionException
from nbconvert.writers.files import FilesWriter

from nb2ddp.convert import convert_notebook
from nb2ddp.notebook.ipynb import from_node
from nb2ddp.options import Options
from nb2ddp.project import history
from nb2ddp.project.files import Job
from nb2ddp.project.outputs import outputs_of, refused
from nb2ddp.project.pool import recalling
from nb2ddp.results import Diagnostic, NotebookError


class DDPExporter(Exporter):
    """Export a notebook as the script that `nb2ddp notebook.ipynb` writes, with the launch files beside it.

    It has no settings. A file that is there keeps what a person edited in it.
    """

    export_from_notebook = "Script for several GPUs (DDP)"
    output_mimetype = "text/x-python"

    def _file_extension_default(self) -> str:
        return ".py"

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[str, Any]:  # type: ignore[override]
        """Convert a notebook that nbconvert has read.

        Returns:
            The script, and the resources with the launch files among their `outputs`.

        Raises:
            ConversionException: the notebook cannot be converted, or a file is there that must not be replaced.
        """
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        metadata = resources.get("metadata", {})
        name, folder = metadata.get("name") or "notebook", metadata.get("path", "")
        target = f"{resources.get('unique_key') or name}.py"
        script = Path(FilesWriter(config=self.config).build_directory or folder, target)
        job = Job(Path(folder, f"{name}.ipynb"), script, Options())
        try:
            conversion = convert_notebook(from_node(nb, name), script.name, job.options, job.reference)
        except NotebookError as error:
            raise ConversionException("\n".join(f"{name}.ipynb: {_said(each)}" for each in error.diagnostics)) from None
        files = conversion.files
        if "unique_key" in resources:  # nbconvert's command, which writes
            outputs = outputs_of(job, conversion, recalling(job))
            if failure := refused(job, outputs):
                raise ConversionException("\n".join(f"{each.code} {each.message}" for each in failure.diagnostics))
            history.remember(files.values())
            files = {output.path.name: output.after for output in outputs}
        beside = os.path.dirname(target) or "."  # noqa: PTH120 - Path drops the `./` without which nbconvert fails
        others = {f"{beside}/{file}": text.encode() for file, text in files.items() if file != script.name}
        resources["outputs"] = {**(resources.get("outputs") or {}), **others}
        return files[script.name], resources


def _said(finding: Diagnostic) -> str:
    return f"{finding.location}: {finding.message}" if finding.location else finding.message
