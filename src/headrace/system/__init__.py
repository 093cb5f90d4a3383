"""What this process may use: cores, memory, control groups, threads, forks, channels and its rank."""
