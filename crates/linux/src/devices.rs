//! The node a device is attached to, from sysfs: `netdev:`, `ip:`, `file:`, `block:`, `pci:`.
//!
//! A device's own `numa_node` counts, or that of the PCI function above it. The kernel says −1
//! where it does not know. For `ip:` the route to the host is looked up in `/proc/net`.

use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use numaherd_model::{NodeId, NodeSet};

use crate::file;

/// The nodes of a device such as `netdev:eth0`. None if the text names none; an error is one line
/// that says why there is no answer.
#[must_use]
pub fn resolve(root: &Path, text: &str) -> Option<Result<NodeSet, String>> {
    let (kind, name) = text.split_once(':')?;
    let found = match kind {
        "netdev" => of_class(root, "net", name),
        "block" => of_class(root, "block", name),
        "pci" => of_pci(root, name),
        "file" => of_file(root, Path::new(name)),
        "ip" => of_host(root, name),
        _ => return None,
    };
    Some(found.map(|node| [node].into_iter().collect()))
}

fn of_class(root: &Path, class: &str, name: &str) -> Result<NodeId, String> {
    let name = name.trim_start();
    if name.is_empty() || name.contains(['/', '.']) {
        return Err(format!("Illegal characters in `{name}' specification"));
    }
    let link = root.join("sys/class").join(class).join(name);
    let target = std::fs::read_link(&link).unwrap_or_default();
    if let Some(function) = pci_function(&target) {
        return read_node(&root.join("sys").join(&function).join("numa_node"), name);
    }
    read_node(&link.join("device/numa_node"), name)
}

/// The path of the last PCI function in a link's target, below `sys`.
fn pci_function(target: &Path) -> Option<PathBuf> {
    let parts: Vec<&str> = target.to_str()?.split('/').collect();
    let from = parts.iter().position(|part| *part == "devices")?;
    parts.get(from + 1).filter(|part| part.starts_with("pci"))?;
    let is_function = |part: &&str| {
        let address = part.split_once('.').filter(|(_, function)| function.len() == 1);
        address.is_some_and(|(bus, _)| bus.matches(':').count() == 2)
    };
    let last = parts.iter().rposition(is_function)?;
    (last > from).then(|| parts[from..=last].iter().collect())
}

fn read_node(path: &Path, device: &str) -> Result<NodeId, String> {
    let text = match file::text_if_present(path) {
        Ok(Some(text)) => text,
        _ => return Err(format!("Cannot read node mask for device `{device}'")),
    };
    match text.trim().parse::<i32>().map(u32::try_from) {
        Ok(Ok(node)) => Ok(NodeId(node)),
        _ => Err(format!("Kernel does not know node for {device}")),
    }
}

/// `[SEG:]BUS:DEV[.FUNC]` in hexadecimal digits.
fn of_pci(root: &Path, address: &str) -> Result<NodeId, String> {
    let wrong = || format!("Cannot parse PCI device `{address}'");
    let (device, function) = address.split_once('.').unwrap_or((address, "0"));
    let numbers: Result<Vec<u32>, _> =
        device.split(':').map(|part| u32::from_str_radix(part, 16)).collect();
    let function = u32::from_str_radix(function, 16).map_err(|_| wrong())?;
    let (segment, bus, device) = match numbers.map_err(|_| wrong())?.as_slice() {
        [bus, device] => (0, *bus, *device),
        [segment, bus, device] => (*segment, *bus, *device),
        _ => return Err(wrong()),
    };
    let name = format!("{segment:04x}:{bus:02x}:{device:02x}.{function:x}");
    read_node(&root.join("sys/bus/pci/devices").join(name).join("numa_node"), address)
}

/// The block device a file lies on, or the device that a device file is.
fn of_file(root: &Path, path: &Path) -> Result<NodeId, String> {
    let about =
        std::fs::metadata(path).map_err(|_| format!("Cannot stat file {}", path.display()))?;
    let kind = about.file_type();
    let device =
        if kind.is_block_device() || kind.is_char_device() { about.rdev() } else { about.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let entries = std::fs::read_dir(root.join("sys/class/block"))
        .map_err(|_| "Cannot enumerate block devices in sysfs".to_string())?;
    let wanted = format!("{major}:{minor}");
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let is_it = |name: &&String| {
        let text = file::text_if_present(&root.join("sys/class/block").join(name).join("dev"));
        matches!(text, Ok(Some(text)) if text.trim() == wanted)
    };
    match names.iter().find(is_it) {
        Some(name) => of_class(root, "block", name),
        None => Err(format!(
            "Cannot find block device {major:x}:{minor:x} in sysfs for `{}'",
            path.display()
        )),
    }
}

fn of_host(root: &Path, host: &str) -> Result<NodeId, String> {
    // the port is of no matter
    let found = (host, 0_u16).to_socket_addrs().map_err(|e| format!("Cannot resolve {host}: {e}"));
    let address = found?.next().ok_or_else(|| format!("Cannot resolve {host}"))?.ip();
    let device = route(root, address).ok_or_else(|| format!("there is no route to {host}"))?;
    of_class(root, "net", &device)
}

/// The network device of the longest route to an address; the first of equally long ones.
fn route(root: &Path, address: IpAddr) -> Option<String> {
    if address.is_loopback() {
        return Some("lo".to_string());
    }
    let (path, parse): (_, fn(&str) -> Option<Route>) = match address {
        IpAddr::V4(_) => ("proc/net/route", route_v4),
        IpAddr::V6(_) => ("proc/net/ipv6_route", route_v6),
    };
    let text = file::text_if_present(&root.join(path)).ok()??;
    let wanted = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    let mut best: Option<Route> = None;
    for route in text.lines().filter_map(parse) {
        let mask = if route.bits == 0 { 0 } else { u128::MAX << (128 - route.bits) };
        let longer = best.as_ref().is_none_or(|best| route.bits > best.bits);
        if wanted & mask == route.net & mask && longer {
            best = Some(route);
        }
    }
    best.map(|route| route.device)
}

struct Route {
    /// Left-aligned.
    net: u128,
    bits: u32,
    device: String,
}

/// `eth0 0002A8C0 00000000 0001 0 0 0 00FFFFFF …`: numbers in the host's byte order.
fn route_v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::from_be);
    let (net, mask) = (number(1)?, number(7)?);
    Some(Route {
        net: u128::from(net) << 96,
        bits: mask.leading_ones(),
        device: (*words.first()?).to_string(),
    })
}

/// `NET BITS … DEVICE`, all hexadecimal.
fn route_v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let bits = u32::from_str_radix(words.get(1)?, 16).ok().filter(|bits| *bits <= 128)?;
    let net = u128::from_str_radix(words.first()?, 16).ok()?;
    Some(Route { net, bits, device: (*words.last()?).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with eth0 on PCI at node 1, a paravirtual disk without a node.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let function = "sys/devices/pci0000:00/0000:00:03.0";
        write(&format!("{function}/numa_node"), "1\n");
        write(&format!("{function}/net/eth0/mtu"), "1500\n");
        write("sys/bus/pci/devices/0000:00:03.0/numa_node", "1\n");
        write("sys/class/net/lo/mtu", "1500\n");
        write("sys/class/block/vda/dev", "254:0\n");
        write("sys/class/block/vda/device/numa_node", "-1\n");
        let link = folder.path().join("sys/class/net/eth0");
        std::os::unix::fs::symlink("../../devices/pci0000:00/0000:00:03.0/net/eth0", link).unwrap();
        // 192.168.2.0/24 and the default route; the table is in the host's byte order
        let host = |a, b, c, d| format!("{:08X}", u32::from_ne_bytes([a, b, c, d]));
        let line =
            |net: String, mask: String| format!("eth0\t{net}\t0\t1\t0\t0\t0\t{mask}\t0\t0\t0\n");
        let table = line(host(192, 168, 2, 0), host(255, 255, 255, 0));
        write("proc/net/route", &format!("Iface Destination\n{table}"));
        folder
    }

    #[test]
    fn devices_have_the_node_of_what_they_hang_on() {
        let folder = machine();
        let node = |text: &str| resolve(folder.path(), text).unwrap();
        for text in ["netdev:eth0", "pci:00:03.0", "pci:0000:00:03", "ip:192.168.2.7"] {
            assert_eq!(node(text).unwrap().to_string(), "1", "{text}");
        }
        for (text, problem) in [
            ("netdev:lo", "Cannot read node mask"),
            ("netdev:../x", "Illegal characters"),
            ("block:vda", "does not know node"),
            ("pci:zz", "Cannot parse PCI"),
            ("file:/no/such/file", "Cannot stat"),
            ("ip:10.0.0.1", "no route"),
            ("ip:127.0.0.1", "Cannot read node mask"),
        ] {
            let error = node(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert!(resolve(folder.path(), "usb:3").is_none());
        assert!(resolve(folder.path(), "0-3").is_none());
    }
}
