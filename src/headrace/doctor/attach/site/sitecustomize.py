"""Start Headrace's probe in each Python process of an observed command.

Then give way to the sitecustomize that this one hides, if any. The file must be readable, and silent, in any Python
version.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROBE = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "probe", "__init__.py")


def _start_probe(folder):
    # Not importlib.util: its import takes half as long as Python takes to start.
    from importlib.machinery import ModuleSpec, SourceFileLoader

    loader = SourceFileLoader("_headrace_probe", _PROBE)
    spec = ModuleSpec(loader.name, loader, origin=_PROBE, is_package=True)
    spec.has_location = True
    module = type(sys)(loader.name)
    module.__spec__, module.__loader__, module.__file__, module.__package__ = spec, loader, _PROBE, loader.name
    module.__path__ = spec.submodule_search_locations = [os.path.dirname(_PROBE)]
    sys.modules[loader.name] = module
    loader.exec_module(module)
    module.start_when_needed(folder, _clean_up)


def _leave_note(folder):
    """Write why the probe failed, since there is no evidence file."""
    import traceback

    path = os.path.join(folder, "evidence", "failed-" + str(os.getpid()) + ".txt")
    try:
        with open(path, "w") as file:
            file.write(traceback.format_exc())
    except Exception:
        return


def _clean_up(folder):
    _leave_note(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "_headrace_probe"]:
        del sys.modules[name]


if sys.version_info >= (3, 9) and os.environ.get("HEADRACE_DOCTOR"):
    try:
        _start_probe(os.environ["HEADRACE_DOCTOR"])
    except Exception:
        _clean_up(os.environ["HEADRACE_DOCTOR"])

# Remove all traces of this file: its path, and the import that site requested, which then runs as usual, errors
# included. Without another sitecustomize, ImportError names it, and site ignores that.
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path) != _HERE]
_ours = sys.modules.pop("sitecustomize")  # keep a reference: Python 2 clears an unreferenced module
import sitecustomize  # noqa: E402, F401
