//! Steps that may be skipped.

/// Reasons for which a step may be skipped without failing the run, by step.
pub const ALLOWED: &[(&str, &str)] = &[
    // The targets have run on random bytes among the tests.
    ("fuzz", crate::fuzz::NO_COMPILER),
    ("fuzz-build", crate::fuzz::NO_COMPILER),
    // Not every machine reaches the index of Python's packages.
    ("api-client", crate::python::NO_PACKAGES),
    ("packages", crate::python::NO_PACKAGES),
    // Nor the standard libraries of other targets.
    ("packages", crate::package::NO_TARGET),
];
