//! The description of the API: every path, and the limits of requests.

use serde_json::Value;

/// Follows a schema of a request, and counts what has a maximum.
fn limited(whole: &Value, part: &Value, seen: &mut usize) {
    let is = |kind: &str| match &part["type"] {
        Value::String(found) => found == kind,
        Value::Array(all) => all.iter().any(|found| found == kind),
        _ => false,
    };
    for (kind, maximum) in [("string", "maxLength"), ("array", "maxItems")] {
        if is(kind) && part["contentEncoding"] != "base64" {
            assert!(part[maximum].is_u64(), "no {maximum}: {part}");
            *seen += 1;
        }
    }
    if is("object") && part.get("properties").is_none() {
        assert!(part["maxProperties"].is_u64(), "no maxProperties: {part}");
        *seen += 1;
    }
    if let Some(name) = part["$ref"].as_str() {
        limited(whole, whole.pointer(name.trim_start_matches('#')).unwrap(), seen);
    }
    match part {
        Value::Object(all) => all.values().for_each(|inner| limited(whole, inner, seen)),
        Value::Array(all) => all.iter().for_each(|inner| limited(whole, inner, seen)),
        _ => {}
    }
}

#[test]
fn every_path_and_its_errors_are_described() {
    let text: serde_json::Value = serde_json::from_str(flame_daemon::description()).unwrap();
    let paths = text["paths"].as_object().unwrap();
    for path in ["/v1/modules", "/v1/modules/{name}", "/v1/modules/{name}/records", "/v1/session", "/metrics"]
    {
        assert!(paths.contains_key(path), "{path} in {:?}", paths.keys().collect::<Vec<_>>());
    }
    // Each text, list and map of a request has a maximum. In base64, it is the maximum of the body.
    let mut seen = 0;
    for operations in paths.values() {
        for operation in operations.as_object().unwrap().values() {
            if let Some(body) = operation.get("requestBody") {
                limited(&text, body, &mut seen);
            }
        }
    }
    assert!(seen > 12, "{seen}");
    let install = &paths["/v1/modules"]["post"];
    assert!(install["responses"]["4XX"].is_object() && install["requestBody"].is_object(), "{install}");
}
