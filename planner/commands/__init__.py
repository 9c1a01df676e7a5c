"""One file a command: it parses, calls one function of a room, and prints. No arithmetic."""
