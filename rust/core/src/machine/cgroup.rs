//! The CPU quota of this process's control groups, version 1, 2 or both at once.
//!
//! A group can never use more than any group around it: the smallest quota between the process's own group and the
//! hierarchy's root counts. Every function takes the root of the file tree, `/` on a real machine; what is missing,
//! unreadable or malformed sets no limit.

use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// One mounted hierarchy that can carry CPU quotas.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is seen at `point`: `/`, or the container's own group where only that is mounted.
    group: PathBuf,
    point: PathBuf,
}

/// Usual places, tried where `mountinfo` cannot be read.
const USUAL: [(Version, &str); 3] =
    [(Version::Two, "/sys/fs/cgroup"), (Version::One, "/sys/fs/cgroup/cpu,cpuacct"), (Version::One, "/sys/fs/cgroup/cpu")];

/// The quota in CPUs (0.5 is half the time of one), `None` where there is no limit.
#[must_use]
pub fn quota(root: &Path) -> Option<f64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let memberships = read("proc/self/cgroup")?;
    let mounts: Vec<Mount> = match read("proc/self/mountinfo") {
        Some(text) => text.lines().filter_map(parse_mount).collect(),
        None => USUAL.iter().map(|&(version, point)| Mount { version, group: "/".into(), point: point.into() }).collect(),
    };
    let limits = mounts.iter().filter_map(|mount| {
        let group = own_group(&memberships, mount.version)?;
        smallest_on_path(root, mount, Path::new(group))
    });
    limits.reduce(f64::min)
}

/// This process's group from `/proc/self/cgroup`: lines of `number:controllers:path`, version 2 with number 0 and no
/// controllers.
fn own_group(memberships: &str, version: Version) -> Option<&str> {
    memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match version {
            Version::Two => number == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == "cpu"),
        };
        (ours && path.starts_with('/')).then_some(path)
    })
}

/// One line of `mountinfo`: `id parent device root point options [tags] - type source super-options`.
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (group, point) = (unescape(left.next()?), unescape(left.next()?));
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup2" => Version::Two,
        "cgroup" if right.nth(1)?.split(',').any(|option| option == "cpu") => Version::One,
        _ => return None,
    };
    Some(Mount { version, group, point })
}

/// `mountinfo` writes blanks, tabs, newlines and backslashes as a backslash and three octal digits.
fn unescape(text: &str) -> PathBuf {
    let raw = text.as_bytes();
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let octal = raw.get(at + 1..at + 4).filter(|digits| raw[at] == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            bytes.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
            at += 4;
        } else {
            bytes.push(raw[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// The smallest quota from `group` up to the mount point. A group that does not lie under what is mounted (seen from
/// another namespace it starts with `/..`) leaves the mount point itself, which is then the nearest thing that is known.
fn smallest_on_path(root: &Path, mount: &Mount, group: &Path) -> Option<f64> {
    let strange = group.components().any(|part| part == Component::ParentDir);
    let below = if strange { Path::new("") } else { group.strip_prefix(&mount.group).unwrap_or(Path::new("")) };
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    let folder = top.join(below);
    let steps = below.components().count() + 1;
    folder.ancestors().take(steps).filter_map(|folder| limit_of(folder, mount.version)).reduce(f64::min)
}

fn limit_of(folder: &Path, version: Version) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    match version {
        Version::Two => parse_cpu_max(&read("cpu.max")?),
        Version::One => ratio(read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim()),
    }
}

/// Version 2: `quota period` or `max period`, in us.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace();
    let (quota, period) = (fields.next()?, fields.next()?);
    if fields.next().is_some() { None } else { ratio(quota, period) }
}

/// Quota over period, both whole numbers of us above 0. Version 1 writes -1 and version 2 writes `max` for no limit:
/// neither is such a number.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let whole = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    Some(whole(quota)? as f64 / whole(period)? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::testing::Tree;

    const V2_MOUNT: &str = "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_MOUNT: &str = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                            33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    fn tree(cgroup: &str, mountinfo: &str, files: &[(&str, &str)]) -> Option<f64> {
        let tree = Tree::new();
        tree.file("proc/self/cgroup", cgroup).file("proc/self/mountinfo", mountinfo);
        for (path, text) in files {
            tree.file(&format!("sys/fs/cgroup/{path}"), text);
        }
        quota(tree.root())
    }

    #[test]
    fn version_2() {
        assert_eq!(tree("0::/a\n", V2_MOUNT, &[("a/cpu.max", "150000 100000\n")]), Some(1.5));
        assert_eq!(tree("0::/a\n", V2_MOUNT, &[("a/cpu.max", "max 100000\n")]), None);
        // In a namespace of its own the group is the root, and has the file.
        assert_eq!(tree("0::/\n", V2_MOUNT, &[("cpu.max", "50000 100000\n")]), Some(0.5));
        assert_eq!(tree("0::/\n", V2_MOUNT, &[]), None);
    }

    #[test]
    fn the_smallest_quota_on_the_path_counts() {
        let files = [
            ("cpu.max", "max 100000"),
            ("a/cpu.max", "200000 100000"),
            ("a/b/cpu.max", "max 100000"),
            ("a/b/c/cpu.max", "700000 100000"),
            ("other/cpu.max", "10000 100000"),
            ("a/b/c/below/cpu.max", "10000 100000"),
        ];
        assert_eq!(tree("0::/a/b/c\n", V2_MOUNT, &files), Some(2.0));
        // Levels without the file (controller not delegated there) do not end the walk.
        assert_eq!(tree("0::/a/x/y\n", V2_MOUNT, &files), Some(2.0));
        assert_eq!(tree("0::/\n", V2_MOUNT, &files), None);
    }

    #[test]
    fn version_1() {
        let cgroup = "4:memory:/pod\n3:cpu,cpuacct:/pod/job\n1:name=systemd:/pod\n";
        let files = [
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/pod/cpu.cfs_quota_us", "250000\n"),
            ("cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/pod/job/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/pod/job/cpu.cfs_period_us", "100000\n"),
            ("memory/pod/cpu.cfs_quota_us", "1000\n"),
            ("memory/pod/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(tree(cgroup, V1_MOUNT, &files), Some(2.5));
        assert_eq!(tree("3:cpuset,cpuacct:/pod\n", V1_MOUNT, &files), None);
    }

    #[test]
    fn both_at_once_take_the_smaller() {
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("cpu,cpuacct/p/cpu.cfs_quota_us", "300000"),
            ("cpu,cpuacct/p/cpu.cfs_period_us", "100000"),
            ("unified/q/cpu.max", "400000 100000"),
        ];
        assert_eq!(tree("1:cpu,cpuacct:/p\n0::/q\n", &format!("{V1_MOUNT}{unified}"), &files), Some(3.0));
    }

    #[test]
    fn a_container_sees_only_its_own_part() {
        // Host path in /proc/self/cgroup, that very group mounted at the usual place.
        let mount = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let files = [("cpu/cpu.cfs_quota_us", "50000"), ("cpu/cpu.cfs_period_us", "100000")];
        assert_eq!(tree("2:cpu:/docker/abc\n", mount, &files), Some(0.5));
        assert_eq!(tree("2:cpu:/docker/abc/inner\n", mount, &files), Some(0.5));
        // Paths of another namespace fall back on the mount point.
        for strange in ["0::/../..\n", "0::/elsewhere/deep\n"] {
            assert_eq!(tree(strange, V2_MOUNT, &[("cpu.max", "120000 100000")]), Some(1.2), "{strange}");
        }
        // And never leave it.
        let outside = Tree::new();
        outside.file("proc/self/cgroup", "0::/../../..\n").file("proc/self/mountinfo", V2_MOUNT);
        outside.file("sys/cpu.max", "10000 100000").file("cpu.max", "10000 100000");
        assert_eq!(quota(outside.root()), None);
    }

    #[test]
    fn odd_mount_points() {
        let tree = Tree::new();
        let line = r"31 24 0:27 / /odd\040place\134x rw - cgroup2 none rw";
        tree.file("proc/self/cgroup", "0::/g:1\n").file("proc/self/mountinfo", line);
        tree.file(r"odd place\x/g:1/cpu.max", "100000 100000");
        assert_eq!(quota(tree.root()), Some(1.0));
        assert_eq!(unescape(r"\9\04\1a"), PathBuf::from(r"\9\04\1a"));
    }

    #[test]
    fn without_mountinfo_the_usual_places_are_tried() {
        let two = Tree::new();
        two.file("proc/self/cgroup", "0::/a\n").file("sys/fs/cgroup/a/cpu.max", "100000 50000");
        assert_eq!(quota(two.root()), Some(2.0));
        let one = Tree::new();
        one.file("proc/self/cgroup", "5:cpu:/a\n").file("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "20000");
        one.file("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
        assert_eq!(quota(one.root()), Some(0.2));
        assert_eq!(quota(Tree::new().root()), None);
    }

    #[test]
    fn malformed_files_set_no_limit() {
        for bad in
            ["", "\n", "100000", "x 100000", "100000 x", "0 100000", "100000 0", "-1 100000", "1 2 3", "1e5 1e5", "nan nan"]
        {
            assert_eq!(tree("0::/a\n", V2_MOUNT, &[("a/cpu.max", bad)]), None, "{bad:?}");
            // The level above still counts.
            let files = [("a/cpu.max", bad), ("cpu.max", "300000 100000")];
            assert_eq!(tree("0::/a\n", V2_MOUNT, &files), Some(3.0), "{bad:?}");
        }
        for mountinfo in ["", "garbage\n", "31 24 0:27 /\n", " - \n", "1 2 3 / /sys/fs/cgroup rw - cgroup2\n - - -\n"] {
            let expected = mountinfo.contains("cgroup2").then_some(1.0);
            assert_eq!(tree("0::/a\n", mountinfo, &[("a/cpu.max", "100000 100000")]), expected, "{mountinfo:?}");
        }
        for cgroup in ["", "0\n", "0:\n", "0::\n", "0::a\n", ":::\n", "1::/a\n"] {
            assert_eq!(tree(cgroup, V2_MOUNT, &[("a/cpu.max", "100000 100000")]), None, "{cgroup:?}");
        }
    }
}
