"""Distances between generated and true data, as functions of arrays.

For sequences: n-grams, edit distance, copies of training data. For melodies also beats, rests and repetitions. For
images: the features of a classifier.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily

if TYPE_CHECKING:
    from usd3.metrics.continuations import EditDiversity, NgramHellinger, NgramOutliers, evaluate_continuations
    from usd3.metrics.edits import edit_diversity
    from usd3.metrics.feature_sets import frechet_distance, label_score, nearest, precision_recall
    from usd3.metrics.images import ImageMetrics, image_metrics
    from usd3.metrics.melodies import melody_structure
    from usd3.metrics.ngrams import ngram_hellinger, ngram_outliers
    from usd3.metrics.parroting import Ratio, distances_to_matches, matching_rows, train_to_test_ratio
    from usd3.metrics.summary import Summary, format_table

_MODULES = {  # imported on first use: torchmetrics is slow to import
    "usd3.metrics.continuations": ("EditDiversity", "NgramHellinger", "NgramOutliers", "evaluate_continuations"),
    "usd3.metrics.edits": ("edit_diversity",),
    "usd3.metrics.feature_sets": ("frechet_distance", "label_score", "nearest", "precision_recall"),
    "usd3.metrics.images": ("ImageMetrics", "image_metrics"),
    "usd3.metrics.melodies": ("melody_structure",),
    "usd3.metrics.ngrams": ("ngram_hellinger", "ngram_outliers"),
    "usd3.metrics.parroting": ("Ratio", "distances_to_matches", "matching_rows", "train_to_test_ratio"),
    "usd3.metrics.summary": ("Summary", "format_table"),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})

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
