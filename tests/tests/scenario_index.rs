//! Keeps `docs/SCENARIOS.md` and the tests named after its ids in step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where tests are, from this crate's directory, and what is written before their file's name in the page.
const PLACES: [(&str, &str); 4] = [
    ("tests", ""),
    ("../bindings/tokio/tests/scenarios", "scenarios/"),
    ("../bindings/tokio/src", "src/"),
    ("../python/tests", "python/"),
];

/// Ids by the files that have a test of that name, such as `PB029` for `fn pb029_…` or `def test_pb029_…`.
fn tests_by_id() -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (directory, prefix) in PLACES {
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let file = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
            for line in text.lines().map(str::trim_start) {
                let rust = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn pb");
                let Some(rest) = rust.or_else(|| line.strip_prefix("def test_pb")) else { continue };
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                ids.entry(format!("PB{digits}")).or_default().insert(file.clone());
            }
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
        if place.starts_with('`') {
            let named: BTreeSet<String> = place.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            if named != found {
                wrong.push(format!("{id}: says {named:?}, and the tests are in {found:?}"));
            }
        } else if found.is_empty() {
            let known = ["adapter", "later: ", "open"].iter().any(|word| place.starts_with(word));
            assert!(known, "{id}: {place:?} says neither where nor why not");
        } else {
            wrong.push(format!("{id}: says {place:?}, and {found:?} has a test"));
        }
    }
    wrong.extend(tests.into_iter().map(|(id, files)| format!("{id}: {files:?} has a test, and no row")));
    assert!(wrong.is_empty(), "docs/SCENARIOS.md:\n{}", wrong.join("\n"));
    assert!(rows.len() > 80, "{} rows", rows.len());
}
