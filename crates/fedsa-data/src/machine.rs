//! The memory that is available to this process.
//!
//! This is the minimum of the system's free memory, the rest of its control groups' limits, and the rest of its address-space limit
//! (`ulimit -v`). Linux only: on other systems the available memory is unknown, and nothing is rejected. Swap space does not count.

use std::path::{Path, PathBuf};

use fedsa::error::{Error, Result};

/// The environment variable that overrides the system's value.
pub const VARIABLE: &str = "FEDSA_MEMORY";

/// The available memory, and the limit that determines it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Available {
    /// Bytes.
    pub bytes: f64,
    /// The limit that determines it, in words.
    pub by: &'static str,
}

/// The available memory; `None` if it is not known.
///
/// # Errors
/// When the value of [`VARIABLE`] is not an amount of memory.
pub fn available() -> Result<Option<Available>> {
    if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let text = text.to_string_lossy();
        let bytes = amount(&text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            Error::new(VARIABLE, format!("`{shown}` is not an amount of memory"), "a number of bytes, or one with k, M, G or T: 4G")
        })?;
        return Ok(Some(Available { bytes, by: VARIABLE }));
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let free = kilobytes(&read("/proc/meminfo"), "MemAvailable");
    let groups = cgroups(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    let space = address_space().map(|limit| limit - kilobytes(&read("/proc/self/status"), "VmSize").unwrap_or(0.0));
    let all =
        [(free, "free memory"), (groups, "the memory limit of a control group"), (space, "the limit of the address space, ulimit -v")];
    let known = all.into_iter().filter_map(|(bytes, by)| Some(Available { bytes: bytes?.max(0.0), by }));
    Ok(known.min_by(|a, b| a.bytes.total_cmp(&b.bytes)))
}

/// An amount of memory as text: `210 MB`, `1.5 GB`.
pub fn bytes_text(bytes: f64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    match value {
        // Amounts beyond the largest unit have an exponent.
        v if v >= 1e6 => format!("{:.1e} bytes", bytes),
        v if v >= 9.95 => format!("{v:.0} {}", units[unit]),
        v => format!("{v:.1} {}", units[unit]),
    }
}

/// An amount of memory: `2000000`, `500M`, `1.5G`, `4GB`.
fn amount(text: &str) -> Option<f64> {
    let text = text.trim();
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text).trim_end();
    let powers = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12)];
    let (number, unit) = powers.iter().find_map(|(letter, unit)| Some((text.strip_suffix(*letter)?, *unit))).unwrap_or((text, 1.0));
    number.trim().parse::<f64>().ok().map(|x| x * unit).filter(|x| x.is_finite() && *x > 0.0)
}

/// The limit of the address space, in bytes.
#[cfg(unix)]
fn address_space() -> Option<f64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current.map(|bytes| bytes as f64)
}

#[cfg(not(unix))]
fn address_space() -> Option<f64> {
    None
}

/// A line `name:  123 kB` of `/proc`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// The rest of the memory limits of control groups (version 2 and version 1), in bytes.
///
/// `root` is where they are mounted, `own` the contents of `/proc/self/cgroup`: lines `0::/path` (version 2) and `4:memory:/path`
/// (version 1). A group's limit holds for all groups below it. In a container the path may be the host's, and only its last parts or
/// none exist below the mount: the existing ones count.
fn cgroups(root: &Path, own: &str) -> Option<f64> {
    let paths = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some((controllers, path.trim_start_matches('/')))
    });
    let left = paths.flat_map(|(controllers, path)| {
        let version_2 = controllers.is_empty();
        let mounts = match version_2 {
            true => vec![root.to_path_buf(), root.join("unified")],
            false if controllers.split(',').any(|c| c == "memory") => vec![root.join("memory")],
            false => Vec::new(),
        };
        mounts.into_iter().flat_map(move |mount| {
            let groups: Vec<PathBuf> = Path::new(path).ancestors().map(|group| mount.join(group)).collect();
            groups.into_iter().filter_map(move |group| left_in(&group, version_2))
        })
    });
    left.min_by(f64::total_cmp)
}

/// The rest of one control group: its limit minus its use. Inactive file pages do not count as used, because the system releases them
/// on demand.
fn left_in(group: &Path, version_2: bool) -> Option<f64> {
    let (limit, usage, inactive) = match version_2 {
        true => ("memory.max", "memory.current", "inactive_file"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    };
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    // Without a limit, version 2 has `max` and version 1 nearly 2^63.
    let limit = read(limit)?.trim().parse::<f64>().ok().filter(|bytes| *bytes < 2f64.powi(62))?;
    let usage = read(usage)?.trim().parse::<f64>().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix(inactive)?.trim().parse::<f64>().ok()).unwrap_or(0.0);
    Some(limit - (usage - inactive).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn lines_of_proc_are_read() {
        let text = "MemTotal:       24689764 kB\nMemFree:        22563340 kB\nMemAvailable:   22000000 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable"), Some(22_000_000.0 * 1024.0));
        assert_eq!(kilobytes(text, "Mem"), None);
        assert_eq!(kilobytes("VmSize:\t  123 kB\n", "VmSize"), Some(123.0 * 1024.0));
        assert_eq!(kilobytes("", "VmSize"), None);
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(cgroups(root, "0::/user.slice/job\n"), None);
        for (group, max, current) in [("", "max", "1"), ("user.slice", "8000", "3000"), ("user.slice/job", "9000", "3000")] {
            write(root, &format!("{group}/memory.max"), &format!("{max}\n"));
            write(root, &format!("{group}/memory.current"), &format!("{current}\n"));
        }
        assert_eq!(cgroups(root, "0::/user.slice/job\n"), Some(5000.0));
        // Releasable file cache counts as available.
        write(root, "user.slice/memory.stat", "anon 1000\nfile 2000\ninactive_file 1500\nactive_file 500\n");
        assert_eq!(cgroups(root, "0::/user.slice/job\n"), Some(6000.0));
        assert_eq!(cgroups(root, "0::/user.slice/other\n"), Some(6500.0), "a group that is not there");
        assert_eq!(cgroups(root, "0::/\n"), None);
    }

    #[test]
    fn version_1_has_a_mount_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let own = "12:cpu,cpuacct:/\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n";
        write(root, "memory/memory.limit_in_bytes", "4000000\n");
        write(root, "memory/memory.usage_in_bytes", "1000000\n");
        write(root, "memory/memory.stat", "cache 7\ninactive_file 1\ntotal_inactive_file 200000\n");
        // In a container the group's path is the host's: only the mount itself exists.
        assert_eq!(cgroups(root, own), Some(3_200_000.0));
        write(root, "memory/docker/abc/memory.limit_in_bytes", "2000000\n");
        write(root, "memory/docker/abc/memory.usage_in_bytes", "1900000\n");
        assert_eq!(cgroups(root, own), Some(100_000.0));
        write(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
        write(root, "memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroups(root, own), None, "no limit");
    }

    #[test]
    fn amounts_are_read_and_shown() {
        for (text, bytes) in [("1000", 1e3), ("2k", 2e3), ("1.5G", 1.5e9), ("4 GB", 4e9), ("1e3M", 1e9)] {
            assert_eq!(amount(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "-1", "many", "1X", "nan", "inf", "1e400"] {
            assert_eq!(amount(text), None, "{text}");
        }
        for (bytes, text) in [
            (0.0, "0.0 kB"),
            (2.1e8, "210 MB"),
            (1.52e9, "1.5 GB"),
            (9.99e9, "10 GB"),
            (2.14e10, "21 GB"),
            (9.996e11, "1.0 TB"),
            (1e300, "1.0e300 bytes"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }
}
