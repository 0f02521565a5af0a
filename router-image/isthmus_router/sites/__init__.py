"""What a router that is a member of a relayed site offers to AMQP clients: the addresses of the group."""
