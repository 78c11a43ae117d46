"""Distances between what was generated and what is true.

For sequences: n-grams, edit distance, copying of the training data. For melodies also metre, rests and repetitions. For
images: by what a network sees in them.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily
from usd3.metrics.edits import edit_diversity
from usd3.metrics.images import ImageMetrics, frechet_distance, image_metrics, label_score, nearest, precision_recall
from usd3.metrics.melodies import melody_structure
from usd3.metrics.ngrams import ngram_hellinger, ngram_outliers
from usd3.metrics.parroting import Ratio, distances_to_matches, matching_rows, train_to_test_ratio
from usd3.metrics.summary import Summary, format_table

if TYPE_CHECKING:
    from usd3.metrics.continuations import EditDiversity, NgramHellinger, NgramOutliers, evaluate_continuations

_LAZY = ("EditDiversity", "NgramHellinger", "NgramOutliers", "evaluate_continuations")  # they bring torchmetrics
__getattr__ = lazily(__name__, dict.fromkeys(_LAZY, "usd3.metrics.continuations"))

__all__ = [
    "EditDiversity",
    "ImageMetrics",
    "NgramHellinger",
    "NgramOutliers",
    "Ratio",
    "Summary",
    "distances_to_matches",
    "edit_diversity",
    "evaluate_continuations",
    "format_table",
    "frechet_distance",
    "image_metrics",
    "label_score",
    "matching_rows",
    "melody_structure",
    "nearest",
    "ngram_hellinger",
    "ngram_outliers",
    "precision_recall",
    "train_to_test_ratio",
]
