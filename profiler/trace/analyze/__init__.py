"""What a read trace says: links, steps, utilization, idle time, compile blockers."""
