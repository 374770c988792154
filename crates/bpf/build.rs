//! Compiles the BPF program with clang; `src/stream.rs` embeds the object.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    println!("cargo:rerun-if-changed=src/faults.bpf.c");
    println!("cargo:rerun-if-changed=src/faults.h");
    // Only the object is made, no skeleton: loading by name gives owned types, where a skeleton
    // would borrow from a buffer that must outlive it.
    if let Err(error) =
        SkeletonBuilder::new().source("src/faults.bpf.c").obj(out.join("faults.bpf.o")).build()
    {
        panic!(
            "cannot compile src/faults.bpf.c (is clang installed? apt-get install clang): {error:#}"
        );
    }
}
