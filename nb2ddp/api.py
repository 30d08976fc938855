"""Convert files and folders from Python, as the command does."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path

from nb2ddp.options import Options
from nb2ddp.project.files import Job, Mode, read
from nb2ddp.project.inputs import find, script_for
from nb2ddp.project.outputs import finish
from nb2ddp.project.plan import check_outputs
from nb2ddp.project.pool import converted, run
from nb2ddp.results import Result


def convert_paths(
    paths: Sequence[str | PathLike[str]],
    output_dir: str | PathLike[str],
    options: Options | None = None,
    *,
    check: bool = False,
    force: bool = False,
    processes: int | None = None,
) -> Iterator[Result]:
    """Convert notebooks into an output folder.

    Args:
        paths: notebooks, folders and patterns such as `nb/**/*.ipynb`. pyproject.toml is not read.
        output_dir: the folder that gets the scripts; it mirrors the tree of the notebooks.
        options: what to produce; the defaults if None.
        check: write nothing; a result's status says whether its files are stale.
        force: replace files that were edited by hand, or that nb2ddp did not write.
        processes: the largest number at a time; None means the cores that this process may use.

    Yields:
        The results in the order of the notebooks. An error in one notebook is its result's `failure`.

    Raises:
        InputError: a path is no notebook, two notebooks would write one file, or a script would leave the folder;
            nothing is written.
        OptionsError: an option names an unknown rule; nothing is written.
    """
    chosen = options or Options()
    notebooks = find([fspath(path) for path in paths])
    keep = "nothing" if force else ""
    jobs = [
        Job(notebook.path, script_for(notebook, Path(output_dir)), chosen, notebook.link, notebook.is_named, keep)
        for notebook in notebooks
    ]
    check_outputs(jobs)
    return run(jobs, Mode.CHECK if check else Mode.WRITE, processes=processes)


def convert_file(
    notebook: str | PathLike[str], script: str | PathLike[str], options: Options | None = None, *, force: bool = False
) -> Result:
    """Convert a notebook file into a script, with the launch files next to it.

    Files are replaced completely or not at all, and only if their content differs; a person's edits are kept.

    Args:
        notebook: the file, in any format that nb2ddp reads; it is not changed.
        script: the file to write; its folder is created.
        options: what to produce; the defaults if None.
        force: replace files that were edited by hand, or that nb2ddp did not write.

    Raises:
        NotebookError: the notebook cannot be converted; nothing is written.
        OptionsError, LaunchError: as for `convert_source`; nothing is written.
        FileExistsError: a file exists that nb2ddp did not write, or whose edits conflict with changes of the notebook;
            nothing is written.
        OSError: a file cannot be read or written.
    """
    job = Job(Path(notebook), Path(script), options or Options(), keep="nothing" if force else "")
    result = finish(job, read(job.notebook), converted, Mode.WRITE)
    if result.failure is not None:
        raise FileExistsError(errno.EEXIST, result.failure.message)
    return result
