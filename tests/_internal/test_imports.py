"""Imports by name, and what is not imported before it is needed."""

import subprocess
import sys
from collections import OrderedDict

import pytest

import usd3
import usd3.methods
import usd3.metrics
import usd3.nets
import usd3.pictures
from usd3._internal.imports import imported_class


def modules_after(code):
    """The modules that Python has imported after running the code."""
    code += "\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("package", [usd3, usd3.methods, usd3.nets, usd3.metrics, usd3.pictures])
def test_every_name_of_a_package_can_be_used(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module {package.__name__!r} has no attribute 'Nope'"):
        _ = package.Nope


def test_packages_import_nothing_before_it_is_used():
    code = "import usd3, usd3.methods, usd3.nets, usd3.metrics, usd3.pictures, usd3.recipes, usd3._internal.processes"
    assert not modules_after(code) & {"torch", "numpy", "matplotlib", "torchmetrics", "rich"}


def test_a_class_at_an_import_path():
    assert imported_class("collections.OrderedDict", dict, "model.net", ["film"]) is OrderedDict
    for path, reason in (("nope", ""), ("os.nope", r" \(.*\)"), ("collections.deque", "")):
        expected = rf"^model.net = {path}: expected one of \['film'\] or the import path of a class derived from "
        with pytest.raises(ValueError, match=rf"{expected}builtins.dict{reason}$"):
            imported_class(path, dict, "model.net", ["film"])
