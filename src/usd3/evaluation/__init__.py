"""A model against held-out data: metrics, references, comparisons, tables."""
