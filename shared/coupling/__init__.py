"""The choice that target and drafter make alike: filters, noise and argmax over rows of logits, in torch."""
