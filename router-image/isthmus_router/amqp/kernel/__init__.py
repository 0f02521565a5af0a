"""The forwarding kernel: moves deliveries along routes, and outcomes and credit back. It decides nothing."""
