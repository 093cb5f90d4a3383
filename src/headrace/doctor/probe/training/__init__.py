"""The training thread of a process: its steps, its batches, and the windows of a measured run.

Hooks report to `training`, and everything goes one way from there:

- `thread`: which thread trains, and when `--observe` lets it alone.
- `received_batches`: passes over loaders, and the batches that they give.
- `loop_work`, `loop_calls`: what the loop does between a batch and the model.
- `steps`: all of this, cut into optimizer steps.
- `step_records`: steps that have ended, on their way to the evidence.
- `step_limit`: how long the warm-up is, and how many steps are enough.
- `windows`: which steps are observed and which are replayed, as a state machine.
- `replay`, `cached_batches`, `loader_sources`: what the loop and the workers do in each window.
- `ranks`: what all ranks decide together.
"""
