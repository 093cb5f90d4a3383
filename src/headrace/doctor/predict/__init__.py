"""What a changed loader would give: recorded work, simulated through workers, queue, cores and device."""
