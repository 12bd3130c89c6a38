"""Tables larger than memory, with Dask: partitions hold whole bags, so E-steps are local."""

from llpkit.distributed.fitting import fit
from llpkit.distributed.partitions import Partitions, parquet, repartition_by_bag

__all__ = ["Partitions", "fit", "parquet", "repartition_by_bag"]
