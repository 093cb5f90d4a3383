"""The training thread of a process: its steps, its batches, and the windows of a measured run.

Hooks report to `training`. Dependencies run one way from there:

- `thread`: which thread trains.
- `received_batches`: passes over loaders, and the batches received.
- `loop_work`, `loop_calls`: work of the loop between a batch and the model.
- `steps`: all of this, divided into optimizer steps.
- `step_records`: steps that have ended, on their way to the evidence.
- `step_limit`: length of the warm-up, and the sufficient number of steps.
- `windows`: which steps are observed and which are replayed, as a state machine.
- `replay`, `cached_batches`, `loader_sources`: work of the loop and the workers in each window.
- `ranks`: joint decisions of all ranks.
"""
