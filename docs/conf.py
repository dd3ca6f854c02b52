"""The documentation site; CONTRIBUTING.md says how to build it."""

import inspect
import re
from importlib import metadata
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

project = "jax_rtopk"
release = metadata.version("jax_rtopk")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Headings can be linked to, as they can be where the code is hosted.
myst_heading_anchors = 3

# What stands between single backticks in a docstring is a link where it is a public name, else code.
default_role = "py:obj"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}  # else all that it stands for
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 80

smartquotes_action = "D"  # dashes, but no curly quotes: a value such as "native" is typed as it stands

html_theme = "furo"
html_title = f"jax_rtopk {release}"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

LAYERS = ("jax_rtopk.flax", "jax_rtopk.linen")


def shown_signature(*event: Any) -> tuple[str | None, str | None]:
    """What Sphinx shows of a signature, put right."""
    _, kind, _, documented, _, signature, returned = event
    if kind == "class" and documented.__module__ in LAYERS:
        # Of NNX's layers Sphinx sees the metaclass; to Linen's Flax adds two arguments.
        _, *parameters = inspect.signature(documented.__init__).parameters.values()
        own = [parameter for parameter in parameters if parameter.name not in ("parent", "name")]
        signature = stringify_signature(inspect.Signature(own), unqualified_typehints=True)
    # Names alone: of aliases within unions, for which Sphinx shows its wrapper, and of functions.
    return signature and re.sub(r"TypeAliasForwardRef\('(\w+)'\)|<function (\w+)>", r"\1\2", signature), returned


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", shown_signature)
