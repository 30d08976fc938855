"""An exporter for nbconvert: `jupyter nbconvert --to ddp notebook.ipynb`."""

import os
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import Exporter, PythonExporter
from nbconvert.utils.exceptions import ConversionException
from nbconvert.writers.files import FilesWriter

from nb2ddp import NotebookError, Options
from nb2ddp.project.files import Job
from nb2ddp.project.outputs import texts
from nb2ddp.project.pool import converted


class DDPExporter(PythonExporter):
    """Export the script that `nb2ddp notebook.ipynb` writes, and the files next to it."""

    export_from_notebook = "Script for several GPUs (DDP)"

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """Convert a notebook that nbconvert has read; raise a ConversionException with the reasons if that fails."""
        nb, resources = Exporter.from_notebook_node(self, nb, resources, **kw)
        about = resources.get("metadata", {})
        name, folder = about.get("name") or "notebook", about.get("path", "")
        target = f"{resources.get('unique_key') or name}.py"
        script = Path(FilesWriter(config=self.config).build_directory or folder, target)
        job = Job(Path(folder, f"{name}.ipynb"), script, Options())
        try:
            conversion = converted(job, nbformat.writes(nb).encode())
            files = texts(job, conversion, converted) if "unique_key" in resources else conversion.files
        except NotebookError as error:
            messages = (f"{name}.ipynb: {each.location or each.code}: {each.message}" for each in error.diagnostics)
            raise ConversionException("\n".join(messages)) from None
        beside = os.path.dirname(target) or "."  # noqa: PTH120 - Path drops the `./` without which nbconvert fails
        others = {f"{beside}/{file}": text.encode() for file, text in files.items() if file != script.name}
        resources["outputs"] = {**(resources.get("outputs") or {}), **others}
        return files[script.name], resources
