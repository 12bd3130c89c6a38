"""TensorBoard, MLflow or W&B: log the metrics and settings of a network and of an estimator.

Needs ``pip install 'llpkit[tensorboard]'``, or ``mlflow`` or ``wandb`` instead.
Tested with tensorboard 2.21.0, mlflow-skinny 3.17.2 and wandb 0.31.0.
"""

import sys

from sklearn.linear_model import LogisticRegression

import llpkit
from llpkit.datasets import load
from llpkit.estimators import LLPClassifier, bag_log_likelihood
from llpkit.integrations.loggers import LOGGERS
from llpkit.training import TestMetrics


def main(name: str = "tensorboard", folder: str = "tracked", epochs: int = 10) -> float:
    """Log one run of each; return the test accuracy of the network."""
    data = load("digits")  # odd against even, bags of 1 to 12
    train, test = data.bags.split(0.8, 0)
    test_metrics = TestMetrics(data.inputs[test.rows], data.truth[test.rows])

    # A network: the logger comes last, so that it sees the metrics of other callbacks. A run that
    # resumes in the same run_dir continues the same log.
    model = llpkit.fit(
        None,
        train,
        data.inputs,
        method="mle",
        epochs=epochs,
        callbacks=[test_metrics, LOGGERS[name]()],
        run_dir=f"{folder}/network",
        progress=False,
    )

    # An estimator: log the iterations of EM after fitting.
    x = data.inputs.flatten(1).numpy() / 255
    em = LLPClassifier(LogisticRegression(max_iter=1000), max_iter=20, tol=1e-2)
    em.fit(x[train.rows], train.evidence, train.bag_index.numpy())
    score = bag_log_likelihood(em, x[test.rows], test.evidence, test.bag_index.numpy())
    path = [{"epoch": i, "log_likelihood": v} for i, v in enumerate(em.log_likelihoods_, 1)]
    LOGGERS[name]().log_run(path, {"test": score}, em.get_params(), f"{folder}/estimator")
    return model.history[-1]["test_accuracy"]


if __name__ == "__main__":
    print(f"test digits classified correctly: {main(*sys.argv[1:3]):.1%}")
