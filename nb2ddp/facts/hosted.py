"""Services of Colab and Kaggle that a notebook uses: calls and secrets."""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp.facts.flow import receiver
from nb2ddp.syntax.tree import Tree, method

#: Packages of Colab and Kaggle.
HOSTED = ("google.colab", "kaggle_secrets", "kaggle_web_client")
#: The function that lets a person choose files, and saves them next to the notebook.
UPLOAD = "google.colab.files.upload"
#: Functions that return a secret.
SECRET = re.compile(r"google\.colab\.userdata\.get|.*\.get_secret|kaggle_secrets\.UserSecretsClient\.get_secret")
#: Classes of these packages.
_HOSTED_CLASS = re.compile(rf"({'|'.join(map(re.escape, HOSTED))})\.(\w+\.)*[A-Z]")


def hosted_name(tree: Tree, call: cst.Call) -> str | None:
    """Return the full name of a call of Colab's or Kaggle's packages or objects; None for any other call."""
    name = tree.qualified(call.func)
    if name.startswith(HOSTED):
        return name
    made = "" if (owner := receiver(call)) is None else tree.constructor(owner)
    return f"{made}.{method(call)}" if _HOSTED_CLASS.match(made) else None
