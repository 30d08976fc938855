"""An exporter for nbconvert: `jupyter nbconvert --to ddp notebook.ipynb`.

https://nbconvert.readthedocs.io/en/latest/external_exporters.html
"""

from __future__ import annotations

from typing import Any

from nbconvert.exporters import Exporter
from nbconvert.utils.exceptions import ConversionException
from traitlets import Dict, Enum, Int, Unicode

from nb2ddp.convert import convert_notebook
from nb2ddp.notebook.ipynb import from_node
from nb2ddp.options import LaunchError, OptionsError
from nb2ddp.project.config import ConfigError, settings
from nb2ddp.results import NotebookError, Severity

#: The exporter's own traits, which are nb2ddp's settings by their names in pyproject.toml.
_SETTINGS = (
    "num_processes",
    "num_machines",
    "main_process_ip",
    "main_process_port",
    "mixed_precision",
    "launcher",
    "slurm",
    "per_device_batch_size",
    "select",
    "ignore",
)


class DDPExporter(Exporter):
    """Export a notebook as the script that `nb2ddp notebook.ipynb` writes, with the launch files beside it.

    Settings are nbconvert's: `c.DDPExporter.num_processes = 4` in `jupyter_nbconvert_config.py`, or
    `--DDPExporter.num_processes=4`. pyproject.toml is not read.
    """

    export_from_notebook = "Script for several GPUs (DDP)"
    output_mimetype = "text/x-python"

    num_processes = Int(None, allow_none=True, help="Processes of the job, on all machines together.").tag(config=True)
    num_machines = Int(None, allow_none=True, help="Machines.").tag(config=True)
    main_process_ip = Unicode(None, allow_none=True, help="The machine of rank 0.").tag(config=True)
    main_process_port = Int(None, allow_none=True, help="Its port.").tag(config=True)
    mixed_precision = Enum(
        ["no", "fp16", "bf16"], None, allow_none=True, help="Where the notebook leaves it open."
    ).tag(config=True)
    launcher = Enum(
        ["accelerate", "torchrun", "slurm"], None, allow_none=True, help="What to write beside the script."
    ).tag(config=True)
    slurm = Dict(None, allow_none=True, help="Settings of a SLURM job.").tag(config=True)
    per_device_batch_size = Int(None, allow_none=True, help="Samples a device and step.").tag(config=True)
    select = Unicode(None, allow_none=True, help="Codes of the rules to apply, with commas.").tag(config=True)
    ignore = Unicode(None, allow_none=True, help="Codes of the rules to leave out, with commas.").tag(config=True)

    def _file_extension_default(self) -> str:
        return ".py"

    def from_notebook_node(  # type: ignore[override]  # nbconvert types it for the base class, which returns no text
        self, nb: Any, resources: Any = None, **kw: Any
    ) -> tuple[str, Any]:
        """Convert a notebook that nbconvert has read.

        Args:
            nb: the notebook.
            resources: nbconvert's; the script is called by its `unique_key`.
            kw: for preprocessors.

        Returns:
            The script, and the resources with the launch files among their `outputs`.

        Raises:
            ConversionException: the notebook cannot be converted, or the settings do not fit together.
        """
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        name = resources.get("metadata", {}).get("name") or "notebook"
        script_name = f"{resources.get('unique_key') or name}.py"
        values = {key.replace("_", "-"): value for key in _SETTINGS if (value := getattr(self, key)) not in (None, {})}
        for key in ("select", "ignore"):
            if key in values:
                values[key] = [code.strip() for code in values[key].split(",")]
        try:
            conversion = convert_notebook(from_node(nb, name), script_name, settings(values).options)
        except (NotebookError, ConfigError, LaunchError, OptionsError) as error:
            raise ConversionException(f"{name}.ipynb: {error}") from None
        for each in conversion.diagnostics:
            if each.severity is not Severity.NOTE:
                self.log.warning("%s.ipynb:%s: %s %s", name, each.location, each.code, each.message)
        # nbconvert makes each output's folder, and a bare name has none
        outputs = {f"./{file}": text.encode() for file, text in conversion.files.items() if file != script_name}
        resources["outputs"] = {**(resources.get("outputs") or {}), **outputs}
        return conversion.files[script_name], resources
