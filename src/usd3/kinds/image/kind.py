"""Image tokens as a kind of data: a VQGAN turns images into tokens, and tokens into images.

Its networks and pictures are imported where they are used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.fields import from_mapping
from usd3.kinds.base import Kind
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.source import ImageSource
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Renderer, Request
from usd3.metrics.summary import Metric

if TYPE_CHECKING:
    from usd3.kinds.image.judge import ImageJudge
    from usd3.kinds.image.page import ImagePage

__all__ = ["ImageTokens"]


@dataclass(frozen=True)
class ImageTokens(Kind):
    """Tokens (h, w) of an image.

    Args:
        source: the VQGAN that made the tokens, and the images. It must be given; None is an error.
    """

    source: ImageSource = None  # type: ignore[assignment]

    name: ClassVar[str] = "image_tokens"
    plural: ClassVar[str] = "images"
    sources: ClassVar[tuple[str, ...]] = ("image_tokens",)
    uses_labels: ClassVar[bool] = False  # `usd3 encode` stores them, and many models are unconditional
    is_sequence: ClassVar[bool] = False
    is_judged: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Metric]] = {
        "classifier_score": Metric("classifier score", "higher"),
        "classifier_frechet": Metric("classifier Fréchet"),
        "precision": Metric("precision", "higher"),
        "recall": Metric("recall", "higher"),
        "inception_score": Metric("IS", "higher"),
        "fid": Metric("FID"),
    }
    main_metrics: ClassVar[tuple[str, ...]] = ("fid", "classifier_frechet")
    evaluate_options: ClassVar[tuple[str, ...]] = (
        "--images.path IMAGES",
        "--images.vqgan FOLDER",
        "--images.classifier FOLDER",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.source, dict):  # from JSON
            object.__setattr__(self, "source", from_mapping(ImageSource, self.source, "source"))
        require_type(isinstance(self.source, ImageSource), "source", self.source, "an ImageSource")

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """A config.json with the `source` of tokens is one of images."""
        source = config.get("source")
        return None if source is None else {"name": cls.name, "source": source}

    def describe(self) -> str:
        """Such as "8 x 8 image tokens of 512 kinds"."""
        return f"{' x '.join(map(str, self.shape))} image tokens of {self.num_classes} kinds"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error for another kind, and for tokens of another VQGAN: these have another meaning."""
        super().require_same(other, name)
        self.source.require_same_vqgan(ImageSource(**other["source"]), name)

    def without_places(self) -> Self:
        """The same with the names of the folders of VQGAN and images, without their paths."""
        source = self.source
        return replace(self, source=replace(source, vqgan=Path(source.vqgan).name, images=Path(source.images).name))

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """The tokens of a file that `usd3 encode` wrote."""
        from usd3.kinds.image.tokens import load_image_tokens

        return load_image_tokens(data.file("a file that usd3 encode wrote"))

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """The split is the one of the image files."""
        return "that of the files"

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> Renderer:
        """A renderer of images; for an .npz file of tokens one that needs no VQGAN."""
        from usd3.kinds.image.rendering import ImageRenderer, needs_vqgan

        return ImageRenderer(self, request) if needs_vqgan(request) else Renderer(self)

    def page(self, request: Request) -> "ImagePage":
        """The images as the studio shows them."""
        from usd3.kinds.image.page import ImagePage

        return ImagePage(self, request)

    def about_arrays(self) -> dict[str, Any]:
        """The array `about`: the VQGAN that made the tokens, and the images."""
        from usd3.kinds.image.tokens import about_tokens

        return {"about": about_tokens(self.num_classes, self.source)}

    def picture_methods(self, rows: Mapping[str, Tensor], compared_with: Mapping[str, Any], path: Path) -> bool:
        """Draw a row of images for each method."""
        from usd3.kinds.image.folders import load_vqgan
        from usd3.pictures import image_rows

        vqgan = load_vqgan(compared_with["vqgan"], "cpu")
        image_rows({label: vqgan.decode_images(tokens) for label, tokens in rows.items()}, path)
        return True

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """One that names the VQGAN, which images need."""
        return [" --vqgan FOLDER"]

    # ---- measures -----------------------------------------------------------------------------------------------

    def require_settings(self, settings: Any, option: str) -> None:
        """Raise an error if there is no classifier: its features compare images."""
        classifier = settings.images.classifier
        expected = "the folder of a classifier, as `usd3 classifier --images IMAGES --run FOLDER` trains one"
        require(classifier is not None, f"{option}images.classifier", classifier, expected)

    def judge(self, dataset: Dataset, settings: Any, device: str | None, option: str) -> "ImageJudge":
        """The judge that compares sets of images with the training images, by the features of a classifier."""
        from usd3.kinds.image.judge import ImageJudge

        self.require_settings(settings, option)
        return ImageJudge(dataset, settings.images, device, f"{option}images")

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """A line with the number of images drawn, the training images and the classifier."""
        drawn = f"{settings['images']['num']} images in {settings['steps']} steps, seed {settings['seed']}"
        line = drawn if settings["runs"] == 1 else f"{settings['runs']} sets of {drawn}"
        line += f", against {compared_with['training_images']} training images"
        accuracy = compared_with["classifier_accuracy"]
        accurate = "" if accuracy is None else f" (accuracy {accuracy:.3f})"
        return f"{line}, by the classifier {compared_with['classifier']}{accurate}"
