"""The draft worker: a process of its own that holds the engine and drafts ahead for every open stream."""
