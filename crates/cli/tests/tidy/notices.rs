//! The licences in the archive that `make dist` makes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::tree::root;

fn notices(cargo: &str, into: &Path) -> Output {
    let mut command = Command::new(root().join("scripts/notices"));
    command.current_dir(root()).arg(cargo).arg(into).output().unwrap()
}

/// All that is linked in is named with its text, what only tests or builds is not, and the BPF program's
/// source is there with the GPL.
#[test]
fn what_is_linked_in_comes_with_its_licence() {
    let dir = tempfile::tempdir().unwrap();
    let cargo = std::env::var("CARGO").unwrap();
    let output = notices(&cargo, dir.path());
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (list, texts) = (read("THIRD-PARTY"), read("TEXTS"));
    for name in ["libbpf-sys v", "serde_json v", "libelf ", "zlib ", "Rust's standard library "] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{name} in {list}");
    }
    assert!(!list.contains("proptest") && !list.contains("libbpf-cargo"), "{list}");
    for of in ["libbpf (in ", "serde_json v", "libelf", "zlib"] {
        assert!(texts.lines().any(|l| l.starts_with("====") && l.contains(of)), "{of}");
    }
    for text in ["Permission is hereby granted", "GNU LESSER GENERAL PUBLIC LICENSE"] {
        assert!(texts.contains(text), "{text}");
    }
    let source = std::fs::read_to_string(root().join("crates/bpf/src/faults.bpf.c")).unwrap();
    assert_eq!(read("bpf/faults.bpf.c"), source);
    assert!(read("bpf/GPL-2.0").contains("Version 2, June 1991"));
    let mut clang = Command::new("clang");
    clang.current_dir(dir.path().join("bpf"));
    clang.args(["-O2", "-g", "-target", "bpf", "-I.", "-c", "faults.bpf.c"]);
    let built = clang.output().unwrap();
    assert!(built.status.success(), "{built:?}");
}

/// A licence that nobody has looked at, or one without a text, makes no archive.
#[test]
fn an_unknown_licence_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cargo = dir.path().join("cargo");
    for (line, told) in [
        ("odd v1.0.0|SSPL-1.0|there", "odd v1.0.0 is under 'SSPL-1.0'"),
        ("odd v1.0.0|MIT|there", "odd v1.0.0 has no licence text"),
    ] {
        std::fs::write(&cargo, format!("#!/bin/sh\necho '{line}'\n")).unwrap();
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = notices(cargo.to_str().unwrap(), &dir.path().join("out"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(told), "{output:?}");
    }
}
