//! The description of the API, derived from its types and handlers.

use super::{metrics, records, routes};
use std::sync::OnceLock;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "FLAME node",
        description = "Modules on the packets of a node: install, change, watch, and read their records.",
        license(name = "Apache-2.0 OR MIT")
    ),
    paths(
        routes::health,
        routes::session,
        routes::challenge,
        routes::answer,
        routes::status,
        routes::security,
        routes::sources,
        routes::credentials,
        routes::capacity,
        routes::revoke,
        routes::withdraw,
        routes::list,
        routes::install,
        routes::show,
        routes::update,
        routes::renew,
        routes::stop,
        routes::remove,
        routes::log,
        routes::ask,
        records::records,
        records::accounting,
        metrics::metrics,
    ),
    components(schemas(flame_api::Frame))
)]
struct Description;

/// Returns the description as JSON.
pub fn description() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    // Its types have no maps with keys that JSON cannot write.
    TEXT.get_or_init(|| Description::openapi().to_pretty_json().unwrap_or_default())
}
