//! The page on verification tells the truth: what it names is there, and what is there it names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the files in `folder` that end so, without that end.
fn files(folder: &str, end: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(end).map(String::from)).collect()
}

/// The tests in a file.
fn tests(path: &str) -> BTreeSet<String> {
    let text = read(path);
    let names = text.split("#[test]\n").skip(1).map(|rest| {
        let (name, _) = rest.trim_start().strip_prefix("fn ").and_then(|rest| rest.split_once('(')).unwrap();
        name.to_owned()
    });
    names.collect()
}

/// What the page names: each word between backticks that could be a name, outside of commands.
fn named() -> BTreeSet<String> {
    let page = read("src/docs/verification.md");
    let prose = page.split("```").step_by(2);
    let quoted = prose.flat_map(|text| text.split('`').skip(1).step_by(2));
    let is_name = |word: &&str| word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    quoted.filter(is_name).map(String::from).collect()
}

#[test]
fn the_page_names_what_there_is_and_nothing_else() {
    let mut there = files("tests", ".rs");
    there.retain(|name| !name.starts_with("bug_"));
    there.insert("histories".into());
    there.extend(files("tests/faults", ".patch"));
    there.extend(files("fuzz/fuzz_targets", ".rs"));
    let models = [tests("src/vitals/explored.rs"), tests("src/engine/explored.rs")];
    assert!(models.iter().all(|models| models.len() > 5), "{models:?}");
    there.extend(models.into_iter().flatten());

    let mut named = named();
    assert!(named.remove("unsafe"), "a keyword, and the only word in its type that names nothing");
    let (unnamed, missing): (Vec<_>, Vec<_>) =
        (there.difference(&named).collect(), named.difference(&there).collect());
    assert!(
        unnamed.is_empty() && missing.is_empty(),
        "not on the page: {unnamed:?}; on it only: {missing:?}"
    );
}

/// A fault that does not fit the code any more breaks nothing.
#[test]
fn each_fault_fits_the_code() {
    for fault in files("tests/faults", ".patch") {
        let patch = read(&format!("tests/faults/{fault}.patch"));
        let file = patch.lines().find_map(|line| line.strip_prefix("--- a/")).unwrap();
        let code = read(file);
        for hunk in patch.split("\n@@ ").skip(1) {
            let lines = hunk.split_inclusive('\n').skip(1).filter(|line| !line.starts_with('+'));
            let before: String = lines.map(|line| line.get(1..).unwrap_or("\n")).collect();
            assert!(!before.is_empty() && code.contains(&before), "{fault} does not fit {file}:\n{before}");
        }
    }
}

/// A fault says which command notices it; a command that runs no test would notice nothing.
#[test]
fn each_fault_is_caught_by_a_test_that_exists() {
    let suites = files("tests", ".rs");
    for fault in files("tests/faults", ".patch") {
        let text = read(&format!("tests/faults/{fault}.patch"));
        let said = |what: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{fault} does not say '{what}'"))
        };
        assert!(!said("breaks").is_empty() && !said("tool").is_empty());
        let command = said("caught by");
        if let Some(suite) = command.strip_prefix("cargo test --test ") {
            assert!(suites.contains(suite) || suite == "histories", "{fault}: {suite}");
        } else {
            let filter = command.strip_prefix("cargo test --lib ").or(command.strip_prefix("loom "));
            assert!(filter.is_some_and(|filter| filter.contains("::")), "{fault}: {command}");
        }
    }
}
