//! Keeps `docs/SCENARIOS.md` and the tests named after its ids in step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Ids by the files that have a test of that name, such as `PB029` for `fn pb029_…`.
fn tests_by_id() -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for rest in text.lines().filter_map(|line| line.trim_start().strip_prefix("fn pb")) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            ids.entry(format!("PB{digits}")).or_default().insert(file.clone());
        }
    }
    ids
}

#[test]
fn every_scenario_that_names_a_file_has_its_test_there_and_every_test_its_row() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SCENARIOS.md")).unwrap();
    let mut tests = tests_by_id();
    let mut rows = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| PB")) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, _, place] = columns[..] else { panic!("three columns: {line}") };
        assert!(rows.insert(id), "{id} has two rows");
        let found = tests.remove(id).unwrap_or_default();
        match place.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
            Some((file, _)) if found.contains(file) => {}
            Some((file, _)) => wrong.push(format!("{id}: {file} has no test of that name")),
            None if found.is_empty() => {
                let known = ["adapter", "later: ", "open"].iter().any(|word| place.starts_with(word));
                assert!(known, "{id}: {place:?} says neither where nor why not");
            }
            None => wrong.push(format!("{id}: says {place:?}, and {found:?} has a test")),
        }
    }
    wrong.extend(tests.into_iter().map(|(id, files)| format!("{id}: {files:?} has a test, and no row")));
    assert!(wrong.is_empty(), "docs/SCENARIOS.md:\n{}", wrong.join("\n"));
    assert!(rows.len() > 80, "{} rows", rows.len());
}
