"""Distances between generated and true data, as functions of arrays.

For sequences: n-grams, k-mers, edit distance, copies of training data. For melodies also beats, rests and
repetitions, for chorales the rules of voice leading, for texts entropy and words. For images: the features of a
classifier. For tables: columns, pairs of columns and the closest training rows. For boards: the rules of Sudoku. For
all data: the difference of two methods on the same objects, with its interval.
"""

from typing import TYPE_CHECKING

from usd3._internal.imports import lazily

if TYPE_CHECKING:
    from usd3.metrics.boards import are_solved, obey_rules, violations
    from usd3.metrics.chains import BackoffChain
    from usd3.metrics.chorales import chorale_structure
    from usd3.metrics.closest import equal_rows, nearest_distances, share_nearer
    from usd3.metrics.continuations import (
        EditDiversity,
        NgramHellinger,
        NgramOutliers,
        continuation_distances,
        evaluate_continuations,
    )
    from usd3.metrics.edits import edit_diversity
    from usd3.metrics.feature_sets import frechet_distance, label_score, nearest, precision_recall
    from usd3.metrics.images import ImageMetrics, image_metrics
    from usd3.metrics.kmers import (
        Spectrum,
        composition_distance,
        kmer_counts,
        kmer_spectrum,
        letter_share,
        position_composition,
        wasserstein,
    )
    from usd3.metrics.melodies import melody_structure
    from usd3.metrics.ngrams import ngram_hellinger, ngram_outliers
    from usd3.metrics.novelty import copied_share, nearest_edits
    from usd3.metrics.paired import Difference, paired_difference, paired_differences
    from usd3.metrics.parroting import Ratio, distances_to_matches, matching_rows, train_to_test_ratio
    from usd3.metrics.summary import Summary, format_table
    from usd3.metrics.tables import pair_trends, shapes
    from usd3.metrics.texts import distinct_ngrams, known_words, unigram_entropy, words_of
    from usd3.metrics.two_sample import told_apart

_MODULES = {  # imported on first use: torchmetrics is slow to import
    "usd3.metrics.chains": ("BackoffChain",),
    "usd3.metrics.chorales": ("chorale_structure",),
    "usd3.metrics.closest": ("equal_rows", "nearest_distances", "share_nearer"),
    "usd3.metrics.boards": ("are_solved", "obey_rules", "violations"),
    "usd3.metrics.continuations": (
        "EditDiversity",
        "NgramHellinger",
        "NgramOutliers",
        "continuation_distances",
        "evaluate_continuations",
    ),
    "usd3.metrics.edits": ("edit_diversity",),
    "usd3.metrics.feature_sets": ("frechet_distance", "label_score", "nearest", "precision_recall"),
    "usd3.metrics.images": ("ImageMetrics", "image_metrics"),
    "usd3.metrics.kmers": (
        "Spectrum",
        "composition_distance",
        "kmer_counts",
        "kmer_spectrum",
        "letter_share",
        "position_composition",
        "wasserstein",
    ),
    "usd3.metrics.melodies": ("melody_structure",),
    "usd3.metrics.ngrams": ("ngram_hellinger", "ngram_outliers"),
    "usd3.metrics.novelty": ("copied_share", "nearest_edits"),
    "usd3.metrics.paired": ("Difference", "paired_difference", "paired_differences"),
    "usd3.metrics.parroting": ("Ratio", "distances_to_matches", "matching_rows", "train_to_test_ratio"),
    "usd3.metrics.summary": ("Summary", "format_table"),
    "usd3.metrics.tables": ("pair_trends", "shapes"),
    "usd3.metrics.texts": ("distinct_ngrams", "known_words", "unigram_entropy", "words_of"),
    "usd3.metrics.two_sample": ("told_apart",),
}
__getattr__ = lazily(__name__, {name: module for module, names in _MODULES.items() for name in names})

__all__ = [
    "BackoffChain",
    "Difference",
    "EditDiversity",
    "ImageMetrics",
    "NgramHellinger",
    "NgramOutliers",
    "Ratio",
    "Spectrum",
    "Summary",
    "are_solved",
    "chorale_structure",
    "composition_distance",
    "continuation_distances",
    "copied_share",
    "distances_to_matches",
    "distinct_ngrams",
    "edit_diversity",
    "equal_rows",
    "evaluate_continuations",
    "format_table",
    "frechet_distance",
    "image_metrics",
    "kmer_counts",
    "kmer_spectrum",
    "known_words",
    "label_score",
    "letter_share",
    "matching_rows",
    "melody_structure",
    "nearest",
    "nearest_distances",
    "nearest_edits",
    "ngram_hellinger",
    "ngram_outliers",
    "obey_rules",
    "pair_trends",
    "paired_difference",
    "paired_differences",
    "position_composition",
    "precision_recall",
    "shapes",
    "share_nearer",
    "told_apart",
    "train_to_test_ratio",
    "unigram_entropy",
    "violations",
    "wasserstein",
    "words_of",
]
