"""Who may connect, and attach to what: the `policy` and `vhost` sections, enforced."""
