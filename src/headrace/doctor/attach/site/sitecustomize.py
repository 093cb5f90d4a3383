"""Starts Headrace's probe in each Python that an observed command runs, then gives way to the sitecustomize that this
one stands before, or to none. It must be readable, and silent, in any Python."""

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


def _leave_note(folder):
    """The probe has failed, so that there is no evidence to say it in."""
    import traceback

    path = os.path.join(folder, "evidence", "failed-" + str(os.getpid()) + ".txt")
    try:
        with open(path, "w") as file:
            file.write(traceback.format_exc())
    except Exception:
        return


if sys.version_info >= (3, 9) and os.environ.get("HEADRACE_DOCTOR"):
    try:
        _start_probe(os.environ["HEADRACE_DOCTOR"])
    except Exception:
        _leave_note(os.environ["HEADRACE_DOCTOR"])
        for _name in [name for name in sys.modules if name.split(".")[0] == "_headrace_probe"]:
            del sys.modules[_name]

# As if this file had never been: no path of ours, and the import that site asked for does what it would have done, its
# errors included. Where there is no other sitecustomize, ImportError names it, which is what site passes over.
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path) != _HERE]
_ours = sys.modules.pop("sitecustomize")  # kept: Python 2 empties a module that nobody holds
import sitecustomize  # noqa: E402, F401
