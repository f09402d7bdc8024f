"""How functions become compiled programs: tracing, guards, and when a program may be used again."""
