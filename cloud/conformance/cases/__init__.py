"""The cases of the conformance suite, one for each rule, in modules by subject."""
