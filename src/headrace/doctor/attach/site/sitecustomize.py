"""Starts Headrace's probe in each Python that an observed command runs, then runs the sitecustomize that this one
stands before. It must be readable, and silent, in any Python."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROBE = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "probe", "__init__.py")


def _start_probe(folder):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("_headrace_probe", _PROBE, submodule_search_locations=[os.path.dirname(_PROBE)])
    module = module_from_spec(spec)
    sys.modules["_headrace_probe"] = module
    spec.loader.exec_module(module)
    module.start(folder)


def _run_next():
    """What Python would have run had this file not come first. Its errors are Python's to report, as they would be."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if sys.version_info >= (3, 9):
    try:
        if os.environ.get("HEADRACE_DOCTOR"):
            _start_probe(os.environ["HEADRACE_DOCTOR"])
    except Exception:
        sys.modules.pop("_headrace_probe", None)
    _run_next()
