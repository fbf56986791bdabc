"""What subscriptions ask for, counted."""
