"""Client of the verifiers' HTTP servers: opens a stream, reads its chunks and translates its errors."""
