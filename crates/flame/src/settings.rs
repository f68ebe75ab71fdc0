//! Parameters of modules from the command line.

use crate::caller;
use crate::error::Error;
use std::collections::BTreeMap;
use std::io::Read;

/// Returns the values of `MODULE.PARAMETER=VALUE` by module. The value `@FILE` stands for that file's text,
/// and `@@…` for a value that begins with one `@`.
pub fn settings(set: &[String]) -> Result<BTreeMap<String, BTreeMap<String, String>>, Error> {
    let mut settings: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for text in set {
        let parsed = text.split_once('=').and_then(|(k, v)| Some((k.split_once('.')?, v)));
        let Some(((module, name), value)) = parsed else {
            return Err(format!("--set {text}: expected MODULE.PARAMETER=VALUE").into());
        };
        let value = value_of(text, value)?;
        settings.entry(module.to_owned()).or_default().insert(name.to_owned(), value);
    }
    Ok(settings)
}

/// Returns the values of `PARAMETER=VALUE`, in the same way.
pub fn values(set: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value_of(text, value)?)),
        None => Err(format!("--set {text}: expected PARAMETER=VALUE").into()),
    };
    set.iter().map(one).collect()
}

fn value_of(text: &str, value: &str) -> Result<String, Error> {
    Ok(match value.strip_prefix('@') {
        Some(rest) if rest.starts_with('@') => rest.to_owned(),
        Some(file) => text_of(file).map_err(|e| format!("--set {text}: {e}"))?,
        None => value.to_owned(),
    })
}

/// Returns a file's text, up to the size that fits a module's parameters.
fn text_of(file: &str) -> Result<String, Error> {
    let limit = u64::from(flame_abi::layout::MAX_DATA);
    let mut text = Vec::new();
    let read = caller::open(file.as_ref())?.take(limit + 1).read_to_end(&mut text);
    read.map_err(|e| format!("{file}: {e}"))?;
    if text.len() as u64 > limit {
        return Err(format!("{file}: more than {limit} bytes, which is what fits parameters").into());
    }
    String::from_utf8(text)
        .map_err(|e| format!("{file}: byte {} is not UTF-8", e.utf8_error().valid_up_to()).into())
}
