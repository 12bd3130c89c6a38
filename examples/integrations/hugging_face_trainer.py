"""Hugging Face: datasets and transformers.Trainer learn to classify sentences from counts of bags.

The sentences are made up, and a tiny BERT starts from random weights, so nothing is downloaded.
Needs ``pip install 'llpkit[huggingface]'``.
Tested with transformers 5.23.0, datasets 5.2.0, accelerate 1.15.0.
"""

import tempfile

import torch
from datasets import Dataset
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from llpkit.likelihood import log_prob
from llpkit.ragged import to_offsets

TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 30}
QUIET = {"report_to": "none", "save_strategy": "no", "output_dir": tempfile.gettempdir()}


class CountModel(nn.Module):
    """A model of single sentences, with the loss of whole bags."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, offsets, counts):  # noqa: D102
        logits = self.model(input_ids=input_ids).logits.squeeze(1)  # one per sentence
        loss = -log_prob(logits, counts, offsets).mean()
        return {"loss": loss, "logits": logits}


def collate(bags: list[dict]) -> dict[str, torch.Tensor]:
    """A batch of bags: all their sentences, where each bag ends, and the counts."""
    sentences = torch.tensor([sentence for bag in bags for sentence in bag["input_ids"]])
    offsets = to_offsets(torch.tensor([len(bag["input_ids"]) for bag in bags]))
    counts = torch.tensor([bag["count"] for bag in bags])
    return {"input_ids": sentences, "offsets": offsets, "counts": counts}


def main(bags: int = 400, epochs: int = 8) -> float:
    """Train on bags of five sentences; return the accuracy on new sentences."""
    torch.manual_seed(0)
    words = torch.randint(1, 30, (bags + 40, 5, 8))  # eight words per sentence
    truth = (words == 7).any(2)  # a sentence is positive if word 7 occurs
    bags_of_sentences = {"input_ids": words[:bags].tolist(), "count": truth[:bags].sum(1).tolist()}
    bert = BertForSequenceClassification(BertConfig(num_attention_heads=2, num_labels=1, **TINY))
    settings = {"learning_rate": 3e-3, "per_device_train_batch_size": 8, "num_train_epochs": epochs}
    arguments = TrainingArguments(remove_unused_columns=False, **settings, **QUIET)
    Trainer(CountModel(bert), arguments, collate, Dataset.from_dict(bags_of_sentences)).train()
    with torch.no_grad():
        predicted = bert.eval()(input_ids=words[bags:].flatten(0, 1)).logits.squeeze(1) > 0
    return (predicted == truth[bags:].flatten()).float().mean().item()


if __name__ == "__main__":
    print(f"new sentences classified correctly: {main():.1%}")
