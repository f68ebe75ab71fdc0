use super::Finding;
use crate::paths;
use flame_compile::Cache;

/// Examines the cache, the standard modules and the program in which modules run apart.
pub fn examine() -> Vec<Finding> {
    let cache = paths::cache();
    let of_cache = match Cache::open(&cache) {
        Ok(_) => Finding::good("cache", cache.display().to_string()),
        Err(e) => Finding::warning("cache", e.to_string(), "FLAME_CACHE=FOLDER, one that only you can write"),
    };
    let folders = paths::module_folders();
    let has_modules = |folder: &std::path::PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().extension().is_some_and(|e| e == "wasm"))
    };
    let of_modules = match folders.iter().find(|folder| has_modules(folder)) {
        Some(folder) => Finding::good("modules", folder.display().to_string()),
        None => {
            let list: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            let found = format!("no modules in {}", list.join(", "));
            Finding::warning("modules", found, "make install, or FLAME_MODULES=FOLDER")
        }
    };
    let of_runner = match flame_worker::Runner::open() {
        Ok(program) => Finding::good("runner", program.to_string()),
        Err(e) => Finding::warning(
            "runner",
            e,
            "make install; it is needed for --isolate, and for the modules of principals on a node",
        ),
    };
    vec![of_cache, of_modules, of_runner]
}
