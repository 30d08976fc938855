"""An exporter for nbconvert: `jupyter nbconvert --to ddp notebook.ipynb`.

https://nbconvert.readthedocs.io/en/latest/external_exporters.html
"""

from __future__ import annotations

from typing import Any

from nbconvert.exporters import Exporter
from nbconvert.utils.exceptions import ConversionException
from traitlets import Bool, Dict, Enum, Int, Unicode, Union

from nb2ddp.convert import convert_notebook
from nb2ddp.notebook.ipynb import from_node
from nb2ddp.options import LaunchError, Options, OptionsError, Slurm
from nb2ddp.project.config import ConfigError, settings
from nb2ddp.results import NotebookError, Severity
from nb2ddp.settings import Setting, settings_of

#: A setting's trait, by its type; one that takes several strings takes them with commas.
_TRAITS = {int: Int, bool: Bool, Slurm: Dict}


def _trait(each: Setting) -> Any:
    """The trait of one setting."""
    if each.choices:
        return Enum(each.choices, None, allow_none=True, help=each.help).tag(config=True)
    if each.words:
        return Union([Int(), Enum(each.words)], default_value=None, allow_none=True, help=each.help).tag(config=True)
    kind = _TRAITS.get(each.kind, Unicode)
    return kind(None, allow_none=True, help=each.help).tag(config=True)


_SETTINGS = {each.key.replace("-", "_"): each for each in settings_of(Options)}
_NAMED_TRAITS = {name: _trait(each) for name, each in _SETTINGS.items()}


class DDPExporter(Exporter):
    """Export a notebook as the script that `nb2ddp notebook.ipynb` writes, with the launch files beside it.

    Settings are nbconvert's: `c.DDPExporter.num_processes = 4` in `jupyter_nbconvert_config.py`, or
    `--DDPExporter.num_processes=4`. pyproject.toml is not read.
    """

    export_from_notebook = "Script for several GPUs (DDP)"
    output_mimetype = "text/x-python"

    locals().update(_NAMED_TRAITS)

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
        values = {each.key: value for name, each in _SETTINGS.items() if (value := self._given(name, each)) is not None}
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

    def _given(self, name: str, each: Setting) -> Any:
        """What a trait is set to, as pyproject.toml has it; None where it is not set."""
        value = getattr(self, name) or None
        return [code.strip() for code in value.split(",")] if value and each.kind is frozenset else value
