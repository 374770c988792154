//! A machine as the text of a machine file, from which the same machine is read.

use std::fmt::Write;

use super::Machine;

impl Machine {
    /// The file of a machine made from a topology ([`Machine::derived`]): those of others say what this does not.
    #[must_use]
    pub fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.into()).to_string();
        let cpu = &self.cpu;
        let mut text =
            format!("title = {}   # the format: docs/simulator.md\n\n[cpu]\n", quoted(&self.title));
        if cpu.threads_per_core > 1 {
            let (threads, percent) = (cpu.threads_per_core, cpu.smt_speedup_percent);
            let _ =
                writeln!(text, "threads_per_core = {threads}\nsmt_speedup_percent = {percent:?}");
        }
        let _ = writeln!(
            text,
            "\n[sim]\nstream_mb_s = {:?}\nwork_ns = {:?}",
            cpu.stream_mb_s, cpu.work_ns
        );
        let _ = writeln!(text, "\n[memory]\nbandwidth_mb_s = {:?}", self.memory_mb_s);
        if !self.links.is_empty() {
            let rates: Vec<f64> = self.links.iter().map(|link| link.2).collect();
            let ends = |link: &(usize, usize, f64)| [self.node[link.0].id, self.node[link.1].id];
            let between: Vec<[u32; 2]> = self.links.iter().map(ends).collect();
            let _ = writeln!(text, "\n[links]\nbandwidth_mb_s = {rates:?}\nbetween = {between:?}");
        }
        text += "\n[coherence]\n";
        for node in &self.node {
            let (id, cpus, memory) = (node.id, node.cpus, node.memory_mib);
            let _ = writeln!(text, "\n[[node]]\nid = {id}\ncpus = {cpus}\nmemory_mib = {memory}");
        }
        text += "\n[distance]\n";
        let rows = |name: &str, rows: Vec<String>| {
            format!("{name} = [\n    {},\n]\n", rows.join(",\n    "))
        };
        text += &rows("slit", self.slit.iter().map(|row| format!("{row:?}")).collect());
        text += &rows("latency_ns", self.latency_ns.iter().map(|row| format!("{row:?}")).collect());
        text += "\n[provenance]\n";
        for (figure, from) in &self.provenance {
            let _ = writeln!(text, "{} = {}", quoted(figure), quoted(from));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::{Bytes, NodeId, Topology};

    #[test]
    fn what_is_read_is_what_was_written() {
        let slit = |a: u32, b: u32| if a == b { 10 } else { 20 + a.abs_diff(b) };
        for (nodes, threads) in [(1, 1), (2, 2), (5, 4)] {
            let node = |id: u32| (NodeId(2 * id), if id == 1 { 0 } else { 4 }, Bytes(3 << 30));
            let rows = (0..nodes).map(|a| (0..nodes).map(|b| slit(a, b)).collect()).collect();
            let topology = Topology::numbered((0..nodes).map(node), rows).with_cores_of(threads);
            let machine = Machine::derived("it's \"x\"", &topology, None);
            let text = machine.text();
            let read = Machine::parse("it's \"x\"", "x.toml", &text).unwrap();
            assert_eq!(read, Machine { derived: false, ..machine }, "{text}");
        }
    }
}
