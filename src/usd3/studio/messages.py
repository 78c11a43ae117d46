"""Errors as a page shows them: one line each, and no path of this computer."""

import os
import re
import tempfile
import traceback
from pathlib import Path

import usd3

__all__ = ["explained"]

_EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError, ArithmeticError)
_LONGEST = 600


def explained(error: Exception) -> str:
    """The one line about an error. With USD3_DEBUG=1 in the environment the terminal shows where it arose."""
    if os.environ.get("USD3_DEBUG"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, _EXPECTED) or not text:
        return f"this did not work ({type(error).__name__}); usd3 studio says more with USD3_DEBUG=1"
    text = _without_places(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _without_places(text: str) -> str:
    """A text with the names of files alone, without the folders of this computer around them."""
    temporary = re.escape(tempfile.gettempdir()) + r"/usd3-studio-\w+/"
    text = re.sub(temporary, "", text)
    for place in (Path.cwd(), Path(usd3.__file__).parent, Path.home()):
        text = text.replace(f"{place}{os.sep}", "")
    return text
