"""Services of Colab and Kaggle that a notebook uses: calls and secrets."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.flow import receiver
from nb2ddp.syntax.tree import Tree, method

#: Their packages.
HOSTED = ("google.colab", "kaggle_secrets", "kaggle_web_client")
#: What has a person choose files, and saves them beside the notebook.
UPLOAD = "google.colab.files.upload"
#: What gives a secret of theirs.
SECRET = re.compile(r"google\.colab\.userdata\.get|.*\.get_secret|kaggle_secrets\.UserSecretsClient\.get_secret")
#: A class of theirs, and what is made of it.
_HOSTED_CLASS = re.compile(rf"({'|'.join(map(re.escape, HOSTED))})\.(\w+\.)*[A-Z]")


def hosted_name(tree: Tree, call: cst.Call) -> str | None:
    """The full name of a call of Colab's or Kaggle's packages, through an object of theirs too."""
    name = tree.qualified(call.func)
    if name.startswith(HOSTED):
        return name
    made = "" if (owner := receiver(call)) is None else tree.constructor(owner)
    return f"{made}.{method(call)}" if _HOSTED_CLASS.match(made) else None
