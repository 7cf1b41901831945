"""Floor 1: HTTP/1.1 and server-sent events. The only folder that knows h11 and ssl."""
