//! `cargo xtask proto`: proto/pulsar.proto -> core/src/wire/proto.rs.
//!
//! The generated file is committed, so that a build of the core needs neither this tool nor protoc.
use std::{fs, path::Path};

use crate::shell::Shell;
use anyhow::{Context, bail};

const PROTO: &str = "proto/pulsar.proto";
const GENERATED: &str = "core/src/wire/proto.rs";

/// Writes the generated file, or with `check` fails when it differs from what would be written.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has a parent directory")?;
    let fresh = generate(root)?;
    let path = root.join(GENERATED);
    if !check {
        return fs::write(&path, fresh).with_context(|| format!("cannot write {}", path.display()));
    }
    // A checkout may have turned the line ends around.
    let committed = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .replace("\r\n", "\n");
    if let Some((line, old, new)) = first_difference(&committed, &fresh) {
        bail!("{GENERATED}:{line} is not what {PROTO} generates; run `cargo xtask proto`\n- {old}\n+ {new}");
    }
    Ok(())
}

fn generate(root: &Path) -> anyhow::Result<String> {
    let descriptors = protox::compile([root.join(PROTO)], [root.join("proto")])
        .with_context(|| format!("{PROTO} does not compile"))?;
    let out = tempfile::tempdir()?;
    prost_build::Config::new()
        .bytes(["."]) // slices of the frame instead of copies
        .out_dir(out.path())
        .compile_fds(descriptors)
        .context("prost-build failed")?;
    let path = out.path().join("pulsar.proto.rs");
    let code = fs::read_to_string(&path)?;
    fs::write(&path, format!("// Generated from {PROTO} by `cargo xtask proto`; do not edit.\n{code}"))?;
    // As `cargo fmt` would, so that the formatted file is the one that is compared.
    Shell::new("rustfmt").args(["--edition", "2024", "--config-path"]).args([root, &path]).run()?;
    Ok(fs::read_to_string(&path)?)
}

/// The first line (from 1) that differs, with both its texts.
fn first_difference<'a>(old: &'a str, new: &'a str) -> Option<(usize, &'a str, &'a str)> {
    if old == new {
        return None;
    }
    let (mut a, mut b, mut line) = (old.lines(), new.lines(), 1);
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Some((line, "(other line ends)", "")),
            (a, b) if a != b => {
                return Some((line, a.unwrap_or("(end of file)"), b.unwrap_or("(end of file)")));
            }
            _ => line += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, "(end of file)", "b")));
    }

    #[test]
    fn the_committed_file_is_what_the_proto_generates() {
        run(true).expect("core/src/wire/proto.rs is up to date");
    }
}
