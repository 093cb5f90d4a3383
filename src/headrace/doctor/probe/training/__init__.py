"""The training thread of a process: its steps, its batches, and the windows of a measured run.

Hooks report to `training`. Dependencies run one way from there:

- `closed_steps`: steps that have ended, on their way to the evidence; `device_marks`: marks on the device's stream.
- `windows`: which steps are warm-up, observed and replayed, as a state machine.
- `replay`, `loader_sources`: work of the loop and the workers in each window.
- `state`: the one state of all: the thread, its ranks, its passes over loaders and the batches received.
- `loop_watch`: work of the loop between a batch and the model, when the steps suffice, and standstill.
- `steps`: all of this, divided into optimizer steps.
"""
