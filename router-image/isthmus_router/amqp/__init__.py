"""The driver around the proton engine: sockets, TLS, SASL, timers, and the forwarding kernel."""
