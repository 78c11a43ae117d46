"""What `attack.py` tries: kills, damaged files, inputs of strangers, logits that no network should have."""
