"""Which method or estimator a run uses, if the user names none."""

from dataclasses import replace

from torch import Tensor

from llpkit.auto import Pick, pick_estimator, pick_method
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.runs.data import divide


def settled(config: Config, data: DataSet) -> tuple[Config, Pick]:
    """The configuration with a method or an estimator, and why it was picked.

    A table of features gets an estimator, unless there are settings that only networks have.
    """
    bags = divide(data.bags, config)["training"]
    table = isinstance(data.inputs, Tensor) and data.inputs.dim() == 2
    if table and not config.of_networks():
        pick = pick_estimator(bags)
        choice = config.choice.replace(estimator=pick.name, estimator_options=pick.options)
        return replace(config, choice=choice), pick
    pick = pick_method(bags, config.recipe, of_images=not table)
    options = {**pick.options, **config.recipe.method_options}
    recipe = config.recipe.replace(method=pick.name, method_options=options)
    return replace(config, recipe=recipe), pick
