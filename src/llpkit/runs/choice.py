"""Which method or estimator a run uses, if the user names none."""

from dataclasses import replace

from torch import Tensor

from llpkit.auto import Pick, pick_estimator, pick_method
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.runs.data import divide


def pick(config: Config, data: DataSet) -> tuple[Config, Pick]:
    """The configuration with a method or an estimator, and why it was picked.

    A table of features gets an estimator, unless the configuration has settings for networks or
    asks for several processes.
    """
    several = config.execution.devices != 1 or config.execution.nodes > 1
    bags = divide(data.bags, config)["training"]
    table = isinstance(data.inputs, Tensor) and data.inputs.dim() == 2
    if table and not several and not config.of_networks():
        picked = pick_estimator(bags)
        return replace(config, choice=config.choice.replace(estimator=picked.name)), picked
    picked = pick_method(bags, config.recipe, of_images=not table, many_processes=several)
    return replace(config, recipe=config.recipe.replace(method=picked.name)), picked
