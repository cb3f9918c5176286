"""The framing of interactive streams, WebSocket and SPDY/3.1: bytes in, frames out, and back. No sockets."""
