import logging
import os
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

import llpkit

logger = getLogger(__name__)

project = "llpkit"
author = "The llpkit developers"
copyright = f"2026, {author}"
release = version = llpkit.__version__

HERE = Path(__file__).parent
sys.path.append(str(HERE / "_extensions"))

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "generated",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"llpkit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
nitpicky = False

myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Notebooks run in the build, each in an empty folder; an error or a warning ends the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "warn"  # warnings and stray progress bars
nb_ipywidgets_js = {}  # no script from elsewhere
nb_code_prompt_show = "Show the code of this figure"
nb_code_prompt_hide = "Hide the code"
logging.getLogger("traitlets").setLevel(logging.WARNING)
os.environ |= {
    "MATPLOTLIBRC": str(HERE / "_static" / "matplotlibrc"),
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm, where Hugging Face's packages are there
}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False

# MathML comes out of the build itself, so that the pages need no script from elsewhere.
html_math_renderer = "mathml"


def visit_math(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    try:
        self.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        logger.warning("%s in %r", error, node.astext(), location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
