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

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"llpkit {release}"
nitpicky = False

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

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
