"""Random conversations with a router in memory, whose frames are AMQP in structure and wrong in any detail."""
