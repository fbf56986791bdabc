"""The durable log: events, and all state that must survive a restart, stored group by group."""
