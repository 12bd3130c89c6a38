"""Names of figures, which stay the same when more folds or methods are there."""

from collections.abc import Iterable, Sequence

from llpkit.experiments._groups import Group, describe
from llpkit.experiments._plan import PROTOCOLS
from llpkit.experiments._sources import GRID
from llpkit.report._figures import Plot


def prefixes(groups: Sequence[Group]) -> list[str]:
    """For each group of one experiment and data set, how the names of its figures begin.

    Data set, augmentation if it is not the usual one, experiment. Of groups that this does not tell
    apart, the one nearest to the protocol has the short name; the others add where they differ.
    """
    firsts: dict[str, Group] = {}
    found = {}
    for group in sorted(groups, key=lambda g: (len(_unusual(g)), g.source != GRID, g.told)):
        augment = group.setting["augment"] if "augment" in _unusual(group) else ""
        name = slug(f"{group.dataset} {augment} {group.experiment}")
        first = firsts.setdefault(name, group)
        differs = {k: v for k, v in group.setting.items() if v != first.setting[k]}
        found[id(group)] = slug(f"{name} {describe(differs)}")
    return [found[id(group)] for group in groups]


def nearest_first(groups: Sequence[Group]) -> list[Group]:
    """Groups of one experiment and data set, those nearest to the protocol first.

    The usual augmentation, then the fewest other settings, what a grid chose, the most runs. The
    number of epochs is no such setting where bags have many sizes.
    """

    def distance(group: Group) -> tuple[object, ...]:
        unusual = [k for k in _unusual(group) if (group.experiment, k) != ("bag-size", "epochs")]
        own = (group.source != GRID, -len(group.records), group.told)
        return ("augment" in unusual, len(unusual), *own)

    return sorted(groups, key=distance)


def _unusual(group: Group) -> list[str]:
    """Which of its settings are not the protocol's."""
    protocol = PROTOCOLS[group.dataset]
    usual = {key: {getattr(protocol, key)} for key in ("network", "augment", "batch_size")}
    usual |= {"precision": {protocol.precision}, "size": {"", "full"}, "seed": {0}}
    usual |= {"held_out": {None}, "compiled": {""}}
    usual["epochs"] = {protocol.epochs, protocol.quick_epochs}
    return [
        k for k, values in usual.items() if k in group.setting and group.setting[k] not in values
    ]


def renamed(plot: Plot | None, name: str) -> Plot | None:
    """A figure under another name."""
    return None if plot is None else Plot(name, plot.alt, plot.figure)


def present(plots: Iterable[Plot | None]) -> list[Plot]:
    """Those figures that there are."""
    return [plot for plot in plots if plot is not None]


def slug(text: str) -> str:
    """A text as part of a file's name."""
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)
