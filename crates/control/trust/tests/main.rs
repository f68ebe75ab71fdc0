//! All tests of credentials, grants, identities and the audit log, in one program.

mod audit;
mod common;
mod facts;
mod granted;
mod identity;
mod refused;
mod samples;
