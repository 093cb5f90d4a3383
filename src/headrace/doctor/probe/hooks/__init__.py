"""Hooks: functions that install them in the modules of torch and other libraries. `attaching` lists them."""
