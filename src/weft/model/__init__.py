"""What events look like: values, schemas, events, and their CloudEvents and Arrow forms."""
