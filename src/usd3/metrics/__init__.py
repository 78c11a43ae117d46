"""Distances between generated sequences and true ones: n-grams, edit distance, copying of the training data."""

from usd3.metrics.continuations import EditDiversity, NgramHellinger, NgramOutliers, evaluate_continuations
from usd3.metrics.edits import edit_diversity
from usd3.metrics.ngrams import ngram_hellinger, ngram_outliers
from usd3.metrics.parroting import Ratio, distances_to_matches, matching_rows, train_to_test_ratio
from usd3.metrics.summary import Summary, format_table

__all__ = [
    "EditDiversity",
    "NgramHellinger",
    "NgramOutliers",
    "Ratio",
    "Summary",
    "distances_to_matches",
    "edit_diversity",
    "evaluate_continuations",
    "format_table",
    "matching_rows",
    "ngram_hellinger",
    "ngram_outliers",
    "train_to_test_ratio",
]
