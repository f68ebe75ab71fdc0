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
        routes::sources,
        routes::revoke,
        routes::list,
        routes::install,
        routes::show,
        routes::update,
        routes::renew,
        routes::stop,
        routes::remove,
        routes::log,
        records::records,
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

#[cfg(test)]
mod tests {
    #[test]
    fn every_path_and_its_errors_are_described() {
        let text: serde_json::Value = serde_json::from_str(super::description()).unwrap();
        let paths = text["paths"].as_object().unwrap();
        for path in
            ["/v1/modules", "/v1/modules/{name}", "/v1/modules/{name}/records", "/v1/session", "/metrics"]
        {
            assert!(paths.contains_key(path), "{path} in {:?}", paths.keys().collect::<Vec<_>>());
        }
        let install = &paths["/v1/modules"]["post"];
        assert!(install["responses"]["4XX"].is_object() && install["requestBody"].is_object(), "{install}");
    }
}
