//! Rules over manifests: who may depend on whom, and under which licence.

use toml::{Table, Value};

/// Who may see whom (house.md, "Rooms"); None: all but the plugin.
const EDGES: &[(&str, Option<&[&str]>)] = &[
    ("model", Some(&[])),
    ("mempolicy", Some(&["model"])),
    ("placement", Some(&["model"])),
    ("scheduling", Some(&["model"])),
    ("check", Some(&["model"])),
    ("sim", Some(&["model", "mempolicy", "scheduling"])),
    ("linux", Some(&["model", "mempolicy"])),
    ("bpf", Some(&["model"])),
    ("sampling", Some(&["model"])),
    ("control", Some(&["model", "placement", "check"])),
    ("trace", Some(&["model"])),
    ("workloads", Some(&[])),
    ("lab", Some(&["model"])),
    ("lab-plugin", Some(&[])),
    ("report", Some(&["model"])),
    ("cli", None),
];

/// Loaded into QEMU, which is GPL; so it is, and nothing of ours may link it.
const GPL: &str = "lab-plugin";

/// The folder's name, for the manifest of a crate.
pub fn crate_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

/// Dependencies within the house that the house does not allow.
pub fn edges(path: &str, text: &str) -> Vec<String> {
    let Some(name) = crate_of(path) else { return Vec::new() };
    let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{path}: crate {name} is not among the rooms of the house")];
    };
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut ours = Vec::new();
    dependencies(&manifest, &mut ours);
    let may = |to: &str| allowed.map_or(to != GPL, |allowed| allowed.contains(&to));
    let wrong = ours.iter().filter(|to| !may(to));
    wrong.map(|to| format!("{path}: {name} must not depend on {to}")).collect()
}

/// Ours in every table of dependencies: normal, build, dev, and those of a target.
fn dependencies(table: &Table, ours: &mut Vec<String>) {
    for (key, value) in table {
        let Value::Table(inner) = value else { continue };
        if key.ends_with("dependencies") {
            for (name, dependency) in inner {
                let renamed = dependency.get("package").and_then(Value::as_str);
                let name = renamed.unwrap_or(name);
                ours.extend(name.strip_prefix("numaherd-").map(str::to_string));
            }
        } else {
            dependencies(inner, ours);
        }
    }
}

/// A licence that is not the house's.
pub fn licence(path: &str, text: &str) -> Vec<String> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let package =
        manifest.get("package").or(manifest.get("workspace").and_then(|w| w.get("package")));
    let licence = package.and_then(|package| package.get("license"));
    let stated = match licence {
        Some(Value::String(stated)) => stated.as_str(),
        Some(inherited) if inherited.get("workspace").is_some() => "Apache-2.0",
        _ => "none",
    };
    let expected = if crate_of(path) == Some(GPL) { "GPL-2.0-or-later" } else { "Apache-2.0" };
    if stated == expected {
        return Vec::new();
    }
    vec![format!("{path}: licence {stated}, expected {expected}")]
}

#[test]
fn a_planted_edge_is_found_in_every_kind_of_dependency() {
    let edge = |kind: &str, to: &str| format!("[{kind}]\n{to}.workspace = true\n");
    for kind in ["dependencies", "dev-dependencies", "build-dependencies", "target.x.dependencies"]
    {
        let found = edges("crates/placement/Cargo.toml", &edge(kind, "numaherd-linux"));
        assert_eq!(found.len(), 1, "{kind}");
        assert!(found[0].contains("placement must not depend on linux"), "{found:?}");
        assert!(edges("crates/placement/Cargo.toml", &edge(kind, "numaherd-model")).is_empty());
    }
    let renamed = "[dependencies]\nx = { package = \"numaherd-sim\", path = \"../sim\" }\n";
    assert_eq!(edges("crates/check/Cargo.toml", renamed).len(), 1);
    assert_eq!(
        edges("crates/cli/Cargo.toml", &edge("dependencies", "numaherd-lab-plugin")).len(),
        1
    );
    assert!(edges("crates/cli/Cargo.toml", &edge("dependencies", "numaherd-lab")).is_empty());
    assert_eq!(
        edges("crates/workloads/Cargo.toml", &edge("dependencies", "numaherd-model")).len(),
        1
    );
    assert_eq!(edges("crates/attic/Cargo.toml", "").len(), 1);
    assert_eq!(edges("crates/model/Cargo.toml", "[").len(), 1);
}

#[test]
fn a_planted_licence_is_found() {
    let inherits = "[package]\nlicense.workspace = true\n";
    let gpl = "[package]\nlicense = \"GPL-2.0-or-later\"\n";
    assert!(licence("crates/lab/Cargo.toml", inherits).is_empty());
    assert_eq!(licence("crates/lab/Cargo.toml", gpl).len(), 1);
    assert!(licence("crates/lab-plugin/Cargo.toml", gpl).is_empty());
    assert_eq!(licence("crates/lab-plugin/Cargo.toml", inherits).len(), 1);
    assert_eq!(licence("crates/lab/Cargo.toml", "[package]\n").len(), 1);
    assert_eq!(licence("Cargo.toml", "[workspace.package]\nlicense = \"MIT\"\n").len(), 1);
}
