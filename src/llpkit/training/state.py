"""What a checkpoint contains: the state of a session, the same for any number of processes."""

import json
from typing import TYPE_CHECKING, Any

from torch import Tensor

from llpkit.training.checkpoint import load_weights

if TYPE_CHECKING:
    from llpkit.training.loop import Session


def session_state(session: "Session") -> dict[str, Any]:
    """Everything that a run needs to continue; with FSDP, full tensors in the first process only.

    All processes have to call it.
    """
    method, shard, processes = session.method, session.shard, session.processes
    of_method = method.state_dict()
    # Targets of instances are stored in the order of a single process, so that a run can resume on
    # any number of them.
    for name in method.per_instance:
        length = shard.whole.num_instances
        of_method[name] = processes.gather_rows(of_method[name], shard.positions, length)
    state = {
        "network": session.network.state_dict(),
        "optimizer": session.learner.optimizer.state_dict(),
        "scheduler": session.scheduler.state_dict(),
        "method": of_method,
        "model": None if method.model is None else method.model.state_dict(),
        "history": json.dumps(session.history),  # torch would inspect every number of a list
        "best": session.best,
        "stop": session.stop,
    }
    if processes.fsdp:
        from llpkit.training.fsdp import gather

        state = {key: gather(value, processes.first) for key, value in state.items()}
    return state


def restore_session(session: "Session", state: dict[str, Any]) -> None:
    """Continue a session from this state."""
    assert session.checkpoint is not None
    path, method, optimizer = session.checkpoint.path, session.method, session.learner.optimizer
    if session.processes.fsdp:
        from llpkit.training.fsdp import shard_optimizer, shard_weights

        state["optimizer"] = shard_optimizer(state["optimizer"], optimizer)
        state["network"] = shard_weights(state["network"], session.network)
        if state["best"] is not None:
            state["best"]["model"] = shard_weights(state["best"]["model"], session.network)
    load_weights(session.network, state["network"], path)
    optimizer.load_state_dict(state["optimizer"])
    for group in optimizer.param_groups:
        # The checkpoint is read to the CPU, and torch moves the moments but not the rate, which a
        # CUDA graph must find on its device.
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].to(session.task.device)
    session.scheduler.load_state_dict(state["scheduler"])
    if method.model is not None:
        load_weights(method.model, state["model"], path)
    of_method = dict(state["method"])
    if not session.processes.alone:
        of_method |= {k: of_method[k][session.shard.positions] for k in method.per_instance}
    method.load_state_dict(of_method)
    session.history = json.loads(state["history"])
    session.first_epoch = len(session.history)
    session.best, session.stop = state["best"], state["stop"]
